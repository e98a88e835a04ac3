"""One file of a checkpoint: its name and place among the others, its headers, metadata and configuration."""
