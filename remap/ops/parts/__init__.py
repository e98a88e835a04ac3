"""Ops that join or cut: several tensors on one side."""
