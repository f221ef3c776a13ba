"""Modules of the worker that handlers import by name."""
