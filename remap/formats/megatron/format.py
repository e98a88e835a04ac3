"""The ``megatron`` format: ``model_optim_rng.pt`` of every rank and stage (``names`` draws the folders).

    {"args": Namespace, "checkpoint_version": 3.0, "iteration": 1000, "model": {...}, "optimizer": ...}

The model is a flat dict (Megatron-core) or dicts in dicts (``language_model``, legacy); a key is the path.
Ranks wait to be merged by a layout. An output is made in the likeness of the source's files; what the
optimizer keeps by number does not come along. Source: NVIDIA/Megatron-LM megatron/training/checkpointing.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from remap.errors import Damaged, InputError, UsageError
from remap.expr import Expr
from remap.formats.absent import absent
from remap.formats.base import Literal, OutFile, WriteOptions
from remap.formats.companions import companions, read_config
from remap.formats.megatron.names import (
    FILE,
    RELEASE,
    TRACKER,
    RankFile,
    rank_files,
    rank_folder,
    steps,
    tracker_text,
)
from remap.formats.megatron.stages import divided, joined, keys_at, layer_of
from remap.formats.ranks import catalog_of_ranks, labelled_as
from remap.formats.torch import file as torch_file
from remap.formats.torch.state import TorchFile
from remap.formats.torch.writing.emit import emit, new_tensors
from remap.formats.torch.writing.rebuild import edited, reassemble
from remap.pickles.build import node_of
from remap.pickles.emit import NewTensor
from remap.pickles.graph import attributes, key_of, lookup, mapping_pairs, plain
from remap.pickles.nodes import Dict, Text, Value
from remap.types import Catalog, Entry, rank_key

MODEL = "model"
LEFT = ("optimizer", "opt_param_scheduler")
"""What belongs to one rank of one stage, by number."""
_FLAT = ("encoder", "transformer", "decoder", "query_key_value")
"""Modules under which a legacy model is one flat dict."""


class Megatron:
    """The ``megatron`` format: see the module's docstring."""

    name = "megatron"
    title = "Megatron-LM checkpoint (model_optim_rng.pt)"

    def find(self, path: Path) -> Sequence[Path]:
        """The steps at ``path``: a folder, its tracker, or a file of one."""
        return steps(path)

    def claims(self, root: Path) -> Iterable[Path]:
        """The files of a step."""
        return [f.path for f in rank_files(root)]

    def open(self, path: Path, *, at: str | None = None) -> Catalog:
        """Read every file's pickle. Raises InputError, Damaged for files that do not belong together."""
        files = rank_files(path)
        ranks, stages = _degrees(path, files)
        read = {(f.rank, f.stage): torch_file.read(f.path, state_dict=False) for f in files}
        first = read[0, 0]
        tables = []
        for rank in range(ranks):
            try:
                tables.append(joined([_table(read[rank, s]) for s in range(stages)]))
            except Damaged as e:
                raise Damaged(e.what, where=path, remedy=e.remedy) from None
        catalog = Catalog(
            format=self.name,
            root=path,
            files=tuple(sorted(f.path for f in files)),
            entries={},
            config={**read_config(path.parent), **_args(first)},
            opaque=tuple(sorted({name for f in read.values() for name in f.opaque})),
            extras=tuple(k for k in first.keys if isinstance(k, str) and k != MODEL),
            companions=companions(path.parent),
            peek=first.peek,
        )
        return catalog_of_ranks(tables, catalog)

    def lay_out(self, tensors: Mapping[str, Expr], source: Catalog, options: WriteOptions) -> list[OutFile]:
        """The files of one rank."""
        return self.lay_out_ranks([tensors], source, options)

    def lay_out_ranks(
        self, tables: Sequence[Mapping[str, Expr]], source: Catalog, options: WriteOptions
    ) -> list[OutFile]:
        """A file of every rank and stage, and the tracker last."""
        options.refuse_file("a Megatron checkpoint is a folder")
        mine = source.format == self.name
        held = rank_files(source.root) if mine else []
        was = (max(f.rank for f in held) + 1, max(f.stage for f in held) + 1) if held else (1, 1)
        stages = options.stages or was[1]
        step = source.root.name if mine else RELEASE
        facts = {
            "tensor_model_parallel_size": len(tables),
            "pipeline_model_parallel_size": stages,
            "padded_vocab_size": sum(t[k].spec.shape[0] for t in tables for k in t if _words(k)),
        }
        out: list[OutFile] = []
        for rank, table in enumerate(tables):
            count = len({found[1] for k in table if (found := layer_of(k))})
            for stage, part in enumerate(divided(table, stages)):
                name = f"{step}/{rank_folder(rank, stage, stages)}/{FILE}"
                like = _like(held, rank * was[0] // len(tables), stage * was[1] // stages)
                file = _alike(like, name, part, facts) if like else _fresh(name, part)
                known = keys_at(part, stage, count // stages)
                several = len(tables) > 1
                out.append(
                    labelled_as(file, {k: rank_key(v, rank) if several else v for k, v in known.items()})
                )
        tracker = tracker_text(step).encode()
        left = tuple(n for n in source.extras if n in LEFT) if mine else tuple(source.extras)
        return [*out, OutFile(TRACKER, (Literal(tracker),), left=left)]


FORMAT = Megatron()


def _degrees(path: Path, files: Sequence[RankFile]) -> tuple[int, int]:
    ranks, stages = 1 + max(f.rank for f in files), 1 + max(f.stage for f in files)
    there = {(f.rank, f.stage) for f in files}
    number, first = absent([r * stages + s for r, s in there], ranks * stages)
    missing = [rank_folder(*divmod(n, stages), stages) for n in first]
    if number or len(there) < len(files):
        raise Damaged(
            f"not every one of {ranks} ranks and {stages} stages has a file, or has one only",
            where=path,
            problems=missing,
            remedy="fetch what is missing, or remove what was left of another run",
        )
    return ranks, stages


def _table(file: TorchFile) -> dict[str, Entry]:
    """The tensors of a file, by their paths below ``model``."""
    root = file.contents.walked.root
    found, model = lookup(root, MODEL)
    if not found:
        chunks = [k for k in file.keys if isinstance(k, str) and k.startswith(MODEL)]
        what = (
            "it holds interleaved pieces of stages, which are not read"
            if chunks
            else "there is no model in it"
        )
        raise InputError(what, where=file.path, problems=chunks)
    out: dict[str, Entry] = {}
    todo: list[tuple[tuple[str, ...], Value]] = [((MODEL,), model)]
    while todo:
        place, node = todo.pop(0)
        prefix = ".".join(place[1:])
        for key, entry in file.entries_at(*place).items():
            name = f"{prefix}.{key}" if prefix else key
            out[name] = replace(entry, key=name)
        inner = [
            ((*place, module.text), value)
            for module, value in mapping_pairs(node) or ()
            if type(module) is Text and mapping_pairs(value) is not None
        ]
        todo = [*inner, *todo]
    return out


def _args(file: TorchFile) -> dict[str, object]:
    """The plain values of the Namespace that the run was started with."""
    found, node = lookup(file.contents.walked.root, "args")
    pairs = attributes(node) if found else []
    args = {str(key_of(k)): plain(v) for k, v in pairs if isinstance(plain(v), (bool, int, float, str))}
    if not args.get("group_query_attention"):  # the number is there all the same
        args.pop("num_query_groups", None)
    return args


def _words(key: str) -> bool:
    return key.endswith("embedding.word_embeddings.weight")


def _like(held: Sequence[RankFile], rank: int, stage: int) -> TorchFile | None:
    path = next((f.path for f in held if (f.rank, f.stage) == (rank, stage)), None)
    return torch_file.read(path, state_dict=False) if path else None


def _fresh(name: str, tensors: Mapping[str, Expr]) -> OutFile:
    if any(k.startswith("language_model.") for k in tensors):
        raise UsageError(
            "a legacy model (language_model) is written from a Megatron checkpoint only",
            remedy="take the names of Megatron-core",
        )
    return emit(name, tensors, {"checkpoint_version": 3.0, "iteration": 0}, at=MODEL)


def _alike(file: TorchFile, name: str, tensors: Mapping[str, Expr], facts: Mapping[str, object]) -> OutFile:
    """One file in the likeness of another: its model anew, the facts of its arguments true."""
    contents = file.contents
    nodes, records = new_tensors(tensors, taken=contents.storages)
    keys = {k for k in file.keys if isinstance(k, str)}
    values: dict[tuple[str, ...], Value] = {(n,): None for n in LEFT if n in keys}
    values[MODEL,] = _nested(nodes)
    changed = edited(contents, values)
    found, args = lookup(contents.walked.root, "args")
    state = next((s for s in _states(args) if isinstance(s, Dict)), None) if found else None
    if isinstance(state, Dict):
        pairs = [
            (k, node_of(facts.get(str(key_of(k)), v)) if key_of(k) in facts else v) for k, v in state.pairs
        ]
        changed[id(state)] = Dict(pairs)
    return replace(reassemble(contents, name, changed, records), carries=True)


def _states(node: Value) -> list[Value]:
    steps_of = getattr(node, "steps", None) or ()
    return [v for what, values in steps_of if what == "build" for v in values]


def _nested(nodes: Mapping[str, NewTensor]) -> Dict:
    """The model's dict: flat, but dicts in dicts where it is a legacy one."""
    if not any(k.startswith("language_model.") for k in nodes):
        return Dict([(Text(k), v) for k, v in nodes.items()])
    tree: dict[str, object] = {}
    for key, node in nodes.items():
        *modules, leaf = key.split(".")
        cut = next((i + 1 for i, m in enumerate(modules) if m in _FLAT), len(modules))
        at = tree
        for module in modules[:cut]:
            at = at.setdefault(module, {})  # type: ignore[assignment]
        at[".".join([*modules[cut:], leaf])] = node
    built = node_of(tree)
    assert isinstance(built, Dict)
    return built
