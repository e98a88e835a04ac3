"""``fuse_qkv`` joins query, key and value rows into one tensor, ``split_qkv`` takes them apart.

    from: ["{a}.q_proj.{p}", "{a}.k_proj.{p}", "{a}.v_proj.{p}"]
    to: "{a}.query_key_value.{p}"
    do: {fuse_qkv: {layout: groups, heads: heads, kv_heads: kv_heads}}

The parts are always query, key, value in this order. Layouts of the rows:

    blocks   all of one, then all of the next, in ``order`` (default [q, k, v]; metaseq OPT has [k, v, q])
    heads    head by head, in each head ``order`` (GPT-NeoX, BLOOM); heads == kv_heads
    groups   key-value head by key-value head: its query heads, its key, its value (Falcon, Megatron)
    shares   head by head: its query, and its share of the keys' and the values' rows (GPT-NeoX of 2024)

These layouts of one tensor have one shape: only the values tell them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remap.errors import PackError, UsageError
from remap.expr import Concat, Expr, Reshape, Slice
from remap.ops.arguments import Arguments, symbols, value
from remap.ops.arithmetic import Arithmetic
from remap.ops.base import Parts, Scope, Shape

NAMES = ("q", "k", "v")
LAYOUTS = ("blocks", "heads", "groups", "shares")


@dataclass(frozen=True)
class QkvLayout:
    """How the rows of a fused projection lie."""

    layout: str
    order: tuple[str, ...]
    heads: Arithmetic
    kv_heads: Arithmetic

    def numbers(self, scope: Scope) -> tuple[int, int]:
        """Heads and key-value heads. Raises UsageError where they don't fit."""
        heads, kv = value(self.heads, scope), value(self.kv_heads, scope)
        if not heads or not kv or heads % kv:
            raise UsageError(f"{heads} heads don't share {kv} key-value heads evenly")
        if self.layout == "heads" and heads != kv:
            raise UsageError(f"the layout heads needs as many key-value heads ({kv}) as heads ({heads})")
        return heads, kv

    def turns(self, heads: int, kv: int) -> int:
        """How often query, key and value take turns along the rows."""
        return {"blocks": 1, "heads": heads, "groups": kv, "shares": heads}[self.layout]


@dataclass(frozen=True)
class FuseQkvOp:
    """Query, key, value -> one tensor."""

    how: QkvLayout
    name: str = "fuse_qkv"
    shape: Shape = "join"
    over: None = None

    @property
    def symbols(self) -> frozenset[str]:
        return symbols((self.how.heads, self.how.kv_heads))

    def build(self, parts: Parts, scope: Scope) -> Parts:
        if len(parts) != 3:
            raise UsageError(f"fuse_qkv of {len(parts)} parts; query, key and value are three")
        heads, kv = self.how.numbers(scope)
        _check_rows(parts, heads, kv)
        rest = parts[0].spec.shape[1:]
        named = dict(zip(NAMES, parts, strict=True))
        turns = self.how.turns(heads, kv)
        rows = {n: p.spec.shape[0] for n, p in named.items()}
        if any(r % turns for r in rows.values()):
            raise UsageError(f"fuse_qkv of {list(rows.values())} rows by {turns} turns")
        cut = tuple(Reshape(named[n], (turns, rows[n] // turns, *rest)) for n in self.how.order)
        return (Reshape(Concat(cut, 1), (sum(rows.values()), *rest)),)

    def inverse(self) -> SplitQkvOp:
        return SplitQkvOp(self.how)


@dataclass(frozen=True)
class SplitQkvOp:
    """One tensor -> query, key, value."""

    how: QkvLayout
    name: str = "split_qkv"
    shape: Shape = "cut"
    over: None = None

    @property
    def symbols(self) -> frozenset[str]:
        return symbols((self.how.heads, self.how.kv_heads))

    def build(self, parts: Parts, scope: Scope) -> Parts:
        (whole,) = parts
        heads, kv = self.how.numbers(scope)
        rows, *rest = whole.spec.shape or (0,)
        if not rows or rows % (heads + 2 * kv):
            raise UsageError(f"split_qkv of {rows} rows into {heads} heads and twice {kv} key-value heads")
        size = rows // (heads + 2 * kv)
        turns = self.how.turns(heads, kv)
        counts = {"q": heads * size, "k": kv * size, "v": kv * size}
        if any(n % turns for n in counts.values()):
            raise UsageError(f"split_qkv of {rows} rows by {turns} turns")
        view = Reshape(whole, (turns, rows // turns, *rest))
        named: dict[str, Expr] = {}
        at = 0
        for n in self.how.order:
            named[n] = Reshape(Slice(view, 1, at, at + counts[n] // turns), (counts[n], *rest))
            at += counts[n] // turns
        return tuple(named[n] for n in NAMES)

    def inverse(self) -> FuseQkvOp:
        return FuseQkvOp(self.how)


def _check_rows(parts: Parts, heads: int, kv: int) -> None:
    """Raise UsageError where query, key and value don't agree on the rows of a head."""
    rows = [p.spec.shape[0] if p.spec.shape else 0 for p in parts]
    size = rows[0] // heads
    if not size or rows != [heads * size, kv * size, kv * size]:
        raise UsageError(f"fuse_qkv of {rows} rows with {heads} heads and {kv} key-value heads")


def _read(name: str, given: Mapping[str, object]) -> QkvLayout:
    a = Arguments(name, given)
    layout = a.choice("layout", LAYOUTS)
    heads = a.size("heads")
    kv_heads = a.maybe_size("kv_heads")
    order = a.words("order", NAMES)
    a.done()
    if sorted(order) != sorted(NAMES):
        raise PackError(f"{name}: order: {list(order)} is no order of q, k, v")
    return QkvLayout(layout, order, heads, kv_heads if kv_heads is not None else heads)


def fuse_qkv(given: Mapping[str, object]) -> FuseQkvOp:
    """Read ``fuse_qkv``'s arguments."""
    return FuseQkvOp(_read("fuse_qkv", given))


def split_qkv(given: Mapping[str, object]) -> SplitQkvOp:
    """Read ``split_qkv``'s arguments."""
    return SplitQkvOp(_read("split_qkv", given))
