"""Reading and writing torch zips; torch itself is the judge of both."""

from __future__ import annotations

import collections
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest
import torch
from formats.torch.samples import assert_same, raw, state_dict, takes, write

from remap.errors import Damaged, Hostile, InputError, NotACheckpoint, UsageError
from remap.expr import Take
from remap.expr.blocks import evaluate
from remap.formats.torch.file import emit, is_torch, read
from remap.pickles.graph import Opaque


def save(value, path: Path, **options) -> Path:
    torch.save(value, path, **options)
    return path


@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
def test_reads_what_torch_saved(tmp_path, protocol):
    tensors = state_dict()
    file = read(save(tensors, tmp_path / "a.pt", pickle_protocol=protocol))
    assert_same({k: evaluate(Take(e)) for k, e in file.entries.items()}, tensors)
    assert file.at == ""
    assert file.tensors == len(set(map(id, tensors.values())))


def test_knows_the_checksum_of_a_whole_record_only(tmp_path):
    path = save(state_dict(), tmp_path / "a.pt")
    entries = read(path).entries
    stored = zipfile.ZipFile(path).getinfo("a/data/0").CRC
    assert entries["wte.weight"].location.crc32 == stored
    assert entries["view.row"].location.crc32 is None


def test_ties_lie_in_one_place(tmp_path):
    entries = read(save(state_dict(), tmp_path / "a.pt")).entries
    assert entries["wte.weight"].location == entries["lm_head.weight"].location


@pytest.mark.parametrize(
    ("value", "at"),
    [
        ({"module": {"w": 1}, "optimizer": {"state": {0: {"exp_avg": 1}}}, "args": None}, "module"),
        ({"model": {"w": 1}, "torch_rng_state": 1}, "model"),
        ({"state_dict": {"w": 1}, "epoch": 3}, "state_dict"),
        ({"model_state_dict": {"w": 1}, "optimizer_state_dict": {"a": 1}}, "model_state_dict"),
        ({"module": {"model": {"w": 1}}}, "module.model"),
        ({"ema": {"w": 1}, "step": 7}, "ema"),
        ({"w": 1, "step": 7}, ""),
    ],
)
def test_finds_the_state_dict(tmp_path, value, at):
    file = read(save(with_tensors(value), tmp_path / "a.pt"))
    assert file.at == at
    assert [raw(evaluate(Take(e))) for e in file.entries.values()] == [raw(torch.ones(2))]


def with_tensors(value):
    """The same nested dicts, with a tensor for each 1."""
    if isinstance(value, dict):
        return {k: with_tensors(v) for k, v in value.items()}
    return torch.ones(2) if value == 1 else value


def test_several_state_dicts_are_named(tmp_path):
    value = {"generator": {"w": torch.ones(2)}, "critic": {"w": torch.ones(3), "v": torch.ones(1)}}
    path = save(value, tmp_path / "a.pt")
    with pytest.raises(UsageError) as e:
        read(path)
    assert "'generator': 1 tensors" in str(e.value)
    assert "'critic': 2 tensors" in str(e.value)
    assert "--at generator" in str(e.value)
    assert list(read(path, at="critic").entries) == ["w", "v"]


def test_at_takes_keys_with_dots(tmp_path):
    path = save({"a.b": {"c": {"w": torch.ones(2)}}, "a": {"w": torch.ones(1)}}, tmp_path / "a.pt")
    assert read(path, at="a.b.c").entries["w"].spec.shape == (2,)
    assert read(path, at="a").entries["w"].spec.shape == (1,)
    with pytest.raises(UsageError, match=r"no 'x'"):
        read(path, at="x")


