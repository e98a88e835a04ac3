"""Outputs at remote places. There is no rename there: what counts is the order in which files are seen.

``upload`` is the destination, ``write`` sends the files, ``sealing`` learns beforehand the checksums that a
file holds of its own bytes.
"""

from remap.stream.uploading.upload import Upload, check_options

__all__ = ["Upload", "check_options"]
