"""Names of the output heads and the embeddings that models tie to each other.

Source: transformers ``_tied_weights_keys`` and ``get_input_embeddings`` of its causal and masked language
models.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_HEAD = re.compile(
    r"(?:^|\.)(?:lm_head|embed_out|output_projection|final_linear|cls\.predictions\.decoder|lm_head\.decoder)"
    r"(?:\.base_layer|\.original_module|\.modules_to_save)?\.weight$"
)
_AROUND = re.compile(r"(?:\.base_layer|\.original_module|\.modules_to_save)?\.weight$")
_EMBEDDING = re.compile(
    r"(?:^|\.)(?:embed_tokens|wte|embed_in|word_embeddings|shared|tok_embeddings|word_embedding)\.weight$"
)


def tied_by_config(*configs: Mapping[str, object]) -> bool:
    """Does the first of the configs that says anything of ties say that head and embedding are one?"""
    said = (c["tie_word_embeddings"] for c in configs if "tie_word_embeddings" in c)
    return next(said, False) is True


def is_head(key: str) -> bool:
    """Is it an output head, by its name?"""
    return _HEAD.search(key) is not None


def other_head(key: str, keys: Iterable[str]) -> str:
    """The output head among ``keys`` that is called otherwise than the output head ``key``, or nothing."""
    if not _HEAD.search(key):
        return ""
    found = [k for k in keys if k != key and _HEAD.search(k)]
    return next((k for k in found if ".modules_to_save." in k), found[0] if found else "")


def module_of(key: str) -> str:
    """The module that a weight belongs to, without what peft puts around it."""
    return _AROUND.sub("", key)


def role(key: str) -> str:
    """``head``, ``embedding``, or nothing: the two often have one shape, and are never the other."""
    return "head" if _HEAD.search(key) else "embedding" if _EMBEDDING.search(key) else ""


def embedding_of(key: str, keys: Iterable[str]) -> str:
    """The embedding among ``keys`` to which the output head ``key`` may be tied; empty where there is
    none."""
    if not _HEAD.search(key):
        return ""
    return next((k for k in keys if _EMBEDDING.search(k)), "")
