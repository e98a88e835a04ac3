"""What a dialect gives: the parts of a key, and the way back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from remap.expr import Expr


@dataclass(frozen=True, slots=True)
class AdapterTensor:
    """A tensor of an adapter, its key taken apart.

    key      as it stands in the file
    module   dotted path of the base's module: ``gpt_neox.layers.0.attention.query_key_value``; empty for
             what belongs to no module (``prompt_embeddings``, VeRA's projections). A dialect that flattens
             paths (kohya) gives them flattened: ``down_blocks_0_attn1_to_k``
    leaf     what it is, in PEFT's words: ``lora_A.weight``, ``lora_magnitude_vector``,
             ``modules_to_save.weight``; ``alpha`` where a file keeps it beside the factors
    adapter  the adapter's name, ``default`` where the file has none
    wrapper  what stands before the module's path: ``base_model.model``, ``lora_unet``; often empty
    """

    key: str
    module: str
    leaf: str
    adapter: str = "default"
    wrapper: str = ""


class Dialect(Protocol):
    """One way to spell an adapter's tensors. A module of ``remap.dialects`` provides it as DIALECT."""

    name: str
    title: str
    method: str  # what its adapters are: ``lora``, ``bottleneck``, ``any`` (PEFT knows many)

    def parse(self, key: str) -> AdapterTensor | None:
        """The parts of a key; None for a key that is no adapter's in this dialect."""
        ...

    def spell(self, tensor: AdapterTensor) -> str:
        """The key of a tensor in this dialect; ``tensor.key`` plays no part. Raises UsageError for a leaf
        that the dialect has no word for."""
        ...


@runtime_checkable
class Turns(Protocol):
    """A dialect whose values lie otherwise than PEFT's."""

    def to_peft(self, leaf: str, value: Expr) -> Expr:
        """A tensor of this dialect as PEFT keeps it; ``leaf`` in PEFT's words. Raises UsageError."""
        ...

    def from_peft(self, leaf: str, value: Expr) -> Expr:
        """The way back."""
        ...


def to_peft(dialect: Dialect, leaf: str, value: Expr) -> Expr:
    """A dialect's tensor as PEFT keeps it: itself, but for those that turn it."""
    return dialect.to_peft(leaf, value) if isinstance(dialect, Turns) else value


def from_peft(dialect: Dialect, leaf: str, value: Expr) -> Expr:
    """PEFT's tensor as the dialect keeps it."""
    return dialect.from_peft(leaf, value) if isinstance(dialect, Turns) else value


@runtime_checkable
class Wraps(Protocol):
    """A dialect of adapters that lie in a model, beside its weights, whose names the adapters changed."""

    def around(
        self, tensors: Iterable[AdapterTensor], keys: Iterable[str] = ()
    ) -> Mapping[str, tuple[str, ...]]:
        """Module -> the segments that its adapter puts between it and its own weights, ``("base_layer",)``;
        ``""`` -> what stands before every key: see ``remap.dialects.wrapping``.

        keys  all that the model has, where it is at hand
        """
        ...
