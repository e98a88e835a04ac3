"""Checkpoints of metaseq (OPT) and of fairscale's FSDP, which it is built on.

    files/      one file
        names       its name -> the files that belong together, which ``places`` looks at
        shards      its headers; ``config``, ``metadata`` are parts of them
    experts     files that lie beside the others
    check       do the shards belong together?
    description the model in transformers' words, and in metaseq's
    part        the shards of a model part put together; ``line`` is a flat tensor
    partition   how tensors are divided over model parts
    checkpoint  all of it; ``format`` makes a catalog of it
    optimizer/  the optimizer's state
    writing/    other shards and parts, and singletons

Source: metaseq (facebookresearch/metaseq at f7ffa5f), fairscale 0.4.13.
"""

from remap.formats.metaseq.format import FORMAT

__all__ = ["FORMAT"]
