"""The rule packs that come with remap, one folder a model family. Installed as ``remap_rules``."""
