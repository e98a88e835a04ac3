"""The version of remap, for the package's metadata, ``--version`` and receipts."""

__version__ = "0.1.0"
