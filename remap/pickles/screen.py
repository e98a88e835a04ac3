"""Which globals of a pickle are known, which are merely unknown, and which a loader must not call.

remap itself never calls any of them; the screen is a courtesy to whoever loads the file next. It
looks at every global that the stream names, also where the object graph shows no trace of it (a
call whose result is popped). Known are exact names only, never a whole module.
"""

from __future__ import annotations

from remap.dtypes import TABLE
from remap.errors import Hostile
from remap.pickles.nodes import GETATTR
from remap.pickles.tensors import STORAGES
from remap.pickles.walk import Walk

_BUILTINS = ("builtins", "__builtin__")
_REBUILD = (
    "tensor tensor_v2 tensor_v3 parameter parameter_with_state qtensor sparse_tensor sparse_csr_tensor "
    "meta_tensor_no_storage nested_tensor wrapper_subclass device_tensor_from_numpy "
    "device_tensor_from_cpu_tensor"
)
_DTYPES = (
    "complex32 qint8 quint8 qint32 quint4x2 quint2x4 float4_e2m1fn_x2 per_tensor_affine "
    "per_tensor_symmetric per_channel_affine per_channel_symmetric per_channel_affine_float_qparams"
)
_TYPES = "object set frozenset bytearray bytes complex slice range xrange list dict int float str tuple bool"
_NUMPY = ("numpy.core", "numpy._core")
_DISTRIBUTED = {
    "_mesh_layout": "_FlatLayout _MeshLayout",
    "_shard.metadata": "ShardMetadata",
    "_shard.sharded_tensor.api": "ShardedTensor ShardedTensor.ProcessGroupState",
    "_shard.sharded_tensor.metadata": "MEM_FORMAT_ENCODING ShardedTensorMetadata TensorProperties",
    "_shard.sharded_tensor.shard": "Shard",
    "_shard.sharding_spec.api": "EnumerableShardingSpec",
    "_shard.sharding_spec.chunk_sharding_spec": "ChunkShardingSpec",
    "_tensor": "DTensor",
    "_tensor.api": "DTensor",
    "_tensor.placement_types": "DTensorSpec Partial Replicate Shard TensorMeta",
    "checkpoint.filesystem": "_StorageInfo",
    "checkpoint.metadata": "BytesStorageMetadata ChunkStorageMetadata Metadata MetadataIndex StorageMeta "
    "TensorProperties TensorStorageMetadata _MEM_FORMAT_ENCODING",
    "device_mesh": "DeviceMesh",
    "remote_device": "_remote_device",
    "tensor": "DTensor",
    "tensor._dtensor_spec": "DTensorSpec ShardOrderEntry TensorMeta",
    "tensor.placement_types": "Partial Replicate Shard _StridedShard",
}
"""Below torch.distributed: DTensor, ShardedTensor, and what a DCP folder's .metadata is made of."""

KNOWN = frozenset(
    {("torch._utils", f"_rebuild_{x}") for x in _REBUILD.split()}
    | {("torch", t.name) for t in TABLE}
    | {("torch", x) for x in _DTYPES.split()}
    | {(m, x) for m in ("torch", "torch.storage", "torch.cuda") for x in STORAGES}
    | {(m, x) for m in _BUILTINS for x in _TYPES.split()}
    | {(f"torch.distributed.{m}", x) for m, names in _DISTRIBUTED.items() for x in names.split()}
    | {(f"{m}.multiarray", x) for m in _NUMPY for x in ("_reconstruct", "scalar")}
    | {(f"{m}.numeric", "_frombuffer") for m in _NUMPY}
    | {
        ("torch", "Size"),
        ("torch", "Tensor"),
        ("torch", "device"),
        ("torch._tensor", "_rebuild_from_type_v2"),
        ("torch.nn.parameter", "Buffer"),
        ("torch.nn.parameter", "Parameter"),
        ("torch.serialization", "_get_layout"),
        ("torch.storage", "TypedStorage"),
        ("numpy", "dtype"),
        ("numpy", "ndarray"),
        ("_codecs", "encode"),
        ("argparse", "Namespace"),
        ("collections", "Counter"),
        ("collections", "OrderedDict"),
        ("collections", "defaultdict"),
        ("copy_reg", "_reconstructor"),
        ("copyreg", "_reconstructor"),
        ("datetime", "datetime"),
        ("datetime", "timedelta"),
        ("pathlib", "Path"),
        ("pathlib", "PosixPath"),
        ("pathlib", "PurePosixPath"),
        ("pathlib", "WindowsPath"),
    }
)
"""Globals that a torch file may name and a loader may call: they build values and do nothing else."""

_DANGEROUS = """
    os posix nt subprocess sys runpy importlib pty socket shutil ctypes webbrowser pip asyncio commands pdb
    bdb code codeop timeit cProfile profile trace doctest operator _operator functools _functools _pickle
    pickle cPickle marshal dill cloudpickle imaplib smtplib ftplib http urllib urllib2 requests httplib
    multiprocessing signal gc inspect types pkgutil zipimport threading _thread venv ensurepip distutils
    setuptools test idlelib lib2to3 pydoc logging tempfile pathlib io _io platform ssl atexit cffi builtins
    __builtin__
"""
DANGEROUS_MODULES = frozenset(_DANGEROUS.split())
"""Modules of which nothing but KNOWN is let through, called or not."""

DANGEROUS = frozenset(
    {
        ("copyreg", "__newobj__"),
        ("copyreg", "add_extension"),
        ("joblib", "load"),
        ("numpy", "load"),
        ("torch", "load"),
        ("torch.hub", "load"),
        ("torch.jit", "load"),
        ("torch.serialization", "load"),
        ("torch.storage", "_load_from_bytes"),
    }
)
"""Single globals that read files or run code."""


def screen(walked: Walk, *, where: str, keep_suspicious: bool = False) -> tuple[str, ...]:
    """Dotted names of the unknown classes of a pickle, sorted: they are carried along unopened.

    Raises Hostile, naming every global that a loader would call and should not, unless
    ``keep_suspicious``: then those are listed, too.
    """
    named = (g for g in walked.globals if g not in GETATTR or g in walked.called)
    unknown = [g for g in named if g not in KNOWN]
    bad = [".".join(g) for g in unknown if is_dangerous(*g, called=g in walked.called)]
    if bad and not keep_suspicious:
        raise Hostile(
            "loading this file with pickle would call what can run code",
            where=where,
            problems=bad,
            remedy="do not load it, by any means; ask its author for safetensors",
        )
    return tuple(sorted(".".join(g) for g in unknown))


def is_dangerous(module: str, name: str, *, called: bool) -> bool:
    """True for a global outside KNOWN that a loader must not have.

    Known modules and names; names with a dot or dunder, which reach out of the module; and an
    unknown lower-case name that is called: classes have capitals, so it is a function.
    """
    if module.partition(".")[0] in DANGEROUS_MODULES:
        return True
    if (module, name) in DANGEROUS or "." in name or name.startswith("__"):
        return True
    return called and not name.lstrip("_")[:1].isupper()
