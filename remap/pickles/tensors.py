"""Recognises tensors in a walked pickle: the calls by which torch rebuilds them, by exact name.

Source: torch ``_utils.py`` (``_rebuild_*`` and their arguments), ``_tensor.py``
(``__reduce_ex__``), ``storage.py`` (storage classes), ``serialization.py`` (persistent ids:
``("storage", class, key, location, number of elements)``, with a sixth part before torch 1.6).
"""

from __future__ import annotations

from dataclasses import dataclass

from remap.dtypes import BY_NAME, BY_STORAGE, DType
from remap.errors import Damaged, Hostile, NotACheckpoint
from remap.pickles.nodes import Call, Global, Persistent, Text, Value

REMEDY = "do not load this file; save it again with torch.save, or ask its author for another copy"

STORAGES = {name: t.itemsize for name, t in BY_STORAGE.items()} | {
    "UntypedStorage": 1,
    "QInt8Storage": 1,
    "QUInt8Storage": 1,
    "QInt32Storage": 4,
    "QUInt4x2Storage": 1,
    "QUInt2x4Storage": 1,
}
"""Storage class -> bytes an element."""

_STRIDED = {
    "_rebuild_tensor": 4,
    "_rebuild_tensor_v2": 6,
    "_rebuild_tensor_v3": 7,
    "_rebuild_qtensor": 7,
}
"""Calls with (storage, offset, size, stride, ...) and how many arguments they have at least."""

_WRAPPED = ("_rebuild_parameter", "_rebuild_parameter_with_state")
_OTHER = {
    "_rebuild_sparse_tensor": "sparse",
    "_rebuild_sparse_csr_tensor": "sparse",
    "_rebuild_meta_tensor_no_storage": "on the meta device, without data",
    "_rebuild_nested_tensor": "nested",
    "_rebuild_wrapper_subclass": "of a subclass without data of its own",
    "_rebuild_device_tensor_from_numpy": "from a device that saves NumPy arrays",
    "_rebuild_device_tensor_from_cpu_tensor": "from a device that saves copies",
}
_FOREIGN_DTYPES = {"complex32": 4, "float4_e2m1fn_x2": 1}
"""Element types outside the table, with their size: their bounds are checked all the same."""


@dataclass(frozen=True, slots=True)
class StorageRef:
    """A storage as a pickle names it: key, class, number of elements, bytes."""

    key: str
    cls: str
    numel: int

    @property
    def nbytes(self) -> int:
        return self.numel * STORAGES[self.cls]


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A tensor as a pickle describes it.

    storage  its storage; None where it has none of its own
    offset   of its first element, in elements
    shape    sizes
    strides  in elements
    dtype    None where remap can't read its values; ``kind`` says why
    kind     "" for a plain tensor, else what it is, to complete "the tensor is ..."
    itemsize bytes an element
    """

    storage: StorageRef | None
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType | None
    kind: str = ""
    itemsize: int = 0


def is_tensor_call(call: Call) -> bool:
    """True where the call rebuilds a tensor."""
    f = call.function
    if type(f) is not Global:
        return False
    if f.module == "torch._utils":
        return f.name in _STRIDED or f.name in _WRAPPED or f.name in _OTHER
    return f.module == "torch._tensor" and f.name == "_rebuild_from_type_v2"


def is_wrapper(call: Call) -> bool:
    """True where a tensor call makes a Parameter of another tensor call, its first argument."""
    return type(call.function) is Global and call.function.name in _WRAPPED


def read_tensor(call: Call, where: str) -> TensorRef:
    """What a tensor call describes, bounds checked against the storage it names.

    Raises Hostile where offset, sizes or strides leave the storage, Damaged where arguments lack.
    """
    for _ in range(8):
        name = call.function.name if isinstance(call.function, Global) else ""
        inner: Value = None
        if name in _WRAPPED:
            inner = call.args[0] if call.args else None
        elif name == "_rebuild_from_type_v2":
            inner = _inner_of_type(call)
        elif name in _STRIDED:
            return _strided(name, call.args, where)
        if name in _OTHER:
            return TensorRef(None, 0, (), (), None, _OTHER[name])
        if type(inner) is not Call or not is_tensor_call(inner):
            return TensorRef(
                None, 0, (), (), None, f"rebuilt by {call.name} in a way that remap does not know"
            )
        call = inner
    raise Hostile("a tensor is wrapped in itself", where=where, remedy=REMEDY)


def _inner_of_type(call: Call) -> Value:
    """``_rebuild_from_type_v2(function, type, args, state)`` calls ``function(*args)``."""
    if len(call.args) == 4 and isinstance(call.args[2], tuple):
        return Call("reduce", call.args[0], call.args[2])
    return None


def _strided(name: str, args: tuple[Value, ...], where: str) -> TensorRef:
    if len(args) < _STRIDED[name]:
        raise Damaged(
            f"{name} has {len(args)} arguments, it takes {_STRIDED[name]} or more", where=where, remedy=REMEDY
        )
    stored, offset, size, strides = args[:4]
    if type(stored) is not Persistent:
        raise Hostile(f"{name} of something that is not a storage", where=where, remedy=REMEDY)
    storage = read_storage(stored, where)
    if type(size) is Call and size.is_a("torch", "Size") and len(size.args) == 1:
        size = size.args[0]
    if not isinstance(size, tuple) or not isinstance(strides, tuple) or len(size) != len(strides):
        raise Hostile(
            f"sizes and strides of a tensor over storage {storage.key} don't match",
            where=where,
            remedy=REMEDY,
        )
    dtype, itemsize, kind = _element(name, storage, args)
    _check_bounds(storage, offset, size, strides, itemsize, where)
    assert isinstance(offset, int)
    return TensorRef(storage, offset, _ints(size), _ints(strides), dtype, kind, itemsize)


def _ints(values: tuple[Value, ...]) -> tuple[int, ...]:
    return values  # type: ignore[return-value]  # _check_bounds has seen them


def _element(name: str, storage: StorageRef, args: tuple[Value, ...]) -> tuple[DType | None, int, str]:
    """Element type, its size, and why values can't be read."""
    if name == "_rebuild_qtensor" or storage.cls.startswith("Q"):
        return None, STORAGES[storage.cls], "quantized"
    metadata = args[7] if name == "_rebuild_tensor_v3" and len(args) > 7 else None
    if name == "_rebuild_tensor_v2" and len(args) > 6:
        metadata = args[6]
    if name == "_rebuild_tensor_v3":
        named = args[6]
        if type(named) is not Global or named.module != "torch":
            return None, 1, "of an element type that is not torch's"
        if named.name not in BY_NAME:
            return None, _FOREIGN_DTYPES.get(named.name, 1), f"{named.name}, which remap does not know"
        dtype = BY_NAME[named.name]
    elif storage.cls not in BY_STORAGE:
        return None, STORAGES[storage.cls], "untyped"
    else:
        dtype = BY_STORAGE[storage.cls]
    if metadata is not None and getattr(metadata, "pairs", True):
        return None, dtype.itemsize, "a conjugated or negated view, whose bytes are not its values"
    return dtype, dtype.itemsize, ""


