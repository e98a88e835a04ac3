"""Megatron-LM's own checkpoints: a file for every tensor-parallel rank of every pipeline stage."""
