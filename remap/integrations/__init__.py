"""torch, DeepSpeed, transformers, pytest: the only modules that import those."""
