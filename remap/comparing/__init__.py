"""Are two tensors, or all of two checkpoints, the same, and if not, how do they differ?"""
