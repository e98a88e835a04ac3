"""URLs on the command line: what can't be read is told, and no secret is."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import save_file

from remap.files import store


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://bob:wr0ng-pass@{host}/private/model.safetensors.index.json", "no permission"),
        ("http://{host}/signed/model.safetensors.index.json?sig=wr0ng-pass", "no permission"),
        ("http://{host}/none.safetensors?sig=wr0ng-pass", "no such file"),
        ("http://bob:wr0ng-pass@127.0.0.1:9/x.safetensors", "can't be read"),
        ("http://bob:wr0ng-pass@{host}/config.json", "key list is empty"),
        ("s3://here/nothing", "no such file"),
        ("s3://there-is-no-bucket/x", "no such file"),
        ("nosuch://bob:wr0ng-pass@host/x", "nosuch"),
        ("s3:///x", "no host or bucket"),
    ],
)
def test_what_cannot_be_read_is_told_without_secrets(url, message, web, s3, remap, monkeypatch):
    monkeypatch.setattr(store, "PAUSES", (0,))
    (web.folder / "config.json").write_text("{}")
    s3.bucket("here")
    ran = remap("inspect", url.format(host=web.host))
    assert ran.code in (2, 3)
    assert message in ran.err
    assert "wr0ng-pass" not in ran.err + ran.out
    assert "Traceback" not in ran.err


def test_a_destination_may_be_a_url(remap, s3, tmp_path, monkeypatch):
    """Nothing is written here under the URL's name."""
    monkeypatch.chdir(tmp_path)
    s3.bucket("made")
    save_file({"a.weight": np.arange(4, dtype=np.float32)}, "model.safetensors")
    assert remap("convert", "model.safetensors", "s3://made/model.safetensors").code == 0
    assert remap("diff", "model.safetensors", "s3://made/model.safetensors").code == 0
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


def test_nothing_is_changed_in_place_in_a_store(remap, s3, tmp_path):
    bucket = s3.bucket("placed")
    save_file({"a.weight": np.arange(4, dtype=np.float32)}, tmp_path / "model.safetensors")
    s3.put(tmp_path, f"{bucket}/in")
    ran = remap("convert", f"{bucket}/in/model.safetensors", "--in-place", "-r", "magma/from-hf")
    assert ran.code == 2
    assert s3.keys("placed") == ["in/model.safetensors"]
