"""The one table of element types: torch's name, size, and what each format calls it.

Nothing here needs torch. Names are torch's own (``float16``); ``f16`` and the like are
accepted where people write specs by hand (pack examples, ``--dtype``).

Sources: safetensors ``tensor.rs`` (codes), torch ``storage.py`` (legacy storage classes; types
without one are saved as ``UntypedStorage`` by ``_rebuild_tensor_v3``).
"""

from __future__ import annotations

from dataclasses import dataclass

from remap.errors import UsageError


@dataclass(frozen=True, slots=True)
class DType:
    """One element type.

    name         torch's name, without ``torch.``
    itemsize     bytes an element
    short        the name in hand-written specs
    safetensors  the code in a safetensors header, None where the format has none
    storage      the legacy storage class in a torch pickle, None where torch 1.x had none
    """

    name: str
    itemsize: int
    short: str
    safetensors: str | None
    storage: str | None

    @property
    def is_float(self) -> bool:
        """True for the types that can hold weights; ``float8_e8m0fnu`` holds scales, without sign."""
        return self.name.startswith(("float", "bfloat")) and self.name != "float8_e8m0fnu"

    def holds(self, value: float) -> bool:
        """Is it one of its numbers, but for a rounding?"""
        if self.name == "float8_e8m0fnu":
            return 0 < value <= LARGEST[self.name]
        if self.name in LARGEST:
            return abs(value) <= LARGEST[self.name]
        if self.name == "bool":
            return value in (0, 1)
        signed = self.name.startswith("int")
        bits = 8 * self.itemsize - signed
        return value == int(value) and (-(2**bits) if signed else 0) <= value < 2**bits


LARGEST = {
    "float64": 1.7976931348623157e308,
    "float32": 3.4028234663852886e38,
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float8_e4m3fn": 448.0,
    "float8_e5m2": 57344.0,
    "float8_e4m3fnuz": 240.0,
    "float8_e5m2fnuz": 57344.0,
    "float8_e8m0fnu": 2.0**127,
    "complex64": 3.4028234663852886e38,
    "complex128": 1.7976931348623157e308,
}
"""The largest number of each type that holds fractions (``torch.finfo``)."""


TABLE: tuple[DType, ...] = (
    DType("float64", 8, "f64", "F64", "DoubleStorage"),
    DType("float32", 4, "f32", "F32", "FloatStorage"),
    DType("float16", 2, "f16", "F16", "HalfStorage"),
    DType("bfloat16", 2, "bf16", "BF16", "BFloat16Storage"),
    DType("float8_e4m3fn", 1, "f8_e4m3", "F8_E4M3", None),
    DType("float8_e5m2", 1, "f8_e5m2", "F8_E5M2", None),
    DType("float8_e4m3fnuz", 1, "f8_e4m3fnuz", "F8_E4M3FNUZ", None),
    DType("float8_e5m2fnuz", 1, "f8_e5m2fnuz", "F8_E5M2FNUZ", None),
    DType("float8_e8m0fnu", 1, "f8_e8m0", "F8_E8M0", None),
    DType("int64", 8, "i64", "I64", "LongStorage"),
    DType("int32", 4, "i32", "I32", "IntStorage"),
    DType("int16", 2, "i16", "I16", "ShortStorage"),
    DType("int8", 1, "i8", "I8", "CharStorage"),
    DType("uint64", 8, "u64", "U64", None),
    DType("uint32", 4, "u32", "U32", None),
    DType("uint16", 2, "u16", "U16", None),
    DType("uint8", 1, "u8", "U8", "ByteStorage"),
    DType("bool", 1, "bool", "BOOL", "BoolStorage"),
    DType("complex64", 8, "c64", "C64", "ComplexFloatStorage"),
    DType("complex128", 16, "c128", None, "ComplexDoubleStorage"),
)

BY_NAME = {t.name: t for t in TABLE}
BY_SAFETENSORS = {t.safetensors: t for t in TABLE if t.safetensors}
BY_STORAGE = {t.storage: t for t in TABLE if t.storage}
_SPELLINGS = {s: t for t in TABLE for s in (t.name, t.short, f"torch.{t.name}")} | {
    "half": BY_NAME["float16"],
    "fp16": BY_NAME["float16"],
    "fp32": BY_NAME["float32"],
    "float": BY_NAME["float32"],
    "double": BY_NAME["float64"],
}


def dtype(name: str) -> DType:
    """The type that a person calls ``name``: ``float16``, ``f16``, ``fp16``, ``torch.float16``.

    Raises UsageError, listing what is known.
    """
    found = _SPELLINGS.get(name)
    if found is None:
        raise UsageError(
            f"no element type is called {name!r}",
            remedy=f"use one of {', '.join(t.name for t in TABLE)}",
        )
    return found


def weight_dtype(name: str) -> DType:
    """The type, by what a person calls it, that floating-point tensors are cast to. Raises UsageError for one
    that can't hold weights."""
    found = dtype(name)
    if not found.is_float:
        raise UsageError(
            f"weights are not cast to {found.name}: it has no fractions, or no sign",
            remedy="use float32, bfloat16, float16, or a float8 type",
        )
    return found
