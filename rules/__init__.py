"""The packs that come with remap: YAML, one folder a model family. Nothing here is code."""
