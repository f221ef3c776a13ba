"""The version of Runpod's package whose interface this package has."""

__version__ = "1.12.0"
