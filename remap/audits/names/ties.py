"""Names of the output heads and the embeddings that models tie to each other.

Source: transformers ``_tied_weights_keys`` and ``get_input_embeddings`` of its causal and masked language
models.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_HEAD = re.compile(
    r"(?:^|\.)(?:lm_head|embed_out|output_projection|final_linear|cls\.predictions\.decoder|lm_head\.decoder)\.weight$"
)
_EMBEDDING = re.compile(
    r"(?:^|\.)(?:embed_tokens|wte|embed_in|word_embeddings|shared|tok_embeddings|word_embedding)\.weight$"
)


def embedding_of(key: str, keys: Iterable[str]) -> str:
    """The embedding among ``keys`` to which the output head ``key`` may be tied; empty where there is
    none."""
    if not _HEAD.search(key):
        return ""
    return next((k for k in keys if _EMBEDDING.search(k)), "")
