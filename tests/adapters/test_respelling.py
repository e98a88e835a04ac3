"""An adapter in other words: the same change of the same base. Values are asymmetric, so that a transposed
factor shows; PEFT judges what it can load."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch
from adapters import bench, models
from safetensors.torch import load_file, save_file

import remap
from remap.adapters.migrating.migrate import migrate
from remap.errors import Damaged, UsageError

DATA = Path(__file__).parent.parent / "data" / "adapters"
SD = json.loads(gzip.decompress((DATA / "sd_unet_lora.json.gz").read_bytes()))
LEAVES = {
    "peft": ("lora_A.weight", "lora_B.weight"),
    "diffusers": ("lora.down.weight", "lora.up.weight"),
    "kohya": ("lora_down.weight", "lora_up.weight"),
}


def unet(dialect: str, folder: Path) -> Path:
    """The LoRA of the UNet in a dialect; values tell the module and the factor."""
    state = {}
    for key, (shape, _) in SD[dialect].items():
        if key.endswith(".alpha"):
            state[key] = torch.tensor(4)
            continue
        leaf = next(n for n in LEAVES[dialect] if key.endswith(n))
        module = key.removesuffix(leaf).replace(".", "_")
        torch.manual_seed(hash_of(module) + LEAVES[dialect].index(leaf))
        state[key] = torch.randn(shape)
    file = folder / f"{dialect}.safetensors"
    save_file(state, file)
    return file


def hash_of(text: str) -> int:
    return sum(ord(c) * 31**i % 1_000_003 for i, c in enumerate(text))


@pytest.mark.parametrize("to", LEAVES)
@pytest.mark.parametrize("source", LEAVES)
def test_stable_diffusion_in_three_dialects(tmp_path: Path, source: str, to: str) -> None:
    """Key for key as diffusers wrote them, kohya's alphas (the rank) included."""
    wanted = unet(to, tmp_path)
    migrate(unet(source, tmp_path), tmp_path / "out.safetensors", to=to)
    assert remap.diff(tmp_path / "out.safetensors", wanted) == []


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.saved(models.neox(), tmp_path_factory.mktemp("base") / "base")


@pytest.mark.parametrize(
    ("method", "through"),
    [
        *(("lora-all", through) for through in ("kohya", "diffusers", "megatron", "magma")),
        *(("patterns", through) for through in ("kohya", "magma")),
        *(("dora", through) for through in ("kohya", "megatron")),
        ("rslora", "kohya"),
    ],
)
def test_there_and_back_peft_gives_the_same_logits(
    base: Path, tmp_path: Path, method: str, through: str
) -> None:
    model = bench.made(models.neox(), bench.METHODS[method], tmp_path / "old")
    there = tmp_path / "there.safetensors"
    if (method, through) == ("dora", "megatron"):
        with pytest.raises(UsageError, match="can't be said in") as refused:
            migrate(tmp_path / "old", there, to=through)
        assert len(refused.value.problems) == 8
        return
    migrate(tmp_path / "old", there, to=through)
    migrate(there, tmp_path / "new", to="peft", base=base)
    again = bench.on(models.neox(), tmp_path / "new")
    torch.testing.assert_close(models.logits(again), models.logits(model))


def test_alpha_is_beside_the_factors_in_the_configuration_or_in_b(tmp_path: Path) -> None:
    a, b = torch.randn(2, 4), torch.randn(6, 2)
    save_file(
        {
            "lora_unet_conv_in.lora_down.weight": a,
            "lora_unet_conv_in.lora_up.weight": b,
            "lora_unet_conv_in.alpha": torch.tensor(1.0),
            "lora_te_text_projection.lora_down.weight": a.clone(),
            "lora_te_text_projection.lora_up.weight": b.clone(),
        },
        tmp_path / "kohya.safetensors",
    )
    _, notes = migrate(tmp_path / "kohya.safetensors", tmp_path / "d.safetensors", to="diffusers")
    assert notes == ("the scale alpha/r is multiplied into lora_B: diffusers files keep no alpha",)
    found = load_file(tmp_path / "d.safetensors")
    assert torch.equal(found["unet.conv_in.lora.up.weight"], b * 0.5)
    assert torch.equal(found["text_encoder.text_projection.lora_linear_layer.up.weight"], b)
    with pytest.raises(UsageError, match=r"2 models \(text_encoder, unet\)"):
        migrate(tmp_path / "kohya.safetensors", tmp_path / "folder", to="peft")


def test_a_whole_alpha_is_int64_as_torch_makes_it(tmp_path: Path) -> None:
    save_file(
        {"q.lora_A.weight": torch.ones(2, 4), "q.lora_B.weight": torch.ones(4, 2)}, tmp_path / "p.safetensors"
    )
    migrate(tmp_path / "p.safetensors", tmp_path / "k.safetensors", to="kohya", component="unet")
    found = load_file(tmp_path / "k.safetensors")
    assert set(found) == {f"lora_unet_q.{n}" for n in ("lora_down.weight", "lora_up.weight", "alpha")}
    assert found["lora_unet_q.alpha"].dtype == torch.int64
    assert found["lora_unet_q.alpha"].item() == 2


