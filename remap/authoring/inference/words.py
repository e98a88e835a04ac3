"""Words that projects have for the same thing, and how like two names are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from math import log

SPELLINGS = {
    "gamma": "weight",
    "beta": "bias",
    "wte": "embed",
    "wpe": "position",
    "tok": "embed",
    "embeddings": "embed",
    "ln": "norm",
    "layernorm": "norm",
    "layer": "layers",
    "attn": "attention",
    "query": "q",
    "key": "k",
    "value": "v",
    "wq": "q",
    "wk": "k",
    "wv": "v",
    "wo": "o",
    "qkv": "q k v",
    "wqkv": "q k v",
    "out": "o",
    "output": "o",
    "w1": "gate",
    "w2": "down",
    "w3": "up",
    "ffn": "mlp",
    "forward": "mlp",
    "proj": "projection",
}
"""Words; they only raise a likeness."""
PHRASES = {
    "input_layernorm": "attention.norm",
    "ln_1": "attention.norm",
    "self_attn_layer_norm": "attention.norm",
    "post_attention_layernorm": "mlp.norm",
    "pre_mlp_layernorm": "mlp.norm",
    "ln_2": "mlp.norm",
}
"""Names that say where a norm stands, not what it belongs to: the one after attention is the MLP's."""
_PHRASE = re.compile(rf"(?<![^.])({'|'.join(PHRASES)})(?![^.])")


def words(skeleton: str) -> list[str]:
    """The words of a name, one spelling for those that mean the same."""
    text = _PHRASE.sub(lambda m: PHRASES[m[1]], skeleton)
    plain = [w.lower() for w in re.split(r"[._]", text) if w and w != "#"]
    return [word for w in plain for word in SPELLINGS.get(w, w).split()]


class Likeness:
    """How like two names are, from 0 to 1: words that few names have count most.

    ``learned`` are prefixes that pairs so far were renamed by: a name that one of them turns into the
    other is as good as equal.
    """

    def __init__(self, skeletons: Iterable[str]) -> None:
        self.words = {s: words(s) for s in skeletons}
        counts = Counter(w for several in self.words.values() for w in set(several))
        total = len(self.words)
        self.weight = {w: log(1 + total / n) for w, n in counts.items()}
        self.learned: set[tuple[str, str]] = set()

    def __call__(self, one: str, other: str) -> float:
        from rapidfuzz import fuzz

        if any(_swapped(one, a, b) == other for a, b in self.learned):
            return 1.0
        a, b = self.words[one], self.words[other]
        common, union = Counter(a) & Counter(b), Counter(a) | Counter(b)
        names = self._sum(common) / (self._sum(union) or 1)
        letters = fuzz.ratio(one, other) / 100
        last = 1.0 if a[-1:] == b[-1:] else 0.0
        return (0.55 * names + 0.2 * letters + 0.15 * last) / 0.9

    def related(self, one: str, other: str) -> bool:
        """Have they a word in common, beside the last, which is ``weight`` everywhere?"""
        a, b = self.words[one], self.words[other]
        return bool(set(a[:-1]) & set(b[:-1]))

    def learn(self, one: str, other: str) -> None:
        """Remember what came before the common end of the two names."""
        a, b = one.split("."), other.split(".")
        same = 0
        while same < min(len(a), len(b)) and a[-1 - same] == b[-1 - same]:
            same += 1
        if same >= 2:
            self.learned.add((".".join(a[: len(a) - same]), ".".join(b[: len(b) - same])))

    def _sum(self, several: Counter[str]) -> float:
        return sum(self.weight[w] * n for w, n in several.items())


def _swapped(skeleton: str, a: str, b: str) -> str | None:
    """The name with the prefix ``a`` replaced by ``b``."""
    if a and not skeleton.startswith(f"{a}."):
        return None
    rest = skeleton[len(a) + 1 :] if a else skeleton
    return f"{b}.{rest}" if b else rest
