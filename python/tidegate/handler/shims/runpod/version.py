"""The version of Runpod's package whose interface this is."""

__version__ = "1.12.0"
