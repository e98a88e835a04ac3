"""Plan -> what the headers of its safetensors files are to be, or why that can't be done in place."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import xxhash

import remap.receipt as receipts
from remap.errors import UsageError
from remap.expr import Take
from remap.formats.index import Index, read_index
from remap.formats.safetensors_header import METADATA
from remap.inplace.undo import VERSION, Change, Header, Text
from remap.plan import Plan
from remap.types import Catalog

Names = Mapping[str, str]
ELSEWHERE = "convert it to another place: remap convert SOURCE DESTINATION"


def change_of(plan: Plan) -> Change:
    """The rename that ``plan`` is. Raises UsageError where it is more than that, or does not fit."""
    catalog = plan.catalog
    _check_format(catalog)
    names = _names(plan)
    files = [f for f in catalog.files if not f.name.endswith(".index.json")]
    _check_alone(files)
    headers, short = {}, []
    for file in files:
        old = _header(file)
        new = _renamed(old, names)
        if len(new) > len(old):
            short.append(f"{file.name}: {len(new)} bytes, {len(old)} are there")
        headers[file.name] = Header(old, new.ljust(len(old)))
    if short:
        raise UsageError(
            "the new names need longer headers than the files have room for",
            problems=short,
            remedy=f"{ELSEWHERE}; what remap writes has room for longer names",
        )
    texts = dict(_texts(plan, names, headers))
    return Change(VERSION, [s.digest for s in plan.steps], headers, texts)


def _check_format(catalog: Catalog) -> None:
    if catalog.format != "safetensors":
        raise UsageError(
            f"only safetensors files are renamed in place, and it is {catalog.format}",
            where=catalog.root,
            remedy=ELSEWHERE,
        )


def _names(plan: Plan) -> dict[str, str]:
    """Old key -> new key. Raises UsageError where tensors are changed, lost or doubled."""
    problems = [f"{d.key}: dropped by {d.rule}" for d in plan.drops]
    names: dict[str, str] = {}
    for output in plan.outputs:
        expr = output.expr
        if not isinstance(expr, Take):
            problems.append(f"{output.key}: made by {output.op} of {', '.join(output.sources)}")
        elif expr.entry.key in names:
            problems.append(f"{output.key}: {expr.entry.key} once more")
        elif output.key == METADATA:
            problems.append(f"{output.key}: safetensors keeps this name for itself")
        else:
            names[expr.entry.key] = output.key
    if problems:
        raise UsageError("in place, keys are renamed and nothing else", problems=problems, remedy=ELSEWHERE)
    if all(old == new for old, new in names.items()):
        raise UsageError("no key is renamed", where=plan.catalog.root)
    return names


def _check_alone(files: list[Path]) -> None:
    """What has several names would change under all of them. Raises UsageError."""
    shared = [f"{f.name}: a link to {f.resolve()}" for f in files if f.is_symlink()]
    shared += [f"{f.name}: it has {f.stat().st_nlink} names" for f in files if f.stat().st_nlink > 1]
    if shared:
        raise UsageError("files are shared with other places", problems=shared, remedy=ELSEWHERE)


def _header(file: Path) -> bytes:
    with file.open("rb") as f:
        return f.read(int.from_bytes(f.read(8), "little"))


def _renamed(header: bytes, names: Names) -> bytes:
    table = {names.get(k, k): v for k, v in json.loads(header).items()}
    return json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()


def _texts(plan: Plan, names: Names, headers: Mapping[str, Header]) -> Iterator[tuple[str, Text]]:
    """The index and the receipt, which name the keys, too."""
    root = plan.catalog.root
    files = {
        n: _file(root.with_name(n), len(h.new).to_bytes(8, "little") + h.new) for n, h in headers.items()
    }
    if root.name.endswith(".index.json"):
        text = Text(root.read_bytes(), _index(read_index(root), names))
        files[root.name] = receipts.File(len(text.new), xxhash.xxh3_128_hexdigest(text.new))
        yield root.name, text
    located = receipts.locate(plan.catalog)
    if located is not None and located[1] == root.parent:
        path = next(p for p in receipts.places(plan.catalog) if p.is_file())
        yield path.name, Text(path.read_bytes(), _receipt(located[0], plan, names, files).encode())


def _file(path: Path, head: bytes) -> receipts.File:
    """What a receipt says of a safetensors file: beside tensors it has its header only."""
    return receipts.File(path.stat().st_size, xxhash.xxh3_128_hexdigest(head))


def _index(index: Index, names: Names) -> bytes:
    document = {
        "metadata": dict(index.metadata),
        "weight_map": {names[k]: file for k, file in index.weight_map.items()},
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _receipt(
    old: receipts.Receipt, plan: Plan, names: Names, files: Mapping[str, receipts.File]
) -> receipts.Receipt:
    """What was written, under its new names: the packs of before, then those of the rename."""
    rules = {o.key: o.rule for o in plan.outputs}
    steps = [receipts.Step(s.pack, s.version, s.digest, s.inverse, dict(s.params)) for s in plan.steps]
    tensors = {names.get(k, k): t for k, t in old.tensors.items()}
    return msgspec.structs.replace(
        old,
        steps=[*old.steps, *steps],
        tensors={k: msgspec.structs.replace(t, rule=rules.get(k, t.rule)) for k, t in tensors.items()},
        files={n: files.get(n, f) for n, f in old.files.items()},
    )
