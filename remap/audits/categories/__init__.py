"""The categories of findings; each module is one. See ``remap.audits.category``."""
