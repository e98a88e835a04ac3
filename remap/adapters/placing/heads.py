"""The output head that a base's files leave out, since it is the embedding: an adapter may change it all the
same.

transformers writes a tied head only once, under the embedding's key. ``config.json`` says so, or says nothing
of it, as transformers 4 does where a model is tied by default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from remap.audits.names.ties import embedding_of, role
from remap.types import Catalog

SETTING = "tie_word_embeddings"


def tied_silently(base: Catalog) -> bool:
    """Is the base's head its embedding, and in none of its files?"""
    tied = bool(base.config) and base.config.get(SETTING, True) is not False
    return tied and not any(role(k) == "head" for k in base.entries)


def left_out(wanted: Iterable[str], keys: Iterable[str], config: Mapping[str, object]) -> dict[str, str]:
    """The heads among ``wanted`` that are not among ``keys``, with the embeddings that they are."""
    if not config or config.get(SETTING, True) is False:
        return {}
    there = list(dict.fromkeys(keys))
    known = set(there)
    found = {k: embedding_of(k, there) for k in dict.fromkeys(wanted) if k not in known}
    return {head: embedding for head, embedding in found.items() if embedding}


def with_heads(base: Catalog, wanted: Iterable[str]) -> Catalog:
    """The base with the heads among ``wanted`` that its files leave out: second names of the embedding."""
    heads = left_out(wanted, base.entries, base.config)
    more = {head: replace(base.entries[embedding], key=head) for head, embedding in heads.items()}
    return replace(base, entries={**base.entries, **more}) if more else base


def head_of(config: Mapping[str, object]) -> str:
    """What transformers calls the head of such a model; empty where that isn't known."""
    said = config.get("architectures")
    kinds = tuple(map(str, said)) if isinstance(said, list) else ()
    return "lm_head.weight" if any(k.endswith(("ForCausalLM", "LMHeadModel")) for k in kinds) else ""
