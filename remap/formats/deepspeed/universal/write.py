"""Lays out a universal checkpoint: a folder for every weight, with its moments.

In: tensors by key, and the catalog that they come from: of a ZeRO run, of another universal checkpoint, or of
any that knows its optimizer's state by weight. Out: files that ZeRO-1, 2 and 3 load, on any number of ranks.
What a run's model files hold beside weights comes along; the weights in 16 bits do not: DeepSpeed makes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePosixPath

from remap.dtypes import BY_NAME
from remap.errors import UsageError
from remap.expr import Constant, Expr, Take, is_expr, takes
from remap.formats.base import Literal, OutFile, WriteOptions
from remap.formats.deepspeed.likeness import is_step
from remap.formats.deepspeed.names import step_name
from remap.formats.deepspeed.pipeline import STEP as FIRST
from remap.formats.deepspeed.universal.folder import (
    LATEST_UNIVERSAL,
    PARAM,
    STATE_FILE,
    WEIGHT,
    ZERO_FOLDER,
)
from remap.formats.deepspeed.universal.models import model_files
from remap.formats.deepspeed.universal.native import STEP, Universal
from remap.formats.deepspeed.universal.ranks import CAT_DIM, in_parts, said_of
from remap.formats.deepspeed.universal.state import state_file
from remap.formats.deepspeed.zero.overlay import OPTIMIZER, TIED, keys_of
from remap.formats.deepspeed.zero.run import ZERO, Run
from remap.formats.follow import Followed, follow
from remap.formats.torch.writing.emit import emit_root
from remap.partitions.base import Partition
from remap.pickles.emit import NewTensor
from remap.types import Catalog, OptimizerState, TensorSpec

NO_STATE = Followed(OPTIMIZER, {}, {}, (), {})


def lay_out(
    tensors: Mapping[str, Expr],
    classes: Mapping[str, Partition],
    ranks: Sequence[Mapping[str, Expr]],
    source: Catalog,
    options: WriteOptions,
) -> list[OutFile]:
    """Every weight's files, the model files, and ``latest_universal`` last; see ``base.Undivided``. Raises
    UsageError."""
    options.refuse_file("this is a folder")
    native = source.native
    if isinstance(native, Run) and native.stage < 3 and source.at != ZERO:
        raise UsageError(
            "fp32 weights are wanted, and these are those that the model was trained with",
            where=source.root,
            remedy="take ZeRO's: --weights zero",
        )
    state = source.optimizer() if options.optimizer and source.optimizer else None
    followed = follow(state, tensors) if state else NO_STATE
    _check_wide(followed, tensors)
    step = step_name(options.tag, source.root.name if _of_deepspeed(source) else FIRST)
    names = folder_names(tensors, source)
    zero = f"{step}/{ZERO_FOLDER}"
    files: list[OutFile] = []
    for key, expr in tensors.items():
        beside = _beside(key, expr, followed)
        cls = classes.get(key)
        said = said_of(key, cls, expr.spec, len(ranks)) if cls else _as_before(expr, source, beside)
        files += _weight(f"{zero}/{names[key]}", key, expr, beside, said)
    files.append(state_file(f"{zero}/{STATE_FILE}", followed, native, names))
    files += model_files(step, ranks, source, options.stages)
    latest = OutFile(LATEST_UNIVERSAL, (Literal(step.encode()),), kept=tuple(_kept(source, state)))
    return [*files, latest]


def _kept(source: Catalog, state: OptimizerState | None) -> Iterator[str]:
    """What comes along: of DeepSpeed's own everything but a state that is not wanted, of others the state."""
    if _of_deepspeed(source):
        yield from (n for n in source.extras if n != OPTIMIZER)
    if state is not None:
        yield state.name


def _of_deepspeed(source: Catalog) -> bool:
    """Is it a step folder, of which everything comes along?"""
    return isinstance(source.native, Universal) or is_step(source)