def test_plain_values_are_read(tmp_path):
    value = {"module": None, "world": 2, "list": [1, (2.5, "x")], "size": torch.Size([3]), "t": torch.ones(1)}
    file = read(save(value, tmp_path / "a.pt"), state_dict=False)
    assert file.keys == ("module", "world", "list", "size", "t")
    assert file.plain("module") is None
    assert file.plain("list") == [1, (2.5, "x")]
    assert file.plain("list", 1, 0) == 2.5
    assert file.plain("size") == (3,)
    assert file.plain("t") == Opaque("tensor")
    with pytest.raises(KeyError, match="missing"):
        file.plain("missing")


def test_a_file_without_tensors_opens_where_that_is_asked(tmp_path):
    path = save({"module": None, "dp_world_size": 4}, tmp_path / "a.pt")
    assert read(path, state_dict=False).entries == {}
    with pytest.raises(NotACheckpoint, match="module, dp_world_size"):
        read(path)


class Config:
    """A class that a loader would import."""


def test_unknown_classes_are_listed_and_not_imported(tmp_path):
    path = save({"w": torch.ones(1), "config": Config()}, tmp_path / "a.pt")
    file = read(path)
    assert file.opaque == (f"{Config.__module__}.Config",)
    assert list(file.entries) == ["w"]


WRONG = {
    "a single tensor": (torch.ones(2), "a single tensor"),
    "a list": ([torch.ones(2)], "a list"),
    "a module": (torch.nn.Linear(2, 2), "a whole pickled module of class torch.nn.modules.linear.Linear"),
    "nothing": ({}, "an empty dict"),
}


@pytest.mark.parametrize(("value", "what"), WRONG.values(), ids=WRONG)
def test_says_what_it_is_instead(tmp_path, value, what):
    with pytest.raises(NotACheckpoint, match=what):
        read(save(value, tmp_path / "a.pt"))


def test_torchscript_says_so(tmp_path):
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / "a.pt")
    with pytest.raises(NotACheckpoint, match="TorchScript"):
        read(tmp_path / "a.pt")


UNREADABLE = {
    "sparse": lambda: torch.eye(2).to_sparse(),
    "meta device": lambda: torch.empty(2, device="meta"),
    "conjugated": lambda: torch.ones(2, dtype=torch.complex64).conj(),
}


@pytest.mark.parametrize(("what", "make"), UNREADABLE.items(), ids=UNREADABLE)
def test_tensors_without_plain_bytes_are_refused(tmp_path, what, make):
    with pytest.raises(InputError, match=rf"(?s)w: the tensor is .*{what}"):
        read(save({"w": make()}, tmp_path / "a.pt"))


def test_a_payload_is_refused_and_nothing_runs(tmp_path):
    class Payload:
        def __reduce__(self):
            return print, ("executed",)

    torch.save({"w": torch.ones(1), "x": Payload()}, tmp_path / "a.pt")
    with pytest.raises(Hostile, match="__builtin__.print"):
        read(tmp_path / "a.pt")
    assert read(tmp_path / "a.pt", keep_suspicious=True).opaque == ("__builtin__.print",)


def test_a_big_endian_file_has_no_readable_values(tmp_path):
    path = save({"w": torch.ones(2)}, tmp_path / "a.pt")
    data = path.read_bytes()
    little, big = b"little", b"big"
    source = zipfile.ZipFile(path)
    with zipfile.ZipFile(tmp_path / "b.pt", "w") as out:
        for info in source.infolist():
            content = source.read(info)
            out.writestr(info.filename, big if content == little else content)
    assert little in data
    file = read(tmp_path / "b.pt")
    assert file.entries["w"].location is None
    assert "big-endian" in file.warnings[0]


@pytest.mark.parametrize("mmap", [False, True])
def test_torch_loads_what_is_emitted(tmp_path, mmap):
    tensors = state_dict()
    source = read(save(tensors, tmp_path / "a.pt"))
    path = write(emit("b.pt", takes(source.entries)), tmp_path / "out")
    loaded = torch.load(path, weights_only=True, mmap=mmap)
    assert isinstance(loaded, collections.OrderedDict)
    assert_same(loaded, tensors)
    assert loaded["wte.weight"].data_ptr() == loaded["lm_head.weight"].data_ptr()
    assert all(t.is_contiguous() for t in loaded.values())


