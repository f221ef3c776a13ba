"""Measures tidegate beside its peers; `bench/run.py` is the door."""