def test_flattened_names_are_looked_up_or_refused(tmp_path: Path) -> None:
    names = ("a_b_c", "lora_unet_conv_in")
    save_file(
        {f"{n}.lora_{x}.weight": torch.ones(2, 2) for n in names for x in ("down", "up")},
        tmp_path / "k.safetensors",
    )
    for keys, said in (
        (None, ("a_b_c: no module is called that",)),
        (["conv.in.weight"], ("a_b_c: no module is called that",)),
        (["a.b_c.weight", "a_b.c.weight", "conv.in.weight"], ("a_b_c: a.b_c, a_b.c",)),
        (["a.b.c.weight", "conv_in.weight", "conv.in.weight"], ("lora_unet_conv_in: conv.in, conv_in",)),
    ):
        listed = tmp_path / "base.json"
        listed.write_text(json.dumps({k: [[2, 2], "float32"] for k in keys or []}))
        with pytest.raises(UsageError, match="underscores where the modules have dots") as refused:
            migrate(tmp_path / "k.safetensors", tmp_path / "o.safetensors", to="peft", base=keys and listed)
        assert refused.value.problems == said
    listed.write_text(json.dumps({k: [[2, 2], "float32"] for k in ("a.b_c.weight", "conv_in.weight")}))
    migrate(tmp_path / "k.safetensors", tmp_path / "o.safetensors", to="peft", base=listed)
    assert {k.partition(".lora")[0] for k in load_file(tmp_path / "o.safetensors")} == {
        "a.b_c",
        "unet.conv_in",
    }


def test_dora_s_lengths_are_reshaped_or_refused(tmp_path: Path) -> None:
    def kohya(shape: tuple[int, int]) -> Path:
        state = {
            "lora_unet_conv_in.dora_scale": torch.arange(4.0).reshape(shape),
            "lora_unet_conv_in.lora_down.weight": torch.ones(2, 4),
            "lora_unet_conv_in.lora_up.weight": torch.ones(4, 2),
        }
        save_file(state, tmp_path / "k.safetensors")
        return tmp_path / "k.safetensors"

    migrate(kohya((4, 1)), tmp_path / "p.safetensors", to="peft")
    found = load_file(tmp_path / "p.safetensors")
    assert torch.equal(found["unet.conv_in.lora_magnitude_vector"], torch.arange(4.0))
    with pytest.raises(UsageError, match="not one norm for each output"):
        migrate(kohya((1, 4)), tmp_path / "q.safetensors", to="peft")


def test_a_leaf_that_nobody_knows_is_not_left_out(tmp_path: Path) -> None:
    state = {f"lora_unet_conv_in.lora_{x}.weight": torch.ones(2, 2) for x in ("down", "up")}
    save_file({**state, "lora_unet_conv_in.bias_diff": torch.ones(2)}, tmp_path / "k.safetensors")
    with pytest.raises(UsageError, match="1 tensors .* are no kohya adapter's") as refused:
        migrate(tmp_path / "k.safetensors", tmp_path / "p.safetensors", to="peft")
    assert refused.value.problems == ("lora_unet_conv_in.bias_diff",)
    receipt, _ = migrate(tmp_path / "k.safetensors", tmp_path / "p.safetensors", to="peft", others="drop")
    assert [(d.key, d.because) for d in receipt.drops] == [
        ("lora_unet_conv_in.bias_diff", "it is no adapter's")
    ]


def test_transposed_factors_of_mlx_are_turned(tmp_path: Path) -> None:
    """Rank and size agree, so no shape can show it."""
    a, b = torch.arange(16.0).reshape(4, 4), torch.arange(16.0, 32).reshape(4, 4)
    save_file({"q.lora_a": a, "q.lora_b": b}, tmp_path / "mlx.safetensors")
    migrate(tmp_path / "mlx.safetensors", tmp_path / "p.safetensors", to="peft")
    found = load_file(tmp_path / "p.safetensors")
    assert torch.equal(found["q.lora_A.weight"], a.T)
    assert torch.equal(found["q.lora_B.weight"], b.T)


def test_megatron_s_fused_rows_stay_in_order(tmp_path: Path) -> None:
    """Words are changed, never the order of rows: that is a pack's business."""
    b = torch.arange(8.0).reshape(4, 2)  # gate 0, gate 1, up 0, up 1
    state = {
        "l.linear_fc1.adapter.linear_in.weight": torch.ones(2, 3),
        "l.linear_fc1.adapter.linear_out.weight": b,
    }
    save_file(state, tmp_path / "m.safetensors")
    migrate(tmp_path / "m.safetensors", tmp_path / "p.safetensors", to="peft")
    assert torch.equal(load_file(tmp_path / "p.safetensors")["l.linear_fc1.lora_B.weight"], b)


def test_half_an_adapter_is_refused(tmp_path: Path) -> None:
    save_file(
        {"q.lora_A.weight": torch.ones(2, 4), "q.lora_B.weight": torch.ones(0)}, tmp_path / "a.safetensors"
    )
    with pytest.raises(Damaged, match="not whole") as refused:
        migrate(tmp_path / "a.safetensors", tmp_path / "out.safetensors", to="kohya")
    assert "its shape is [0]" in refused.value.problems[0]


def test_the_source_is_left_as_it_was(tmp_path: Path) -> None:
    file = unet("kohya", tmp_path)
    catalog = remap.open(file).catalog
    entries = dict(catalog.entries)
    for name in ("once", "twice"):
        migrate(catalog, tmp_path / f"{name}.safetensors", to="peft")
    assert list(catalog.entries.items()) == list(entries.items())
    assert remap.diff(tmp_path / "once.safetensors", tmp_path / "twice.safetensors") == []
