"""An adapter that was read: its tensors taken apart, its configuration, and what else lies in its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from remap.dialects import registry
from remap.dialects.base import AdapterTensor, to_peft
from remap.expr import Expr, Take
from remap.types import Catalog, TensorSpec


@dataclass(frozen=True)
class Adapter:
    """What ``read`` gives.

    dialect  how its keys are spelled: a name of ``remap.dialects.registry``
    catalog  the checkpoint that it was read from
    config   ``adapter_config.json``, {} where there is none
    tensors  the adapter's, in the order of the file
    base     keys that belong to no adapter: the base's weights, or what nobody knows
    """

    dialect: str
    catalog: Catalog
    config: Mapping[str, object]
    tensors: tuple[AdapterTensor, ...]
    base: tuple[str, ...] = ()

    def spec(self, tensor: AdapterTensor) -> TensorSpec:
        """Type and shape as the file has them."""
        return self.catalog.entries[tensor.key].spec

    def expr(self, tensor: AdapterTensor) -> Expr:
        """Its value as PEFT keeps it: A ``[r, in]``, B ``[out, r]``. Raises UsageError."""
        taken = Take(self.catalog.entries[tensor.key])
        return to_peft(registry.get(self.dialect), tensor.leaf, taken)

    @property
    def modules(self) -> tuple[str, ...]:
        """The base's modules that it changes, in order."""
        return tuple(dict.fromkeys(t.module for t in self.tensors if t.module))

    def of(self, module: str) -> Mapping[str, AdapterTensor]:
        """The tensors of a module by leaf."""
        return self._by_module.get(module, {})

    @cached_property
    def _by_module(self) -> Mapping[str, Mapping[str, AdapterTensor]]:
        found: dict[str, dict[str, AdapterTensor]] = {}
        for t in self.tensors:
            found.setdefault(t.module, {})[t.leaf] = t
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the adapters that are in it."""
        return tuple(dict.fromkeys(t.adapter for t in self.tensors))
