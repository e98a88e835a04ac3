"""Keys that both sides have."""
