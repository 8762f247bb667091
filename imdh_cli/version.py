"""The version of imdh."""

__version__ = "0.1.0"