def _check_bounds(
    storage: StorageRef,
    offset: Value,
    size: tuple[Value, ...],
    strides: tuple[Value, ...],
    itemsize: int,
    where: str,
) -> None:
    """Every element lies in the storage. Exact integers: nothing overflows here."""
    last = offset
    empty = False
    for n in (offset, *size, *strides):
        if type(n) is not int or not 0 <= n < 1 << 62:
            raise Hostile(
                f"a tensor over storage {storage.key} has the size, stride or offset {n!r}",
                where=where,
                remedy=REMEDY,
            )
    for n, step in zip(_ints(size), _ints(strides), strict=True):
        empty = empty or n == 0
        last += (n - 1) * step  # type: ignore[operator]  # checked above
    if empty:
        return
    assert isinstance(last, int)
    held = storage.nbytes // itemsize
    if last >= held:
        raise Hostile(
            f"a tensor reaches element {last} of storage {storage.key}, which has {held}",
            where=where,
            remedy=REMEDY,
        )


def read_storage(ref: Persistent, where: str) -> StorageRef:
    """The storage that a persistent id names. Raises Hostile for any other persistent id."""
    pid = ref.id
    if isinstance(pid, tuple) and pid and _text(pid[0]) == "module":
        raise NotACheckpoint(
            "a whole pickled module, with its source code as torch before 1.6 saved it",
            where=where,
            remedy="load it where its class is defined, and torch.save(module.state_dict(), path)",
        )
    if not isinstance(pid, tuple) or len(pid) not in (5, 6) or _text(pid[0]) != "storage":
        raise Hostile("a persistent id that is not a storage", where=where, remedy=REMEDY)
    _, cls, key, location, numel = pid[:5]
    if (
        type(cls) is not Global
        or cls.name not in STORAGES
        or cls.module not in ("torch", "torch.storage", "torch.cuda")
    ):
        raise Hostile("a storage of a class that is not torch's", where=where, remedy=REMEDY)
    if type(key) is not Text or type(location) is not Text:
        raise Hostile("a storage whose key or device is not text", where=where, remedy=REMEDY)
    if type(numel) is not int or not 0 <= numel < 1 << 56:
        raise Hostile(f"storage {key.text} has {numel!r} elements", where=where, remedy=REMEDY)
    if len(pid) == 6 and pid[5] is not None:
        raise Hostile(
            f"storage {key.text} is a view of another, as torch 0.3 wrote them", where=where, remedy=REMEDY
        )
    return StorageRef(key.text, cls.name, numel)


def _text(value: Value) -> str | None:
    return value.text if type(value) is Text else None
