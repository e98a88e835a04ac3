"""Lays out a DCP folder that ``torch.distributed.checkpoint.load`` reads on any number of ranks.

Every tensor is an archive in ``__{i}_0.distcp``: whole, or cut along its first dimension over as
many files as ranks are asked for, as FSDP2 cuts it. Written from a DCP folder, everything else in
it (optimizer, step, configuration) is carried along, item by item, unopened; the optimizer's state
follows the names of its weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from remap.errors import UsageError
from remap.expr import Expr, Slice, Take
from remap.formats.base import CopiedBytes, Literal, OutFile, Part, Seal, WriteOptions
from remap.formats.dcp.items import Items
from remap.formats.dcp.metadata import Chunk, Item, Metadata, Path_, Tensor
from remap.formats.dcp.optimizer import MODEL, Beside, is_optimizer, nested
from remap.formats.dcp.reader import METADATA, Folder, locate
from remap.formats.dcp.writing.emit import write_metadata
from remap.formats.dcp.writing.follow import Follow
from remap.formats.follow import follow
from remap.formats.index import split_shards
from remap.formats.torch.locate import dotted
from remap.formats.torch.writing.emit import check_names, emit_root
from remap.types import Catalog, Entry


def lay_out(tensors: Mapping[str, Expr], source: Catalog, options: WriteOptions) -> list[OutFile]:
    """The ``.distcp`` files, then ``.metadata``. Raises UsageError."""
    options.refuse_file("DCP needs a folder")
    if options.ranks and options.shard_size:
        raise UsageError(
            "files have a size or one rank's share", remedy="give --ranks or --shard-size, not both"
        )
    check_names(tensors)
    folder = source.native if isinstance(source.native, Folder) else None
    beside = _optimizer(tensors, source) if options.optimizer and folder is None else None
    files = _Files(folder, options, beside)
    everything = {**tensors, **beside.tensors} if beside else tensors
    if options.ranks:
        for key, expr in everything.items():
            files.add(key, expr, _pieces(key, expr, options.ranks))
    else:
        for number, group in enumerate(split_shards(everything, options.shard_size)):
            for key, expr in group.items():
                files.add(key, expr, [_Piece(number, 0, key, expr)])
    files.carry(tensors, optimizer=options.optimizer)
    return files.finish()


def _optimizer(tensors: Mapping[str, Expr], source: Catalog) -> Beside | None:
    """The optimizer's state of a source of another format. Raises UsageError where it can't follow."""
    state = source.optimizer() if source.optimizer else None
    return nested(follow(state, tensors)) if state else None


class _Piece(NamedTuple):
    """Rows of a tensor from ``row`` on, for one file; ``key`` is what the bytes are called in a digest."""

    file: int
    row: int
    key: str
    expr: Expr


def _pieces(key: str, expr: Expr, ranks: int) -> Iterator[_Piece]:
    """A piece a rank, as ``torch.chunk`` cuts; ranks that would get no rows have none."""
    rows = expr.spec.shape[0] if expr.spec.shape else 0
    size = -(-rows // ranks)
    if size == rows:  # one rank, one row, or none
        yield _Piece(0, 0, key, expr)
        return
    for rank, row in enumerate(range(0, rows, size)):
        stop = min(row + size, rows)
        yield _Piece(rank, row, f"{key}\0{row}", Slice(expr, 0, row, stop))


class _File:
    """One ``.distcp`` file that is being laid out."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._parts: list[Part] = []
        self._seals: list[tuple[int, int, int, Seal]] = []
        self._pos = 0

    def add(self, parts: Sequence[Part], seal: Seal | None = None) -> Item:
        """Append an item. ``seal`` is that of its own archive."""
        start = self._pos
        if seal is not None:
            self._seals.append((len(self._parts), len(parts), start, seal))
        self._parts += parts
        self._pos += sum(p.nbytes for p in parts)
        return Item(self.name, start, self._pos - start)

    def finish(self, carries: bool) -> OutFile:
        """The file; its seal is those of its archives, moved to where they lie."""
        seals = tuple(self._seals)

        def seal(crcs: Sequence[int]) -> list[tuple[int, bytes]]:
            return [
                (start + offset, data)
                for first, count, start, inner in seals
                for offset, data in inner(crcs[first : first + count])
            ]

        return OutFile(self.name, tuple(self._parts), seal if seals else None, carries)


