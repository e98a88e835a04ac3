"""MAGMA's language model with a pipeline's names, in one process: what ``magma/from-hf`` gives fits it."""

from __future__ import annotations

from pathlib import Path

import torch
from judges.neox_pipeline import Embedding, FinalLinear, FinalNorm, TransformerLayer
from torch import nn

LAYERS = 4


def build(*, adapters: bool = True, tied: bool = False) -> nn.ModuleDict:
    """Layers by number: 0, 2 to 5, 7, 8; 1 and 6 are functions."""
    model = nn.ModuleDict({"0": Embedding()})
    model.update({str(2 + i): TransformerLayer(adapters) for i in range(LAYERS)})
    model.update({"7": FinalNorm(), "8": FinalLinear()})
    if tied:
        model["8"].final_linear.weight = model["0"].word_embeddings.weight
    return model


def expected(pythia: Path) -> dict[str, torch.Tensor]:
    """What the model must hold after loading, worked out without remap."""
    from judges.test_deepspeed_pipeline import as_magma, read_tensors  # transformers takes seconds

    return as_magma(read_tensors(pythia), LAYERS)


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    """A copy of the model's state."""
    return {k: v.clone() for k, v in model.state_dict().items()}


def departures(model: nn.Module, wanted: dict[str, torch.Tensor]) -> list[str]:
    """Keys of ``wanted`` that the model does not hold, bit by bit."""
    held = model.state_dict()
    return [k for k, v in wanted.items() if k not in held or held[k].dtype != v.dtype or not held[k].equal(v)]
