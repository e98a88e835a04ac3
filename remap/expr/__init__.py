"""Expressions over tensors: what an output tensor is made of.

``nodes`` says what there is and infers shape and dtype; ``ranges`` lowers to byte ranges what only
moves contiguous bytes; ``blocks`` computes the rest, block by block. Nothing here reads a header.
"""

from remap.expr.nodes import (
    Affine,
    Cast,
    Concat,
    Constant,
    Expr,
    Normal,
    Pad,
    Permute,
    Reshape,
    Same,
    Slice,
    Sum,
    Take,
    is_expr,
    takes,
)
from remap.expr.products import Lengths, LowRank, Normed, Times

__all__ = [
    "Affine",
    "Cast",
    "Concat",
    "Constant",
    "Expr",
    "Lengths",
    "LowRank",
    "Normal",
    "Normed",
    "Pad",
    "Permute",
    "Reshape",
    "Same",
    "Slice",
    "Sum",
    "Take",
    "Times",
    "is_expr",
    "takes",
]
