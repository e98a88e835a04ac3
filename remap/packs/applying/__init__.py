"""Packs on keys: parameters, stages in order, tensors gathered, what was wrong, the way back."""
