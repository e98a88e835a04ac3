"""Rank files (``mp_rank_XX``) in the likeness of a run's own: its client state comes along, its degrees not.

In: how many ranks and stages there are to be, and the folder that the weights come from. Out: OutFiles with
what DeepSpeed and GPT-NeoX ask for. What belongs to one rank of one stage (optimizer, shapes of parameters)
is carried only where nothing changes: DeepSpeed keeps it by number, and would take it for other weights.
Source: DeepSpeed runtime/engine.py (``_save_checkpoint``), EleutherAI/gpt-neox megatron/checkpointing.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from remap.expr import Expr, Take
from remap.formats.base import OutFile
from remap.formats.deepspeed.degrees import Folder, ranks_of, read_folder
from remap.formats.deepspeed.names import layer_files, rank_files
from remap.formats.deepspeed.neox import args_of
from remap.formats.torch import file as torch_file
from remap.formats.torch.state import TorchFile
from remap.formats.torch.writing.emit import new_tensors
from remap.formats.torch.writing.rebuild import edited, reassemble
from remap.pickles.build import ordered_dict
from remap.pickles.nodes import Value
from remap.types import Catalog

MODULE_ONLY: Mapping[str, object] = {
    "module": None,
    "dp_world_size": 1,
    "mp_world_size": 1,
    "global_steps": 0,
    "global_samples": 0,
    "skipped_steps": 0,
    "iteration": 0,
}
"""What DeepSpeed asks of ``mp_rank_00`` for ``load_checkpoint(load_module_only=True)``, and the step
that GPT-NeoX asks for."""

OF_ONE_RANK = (
    "optimizer",
    "param_shapes",
    "frozen_param_shapes",
    "frozen_param_fragments",
    "shared_params",
    "buffer_names",
)
"""What is true of one rank of one stage only."""

_WORDS = ("0.word_embeddings.weight", "sequential.0.word_embeddings.weight")


def extras_of(first: TorchFile | None) -> tuple[str, ...]:
    """What a rank file holds that a fresh one does not: optimizer, arguments, random states."""
    if first is None:
        return ()
    names = [k for k in first.keys if isinstance(k, str) and k not in MODULE_ONLY]
    return tuple(k for k in names if first.plain(k) not in (None, [], {}))


@dataclass(frozen=True)
class Likeness:
    """The step folder that an output is made of, None where it is of another format.

    kept  are weights, ranks and stages what they were?
    """

    folder: Folder | None
    kept: bool

    def left(self, source: Catalog) -> tuple[str, ...]:
        """Names of what the source has and the output has not."""
        if self.folder is None:
            return tuple(source.extras)
        return () if self.kept else tuple(n for n in source.extras if n in OF_ONE_RANK)


def is_step(source: Catalog) -> bool:
    """Does the catalog come from a step folder of DeepSpeed?"""
    return source.format.startswith("deepspeed") and source.root.is_dir()


def likeness(
    source: Catalog, tables: Sequence[Mapping[str, Expr]], stages: int | None, *, optimizer: bool
) -> Likeness:
    """What an output of ``tables`` takes from its source."""
    if not is_step(source):
        return Likeness(None, kept=False)
    files = rank_files(source.root)
    first = torch_file.read(files[0], state_dict=False) if files else None
    if first is None:
        return Likeness(None, kept=False)
    divided = source.ranks or layer_files(source.root) or _has_module(first)
    ranks = max(len(source.ranks), 1) if divided else ranks_of(first)  # of a universal checkpoint
    folder = read_folder(source.root, ranks, files, first)
    same = stages in (None, folder.pp) and len(tables) == folder.tp
    return Likeness(folder, same and optimizer and _untouched(source, tables))


def _has_module(file: TorchFile) -> bool:
    return "module" in file.keys and file.plain("module") is not None


def _untouched(source: Catalog, tables: Sequence[Mapping[str, Expr]]) -> bool:
    """Are these the tensors of the source, under their names?"""
    held = source.ranks or (source.entries,)
    return len(held) == len(tables) and all(
        {k: e.location for k, e in mine.items()}
        == {k: e.entry.location if isinstance(e, Take) else None for k, e in table.items()}
        for mine, table in zip(held, tables, strict=True)
    )


def rank_files_of(
    step: str,
    like: Likeness,
    tables: Sequence[Mapping[str, Expr]],
    stages: int,
    modules: Sequence[Mapping[str, Expr]] | None = None,
) -> list[OutFile]:
    """``mp_rank_XX`` of every stage and rank; ``modules``: the weights that lie in them, where they do."""
    ranks = len(tables)
    facts = degrees_of(tables, stages)
    if not like.kept:
        facts |= {(name,): None for name in OF_ONE_RANK}
    out: list[OutFile] = []
    read: dict[object, TorchFile] = {}
    for number in range(ranks * stages):
        name = f"{step}/mp_rank_{number:02d}_model_states.pt"
        stage, rank = divmod(number, ranks)
        module = modules[rank] if modules else None
        path = like.folder.like(stage, rank, stages, ranks) if like.folder else None
        if path is None:
            extras = {**MODULE_ONLY, "mp_world_size": ranks * stages}
            if module is not None:
                del extras["module"]
            out.append(
                torch_file.emit(name, module or {}, extras, at="module" if module is not None else None)
            )
            continue
        file = read.setdefault(path, torch_file.read(path, state_dict=False))
        out.append(_alike(file, name, facts, module))
    return out


def degrees_of(tables: Sequence[Mapping[str, Expr]], stages: int) -> dict[tuple[str, ...], object]:
    """What rank files say of ranks and stages, by place: ``tables`` are the ranks' tensors."""
    words = [t[k].spec.shape[0] for t in tables for k in _WORDS if k in t]
    return {
        ("mp_world_size",): len(tables) * stages,
        ("checkpoint_parallel_dimensions", "pp_degree"): stages,
        ("checkpoint_parallel_dimensions", "tp_degree"): len(tables),
        **args_of(len(tables), sum(words) if words else None),
    }


def stated(file: TorchFile, facts: Mapping[tuple[str, ...], object]) -> dict[tuple[str, ...], object]:
    """The facts of which ``file`` says something."""
    return {place: value for place, value in facts.items() if _has(file, place)}


def _alike(
    file: TorchFile, name: str, facts: Mapping[tuple[str, ...], object], module: Mapping[str, Expr] | None
) -> OutFile:
    """One rank file in the likeness of another: facts replaced where they are stated, the module anew."""
    contents = file.contents
    nodes, records = new_tensors(module or {}, taken=contents.storages)
    whole: Value = ordered_dict(dict(nodes)) if module is not None else None
    values: dict[tuple[str, ...], Value] = {(n,): v for n, v in MODULE_ONLY.items() if n not in file.keys}
    values |= stated(file, facts)
    values["module",] = whole
    values["mp_world_size",] = facts["mp_world_size",]
    changed = edited(contents, values)
    return replace(reassemble(contents, name, changed, records), carries=True)


def _has(file: TorchFile, place: tuple[str, ...]) -> bool:
    try:
        file.plain(*place)
    except KeyError:
        return False
    return True
