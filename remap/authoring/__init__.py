"""What the author of a pack runs: examples, lint, inference, the printed page, the skeleton."""
