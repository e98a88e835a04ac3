"""How tensor parallelism divides tensors: one class of division a file, found through ``registry``."""