class _Files:
    """All files of the folder, and the metadata that grows with them."""

    def __init__(self, folder: Folder | None, options: WriteOptions, beside: Beside | None) -> None:
        self._folder = folder
        self._beside = beside
        self._ranks = options.ranks
        under = MODEL if beside and options.under is None else options.under
        self._moved = under is not None
        self._place: Path_ = folder.selection.at if folder else ()
        if under is not None:
            self._place = tuple(under.split(".")) if under else ()
        self._files: dict[int, _File] = {}
        self._tensors: dict[str, Tensor] = {}
        self._objects: dict[str, Item] = {}
        self._paths: dict[str, Path_] = {}
        self._carries = folder is not None
        self._left: dict[str, None] = {}

    def _file(self, number: int) -> _File:
        return self._files.setdefault(number, _File(f"__{number}_0.distcp"))

    def add(self, key: str, expr: Expr, pieces: Iterable[_Piece]) -> None:
        """A tensor, in pieces along its first dimension."""
        path = self._beside.paths.get(key) if self._beside else None
        name = dotted(path or (*self._place, key))
        self._tensors[name] = Tensor(expr.spec.dtype, expr.spec.shape, tuple(self._chunks(pieces)))
        self._paths[name] = path or self._path(name, key)

    def _chunks(self, pieces: Iterable[_Piece]) -> Iterator[Chunk]:
        for piece in pieces:
            item = self._file(piece.file).add(*_archive(piece.key, piece.expr))
            sizes = piece.expr.spec.shape
            yield Chunk((piece.row, *(0,) * (len(sizes) - 1)) if sizes else (), sizes, item)

    def _path(self, name: str, key: str) -> Path_:
        """The path of a tensor: as it was, else a key of the innermost dict whose name it begins with."""
        if self._folder is None or self._moved:
            return (*self._place, key)
        paths = self._folder.metadata.paths
        if name in paths:
            return paths[name]
        within = {p[:-1] for p in paths.values()}
        outer = max((p for p in within if name.startswith(f"{dotted(p)}.")), key=len, default=())
        return (*outer, name[len(dotted(outer)) + 1 :] if outer else name)

    def carry(self, tensors: Mapping[str, Expr], *, optimizer: bool) -> None:
        """What the source holds beside the tensors: copied, a file of the source is a file of the output;
        over ranks its tensors, moments, are cut as weights are."""
        if self._beside:
            self._put(self._beside)
        if self._folder is None:
            return
        metadata, selection = self._folder.metadata, self._folder.selection
        follow = Follow(selection.names, tensors)
        chosen = set(selection.names.values())
        numbers: dict[str, int] = {}
        taken = []
        for old, path in metadata.paths.items():
            if old in chosen:
                continue
            if not optimizer and is_optimizer(path):
                self._left[dotted(path[:1])] = None
                continue
            path = follow.path(path)
            name = dotted(path) if path != metadata.paths[old] else old
            if name in self._paths:
                taken.append(name)
            self._paths[name] = path
            if old in metadata.tensors:
                tensor = metadata.tensors[old]
                chunks = self._chunks(self._recut(old)) if self._ranks else self._copied(tensor, numbers)
                self._tensors[name] = Tensor(tensor.dtype, tensor.shape, tuple(chunks))
            elif follow.lists(path):
                value = follow.names(self._read(old))
                self._objects[name] = self._file(0).add(*_object_archive(name, value))
            else:
                self._objects[name] = self._copy(metadata.objects[old], numbers)
        if taken:
            raise UsageError("these names are taken by what else the folder holds", problems=sorted(taken))
        follow.check()

    def _put(self, beside: Beside) -> None:
        """Write the plain values of what came from another format."""
        for name, value in beside.objects.items():
            self._paths[name] = beside.paths[name]
            self._objects[name] = self._file(0).add(*_object_archive(name, value))

    def _read(self, name: str) -> object:
        assert self._folder is not None
        with Items(self._folder.path) as items:
            return items.value(self._folder.metadata.objects[name], name)

    def _recut(self, name: str) -> Iterable[_Piece]:
        assert self._folder is not None
        assert self._ranks
        with Items(self._folder.path) as items:
            found = locate(self._folder.path, name, self._folder.metadata.tensors[name], items)
        return _pieces(name, Take(Entry(name, *found)), self._ranks)

    def _copied(self, tensor: Tensor, numbers: dict[str, int]) -> Iterator[Chunk]:
        return (Chunk(c.offsets, c.sizes, self._copy(c.item, numbers)) for c in tensor.chunks)

    def _copy(self, item: Item, numbers: dict[str, int]) -> Item:
        assert self._folder is not None
        number = numbers.setdefault(
            item.file, len(numbers) % self._ranks if self._ranks else len(self._files)
        )
        return self._file(number).add([CopiedBytes(self._folder.path / item.file, item.offset, item.nbytes)])

    def finish(self) -> list[OutFile]:
        """All files; ``.metadata`` is the last."""
        metadata = write_metadata(Metadata(self._tensors, self._objects, self._paths))
        files = [f.finish(self._carries) for f in self._files.values()]
        kept = (self._beside.name,) if self._beside else ()
        return [*files, OutFile(METADATA, (Literal(metadata),), left=tuple(self._left), kept=kept)]


def _archive(key: str, expr: Expr) -> tuple[Sequence[Part], Seal | None]:
    """The archive that ``torch.save`` would write of one tensor."""
    out = emit_root(key, {key: expr}, lambda nodes: nodes[key])
    return out.parts, out.seal


def _object_archive(name: str, value: object) -> tuple[Sequence[Part], Seal | None]:
    """The archive that ``torch.save`` would write of a plain value."""
    out = emit_root(name, {}, lambda _: value)
    return out.parts, out.seal
