"""A fitted tree as a value and as a file."""

from imdh_cli.model.model import FORMAT_VERSION, Model, load, save

__all__ = ["FORMAT_VERSION", "Model", "load", "save"]
