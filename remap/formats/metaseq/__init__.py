"""Checkpoints of metaseq (OPT) and of fairscale's FSDP, which it is built on.

    names       a file's name -> the files that belong together; ``experts`` lie beside them
    shards      one file, its headers read; ``config``, ``metadata`` are parts of it
    description the model in transformers' words, and in metaseq's
    check       do the shards belong together?
    part        the shards of a model part put together; ``line`` is a flat tensor
    partition   how tensors are divided over model parts
    checkpoint  all of it; ``format`` makes a catalog of it
    optimizer/  the optimizer's state
    writing/    other shards and parts, and singletons

Source: metaseq (facebookresearch/metaseq at f7ffa5f), fairscale 0.4.13.
"""

from remap.formats.metaseq.format import FORMAT

__all__ = ["FORMAT"]
