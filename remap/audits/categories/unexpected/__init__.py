"""Keys that the source gives and the target does not have."""
