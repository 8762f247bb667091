"""A fitted tree as a value and as a file."""

from imdh_cli.model.model import FORMAT_VERSION, Model, load, save
from imdh_cli.model.walk import Cut, walk

__all__ = ["FORMAT_VERSION", "Cut", "Model", "load", "save", "walk"]
