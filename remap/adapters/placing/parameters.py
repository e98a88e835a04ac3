"""LoRA on bare parameters: stacked experts that are no modules.

PEFT wraps the module once for each parameter, in the order in which the model has them, and a wrapper keeps
its factors under the module's own name: what was wrapped first lies behind the most ``base_layer``.

    mlp.experts.base_layer.lora_A.weight    gate_up_proj
    mlp.experts.lora_A.weight               down_proj

Source: peft 0.21 ``tuners/tuners_utils.py`` (``_inject_parameters``), ``tuners/lora/layer.py``
(``ParamWrapper``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from remap.dialects.peft_model import INNER
from remap.errors import UsageError

FIRST = ("gate_up", "gate", "up", "w1", "w3")
"""What models have before the projection down; all others follow in the order in which they are given."""


def parameter(targets: Iterable[str], module: str, count: int, known: Callable[[str], bool]) -> str | None:
    """Which parameter the factors at this depth belong to; None for a module's own weight.

    targets  ``target_parameters`` of the configuration: a name alone is any module's
    known    could the module have a parameter of this name?

    Raises UsageError where ``targets`` don't reach so deep.
    """
    heads = [t.rpartition(".") for t in targets]
    own = sorted_names(
        {
            name
            for head, _, name in heads
            if module == head or (head and module.endswith(f".{head}")) or (not head and known(name))
        }
    )
    if not own and not count:
        return None
    if count >= len(own):
        raise UsageError(
            f"its factors are wrapped {count} times, and target_parameters names {len(own)} parameters of it",
            where=module,
        )
    return own[-1 - count]


def wrapped(module: str, name: str, names: Iterable[str]) -> str:
    """Where PEFT keeps the factors of a parameter, ``names`` being all that are targeted in the module."""
    order = sorted_names(names)
    return module + f".{INNER}" * (len(order) - 1 - order.index(name))


def sorted_names(names: Iterable[str]) -> Sequence[str]:
    """In the order of the models: gate and up before down."""

    def place(name: str) -> tuple[int, str]:
        found = next((i for i, first in enumerate(FIRST) if name.startswith(first)), len(FIRST))
        return found, name

    return sorted(names, key=place)
