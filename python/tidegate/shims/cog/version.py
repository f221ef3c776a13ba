"""The version of Cog whose interface this is."""

__version__ = "0.23.1"
