"""How a checkpoint lies on disk: bytes <-> catalog. One module a format; none knows a rule."""
