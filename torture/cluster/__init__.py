"""Runs against a cluster: API processes, directors, Redis and PostgreSQL, connected through a proxy."""
