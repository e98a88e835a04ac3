"""Which globals pass, which are listed, and which are refused."""

from __future__ import annotations

import argparse
import collections
import pickle

import pytest

from remap.errors import Hostile
from remap.pickles.screen import is_dangerous, screen
from remap.pickles.walk import walk


def look(data, **options):
    return screen(walk(data, where="x"), where="x", **options)


def test_what_torch_files_hold_passes_unlisted():
    value = [argparse.Namespace(a=1), collections.OrderedDict(a=1), {1, 2}, bytearray(b"x"), complex(1)]
    assert look(pickle.dumps(value, 2)) == ()


def test_unknown_classes_are_listed():
    assert look(b"\x80\x02cmy.config\nTrainConfig\n)\x81.") == ("my.config.TrainConfig",)


REFUSED = {
    "a shell": b"\x80\x02cos\nsystem\n.",
    "a shell, called and thrown away": b"\x80\x02cos\nsystem\nX\x02\0\0\0ls\x85R0N.",
    "Python 2's eval": b"\x80\x02c__builtin__\neval\n.",
    "attributes of an allowed module": b"\x80\x04\x8c\x05torch\x8c\x17serialization.os.system\x93.",
    "dunder": b"\x80\x02cmy.config\n__reduce__\n.",
    "a nested torch file": b"\x80\x02ctorch.storage\n_load_from_bytes\n.",
    "a function of torch": b"\x80\x02ctorch.jit.unsupported_tensor_ops\nexecWrapper\n)R.",
    "an unknown function": b"\x80\x02cmy.tools\nmake_config\n)R.",
    "a function by INST": b"(imy.tools\nmake_config\n.",
    "a function by OBJ": b"(cmy.tools\nmake_config\no.",
    "a homoglyph": "\x80\x02cоs\nsystem\n)R.".encode("latin1", "ignore").replace(b"cs", "cоs".encode()),
    "a module of Python that writes files": b"\x80\x02c_io\nFileIO\n.",
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_is_refused_unless_kept(data):
    with pytest.raises(Hostile, match="do not load it"):
        look(data)
    assert len(look(data, keep_suspicious=True)) == 1


def test_all_are_named_at_once():
    with pytest.raises(Hostile) as e:
        look(b"\x80\x02(cos\nsystem\ncposix\nsystem\nt.")
    assert e.value.problems == ("os.system", "posix.system")


def test_an_unknown_function_that_is_not_called_is_a_name_only():
    assert not is_dangerous("my.tools", "helper", called=False)
    assert is_dangerous("my.tools", "helper", called=True)
    assert not is_dangerous("my.tools", "_Private", called=True)
