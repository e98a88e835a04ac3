"""remap moves checkpoints between the names that models give their weights."""

__version__ = "0.1.0"