def _check_wide(state: Followed, tensors: Mapping[str, Expr]) -> None:
    narrow = [f"{k}: {tensors[k].spec}" for k in state.tensors if tensors[k].spec.dtype != BY_NAME["float32"]]
    if narrow:
        raise UsageError(
            "weights that are trained are kept in 32 bits here",
            problems=narrow,
            remedy="leave out --dtype; the engine casts them as its configuration says",
        )


def folder_names(tensors: Mapping[str, Expr], source: Catalog) -> dict[str, str]:
    """Key -> name of the weight's folder: the key, but for what pipeline stages share. Raises UsageError."""
    special = _special(source)
    names = {}
    for key, expr in tensors.items():
        shared = special.get(expr.entry.key) if isinstance(expr, Take) else None
        tied = TIED.fullmatch(shared) if shared else None
        names[key] = f"{shared[: -len(tied['rest'])]}{key.partition('.')[2]}" if shared and tied else key
    wrong = [n for n in names.values() if PurePosixPath(n).name != n or "\0" in n or len(n.encode()) > 255]
    if wrong:
        raise UsageError("these keys are no names for folders", problems=wrong)
    return names


def _special(source: Catalog) -> dict[str, str]:
    """Key of the source -> the optimizer's name of the weight, where they differ."""
    native = source.native
    if isinstance(native, Run):
        tables = source.ranks or (source.entries,)
        found = {key: name for name, key in keys_of(native.of_rank(0, len(tables)), tables[0]).items()}
    elif isinstance(native, Universal):
        found = {key: folder.name for key, folder in native.weights.items()}
    else:
        found = {}
    return {k: n for k, n in found.items() if k != n}


def _beside(key: str, expr: Expr, state: Followed) -> Mapping[str, object]:
    """Slot -> moment, or step. A weight that no source has begins with moments of zero, at the others' step:
    the weights of a group have one step."""
    held: Mapping[str, object] = {**state.values.get(key, {}), **state.tensors.get(key, {})}
    odd = [s for s, v in held.items() if s != STEP and not is_expr(v)]
    if odd:
        raise UsageError(
            f"the optimizer keeps {', '.join(odd)} of a weight, which is no tensor; it has no place here",
            where=key,
            remedy="leave the optimizer behind with --no-optimizer",
        )
    if held or any(True for _ in takes(expr)) or not state.tensors:
        return held
    first = next(iter(state.tensors))
    like: Mapping[str, object] = {**state.values.get(first, {}), **state.tensors[first]}
    zeros = Constant(TensorSpec(BY_NAME["float32"], expr.spec.shape))
    return {s: v if s == STEP else zeros for s, v in like.items()}


def _as_before(expr: Expr, source: Catalog, beside: Mapping[str, object]) -> Mapping[str, object]:
    """What a weight's files say of ranks where its class is not known: what the source's do, if it is only
    renamed, else that one rank has all of it."""
    native = source.native
    found = native.around(expr.entry.key) if isinstance(native, Universal) and isinstance(expr, Take) else {}
    return found or ({CAT_DIM: 0} if beside else {})


def _weight(
    folder: str, key: str, expr: Expr, beside: Mapping[str, object], said: Mapping[str, object]
) -> Iterator[OutFile]:
    """The files of one weight."""
    parts = in_parts(expr, said, moment=False)
    name = key if parts is expr else f"{key} of ranks"  # the digest is that of the whole tensor
    yield _tensor_file(f"{folder}/{WEIGHT}", name, parts, said)
    for slot, value in beside.items():
        file = f"{folder}/{slot}.pt"
        name = f"optimizer.state.{key}.{slot}"
        if slot == STEP and is_expr(value):
            yield _tensor_file(file, name, value, None)
        elif is_expr(value):
            yield _tensor_file(file, name, in_parts(value, said, moment=True), said)
        else:
            yield emit_root(file, {}, partial(_same, value))


def _tensor_file(file: str, name: str, expr: Expr, around: Mapping[str, object] | None) -> OutFile:
    """A tensor in a dict with what is said ``around`` it, or alone."""

    def root(nodes: Mapping[str, NewTensor]) -> object:
        return nodes[name] if around is None else {**around, PARAM: nodes[name]}

    return emit_root(file, {name: expr}, root)


def _same(value: object, _: object) -> object:
    return value
