"""imdh: cluster tables that do not fit in memory with a tree of minimum density hyperplanes."""

__version__ = "0.1.0"
