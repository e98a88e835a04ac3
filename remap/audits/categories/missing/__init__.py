"""Keys that the target has and the source does not give."""