def test_unzip_finds_no_fault_in_what_is_emitted(tmp_path):
    source = read(save(state_dict(), tmp_path / "a.pt"))
    path = write(emit("b.pt", takes(source.entries)), tmp_path / "out")
    assert zipfile.ZipFile(path).testzip() is None
    assert subprocess.run(["unzip", "-tq", path], check=False).returncode == 0


def test_extras_and_nesting_are_emitted(tmp_path):
    source = read(save({"w": torch.ones(2)}, tmp_path / "a.pt"))
    extras = {"module": None, "steps": [1, 2.5, (True, "x")], "big": 2**70}
    path = write(emit("b.pt", {}, extras), tmp_path / "b")
    assert torch.load(path, weights_only=True) == extras
    path = write(emit("c.pt", takes(source.entries), {"epoch": 3}, at="model.inner"), tmp_path / "c")
    loaded = torch.load(path, weights_only=True)
    assert loaded["epoch"] == 3
    assert loaded["model"]["inner"]["w"].tolist() == [1, 1]


def test_emitting_twice_gives_the_same_bytes(tmp_path):
    source = read(save(state_dict(), tmp_path / "a.pt"))
    a, b = (write(emit("b.pt", takes(source.entries)), tmp_path / n).read_bytes() for n in "ab")
    assert a == b


def test_keys_that_utf8_can_not_hold_are_not_emitted(tmp_path):
    source = read(save({"w\ud800": torch.ones(1)}, tmp_path / "a.pt"))
    assert "surrogates" in source.warnings[0]
    with pytest.raises(UsageError, match=r"w\\ud800"):
        emit("b.pt", takes(source.entries))


def test_a_flipped_byte_is_found_when_it_is_read(tmp_path):
    path = save({"w": torch.ones(100)}, tmp_path / "a.pt")
    data = bytearray(path.read_bytes())
    data[read(path).entries["w"].location.offset + 7] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged):
        write(emit("b.pt", takes(read(path).entries)), tmp_path / "out")


def test_recognised_by_content(tmp_path):
    assert is_torch(save({"w": torch.ones(1)}, tmp_path / "no-suffix"))
    (tmp_path / "x.pt").write_bytes(b"not a checkpoint")
    assert not is_torch(tmp_path / "x.pt")
    assert not is_torch(tmp_path)


OTHERS = {
    "safetensors": (b"\x10\0\0\0\0\0\0\0{}" + b" " * 14, "safetensors"),
    "empty": (b"", "empty"),
    "pickle": (b"\x80\x02}.", "plain pickle"),
    "tar": (b"\0" * 257 + b"ustar" + b"\0" * 300, "tar archive"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
}


@pytest.mark.parametrize(("content", "what"), OTHERS.values(), ids=OTHERS)
def test_other_files_are_named(tmp_path, content, what):
    (tmp_path / "x.bin").write_bytes(content)
    with pytest.raises(NotACheckpoint, match=what):
        read(tmp_path / "x.bin")


def test_torch_is_never_imported(tmp_path):
    save(state_dict(), tmp_path / "a.pt")
    code = f"""
        import sys
        from pathlib import Path
        from remap.expr import Take
        from remap.formats.torch.file import emit, read, rewrite
        file = read(Path({str(tmp_path / "a.pt")!r}))
        rewrite(file, "b.pt", {{"bias": "b"}})
        rewrite(file, "b.pt", {{}}, {{"bias"}})
        emit("b.pt", {{k: Take(e) for k, e in file.entries.items()}})
        assert "torch" not in sys.modules and "numpy" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_many_keys_keep_their_order(tmp_path):
    tensors = {f"layers.{i}.weight": torch.zeros(1) for i in range(3000)}
    file = read(save(tensors, tmp_path / "a.pt"))
    assert list(file.entries) == list(tensors)
