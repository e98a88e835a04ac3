"""A checkpoint as a lazy mapping: key -> tensor, read when asked for, one at a time.

    ck = remap.open("consolidated.00.pth")
    ck["layers.0.attention.wq.weight"]          # a torch tensor
    ck.numpy("layers.0.attention.wq.weight")    # a NumPy array; torch is not needed
    ck.spec("layers.0.attention.wq.weight")     # f16[4096,4096], from the headers
    model.load_state_dict(ck.state_dict(device="cuda", dtype="bfloat16"))

Opening reads headers only. A tensor that lies in pieces over many files comes back whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from remap.dtypes import weight_dtype
from remap.errors import UsageError
from remap.stream.whole import whole
from remap.types import Catalog, TensorSpec

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

NOT_NUMPY = ("bfloat16", "float8")
"""Beginnings of element types that NumPy does not have."""


class Checkpoint(Mapping[str, "torch.Tensor"]):
    """A checkpoint that was opened: a read-only mapping of key to tensor, in the order of the file.

    catalog  what is known of it without its data: format, files, entries, ties, warnings
    extras   what the files hold beside the tensors (optimizer, step, arguments) by name, as plain
             values; tensors and objects of classes in them are ``Opaque`` markers
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.extras: Mapping[str, object] = _Extras(catalog)

    def __getitem__(self, key: str) -> torch.Tensor:
        """The tensor, on the CPU, of its own memory. Raises KeyError; UsageError where torch is not
        installed or only the key list is known; Damaged where its bytes are not there or are wrong."""
        th = _torch()
        entry = self.catalog.entries[key]
        kind = getattr(th, entry.spec.dtype.name)
        found: torch.Tensor
        if entry.spec.numel == 0:
            found = th.empty(entry.spec.shape, dtype=kind)
        else:
            found = th.frombuffer(whole(entry), dtype=kind).reshape(entry.spec.shape)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.catalog.entries)

    def __len__(self) -> int:
        return len(self.catalog.entries)

    def __contains__(self, key: object) -> bool:
        return key in self.catalog.entries

    def __repr__(self) -> str:
        c = self.catalog
        return f"<Checkpoint {c.root}: {c.format}, {len(self)} tensors, {c.nbytes} bytes>"

    def spec(self, key: str) -> TensorSpec:
        """Element type and shape, from the headers. Raises KeyError."""
        return self.catalog.entries[key].spec

    def numpy(self, key: str) -> NDArray[np.generic]:
        """The tensor as an array of its own memory; torch is not imported. Raises UsageError for types that
        NumPy has not, and as ``[key]`` does."""
        import numpy as np

        entry = self.catalog.entries[key]
        name = entry.spec.dtype.name
        if name.startswith(NOT_NUMPY):
            raise UsageError(
                f"NumPy has no {name}", where=key, remedy="take the torch tensor, checkpoint[key]"
            )
        if entry.spec.numel == 0:
            return np.empty(entry.spec.shape, dtype=name)
        return np.frombuffer(whole(entry), dtype=name).reshape(entry.spec.shape)

    def state_dict(
        self, device: str | torch.device | None = None, dtype: str | torch.dtype | None = None
    ) -> dict[str, torch.Tensor]:
        """All tensors, in memory; tied keys share one tensor.

        device  where they go, each as soon as it is read
        dtype   what floating-point tensors are cast to; the others are left as they are
        """
        th = _torch()
        name = None if dtype is None else weight_dtype(str(dtype)).name
        found: dict[str, torch.Tensor] = {}
        for key, entry in self.catalog.entries.items():
            first = self.catalog.aliases.get(key)
            if first is not None:
                found[key] = found[first]
                continue
            cast = getattr(th, name) if name and entry.spec.dtype.is_float else None
            found[key] = self[key].to(device=device, dtype=cast)
        return found


class _Extras(Mapping[str, object]):
    """What a catalog lists as extras; each is read when asked for."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __getitem__(self, name: str) -> object:
        if name not in self._catalog.extras:
            raise KeyError(name)
        if self._catalog.peek is None:
            raise UsageError(
                f"what {self._catalog.format} files hold beside the tensors is not read", where=name
            )
        return self._catalog.peek(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._catalog.extras)

    def __len__(self) -> int:
        return len(self._catalog.extras)

    def __repr__(self) -> str:
        return f"<extras: {', '.join(self._catalog.extras) or 'none'}>"


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise UsageError(
            "torch is not installed", remedy="install it, or take NumPy arrays, checkpoint.numpy(key)"
        ) from None
    return torch
