"""watch: every load that is not strict is seen, audited, and nothing stays replaced."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import remap
from remap.errors import AuditFailed, UsageError

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

ORIGINAL = nn.Module.load_state_dict


def linear() -> nn.Linear:
    return nn.Linear(2, 3)


def state(*left_out: str, **more: torch.Tensor) -> dict[str, torch.Tensor]:
    return {k: v for k, v in linear().state_dict().items() if k not in left_out} | more


class TestTorch:
    def test_a_load_that_leaves_a_weight_out_is_named_at_the_end(self) -> None:
        model = linear()
        with pytest.raises(AuditFailed) as failed, remap.watch() as watched:
            model.load_state_dict(state("bias"), strict=False)
            model.load_state_dict(state(), strict=False)
        (bad, good) = watched.reports
        assert bad.counts == {"missing-parameter": 1, "matched": 1}
        assert good.passed
        assert failed.value.reports == (bad, good)
        assert "1 of 2 loads that were not strict" in str(failed.value)
        assert "RM101 missing-parameter: bias" in str(failed.value)
        assert f"{Path(__file__).name}:" in str(failed.value)

    def test_a_policy_lets_it_pass(self, tmp_path: Path) -> None:
        policy = tmp_path / "policy.yaml"
        policy.write_text("policy: 1\nname: ours\nwaivers: [{pattern: bias, reason: zero by design}]\n")
        with remap.watch(policy=policy) as watched:
            linear().load_state_dict(state("bias"), strict=False)
        assert [r.passed for r in watched.reports] == [True]

    def test_it_may_raise_at_the_load(self) -> None:
        after = False
        with pytest.raises(AuditFailed), remap.watch(at_once=True) as watched:
            linear().load_state_dict(state("bias"), strict=False)
            after = True
        assert len(watched.reports) == 1
        assert not after

    def test_what_was_raised_at_the_load_and_caught_there_is_raised_at_the_end(self) -> None:
        with pytest.raises(AuditFailed), remap.watch(at_once=True), suppress(Exception):
            linear().load_state_dict(state("bias"), strict=False)

    def test_one_that_is_never_on_says_so(self) -> None:
        with pytest.warns(UserWarning, match="never on"):
            remap.watch()

    @pytest.mark.parametrize("strict", [True, False])
    def test_a_copy_into_a_model_without_memory_loads_nothing(self, strict: bool) -> None:
        with torch.device("meta"):
            model = linear()
        with pytest.raises(AuditFailed, match="a copy into it does nothing") as failed, remap.watch():
            model.load_state_dict(state(), strict=strict)
        assert failed.value.reports[0].counts == {"zero-overlap": 1, "missing-parameter": 2}

    def test_what_takes_the_place_of_tensors_without_memory_is_loaded(self) -> None:
        with torch.device("meta"):
            model = linear()
        with remap.watch() as watched:
            model.load_state_dict(state(), strict=False, assign=True)
        assert watched.reports[0].counts == {"matched": 2}

    def test_what_a_hook_renames_is_no_finding(self) -> None:
        class Old(nn.Linear):
            def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
                state_dict[prefix + "weight"] = state_dict.pop(prefix + "kernel")
                super()._load_from_state_dict(state_dict, prefix, *rest)

        given = {"kernel": torch.ones(3, 2), "bias": torch.ones(3)}
        with remap.watch() as watched:
            Old(2, 3).load_state_dict(given, strict=False)
        assert watched.reports[0].counts == {"matched": 2}

    def test_a_batch_norm_without_its_counter_says_so(self) -> None:
        given = nn.BatchNorm1d(2).state_dict()
        plain = {k: v for k, v in given.items() if k != "num_batches_tracked"}  # no _metadata: version 1
        with remap.watch() as watched:
            nn.BatchNorm1d(2).load_state_dict(plain, strict=False)
        assert [f.key for f in watched.reports[0].of("missing-buffer")] == ["num_batches_tracked"]

    def test_other_sizes_are_reported_though_torch_raises(self) -> None:
        with pytest.raises(RuntimeError, match="size mismatch"), remap.watch() as watched:
            linear().load_state_dict(state("bias", bias=torch.ones(7)), strict=False)
        assert [f.key for f in watched.reports[0].of("shape-mismatch")] == ["bias"]

    def test_load_into_is_a_strict_load(self, tmp_path: Path) -> None:
        torch.save(nn.BatchNorm1d(2).state_dict(), tmp_path / "m.pt")
        with remap.watch() as watched:
            remap.load_into(nn.BatchNorm1d(2), tmp_path / "m.pt")
        assert (watched.strict, watched.reports) == (1, [])

    def test_strict_loads_are_counted_only(self) -> None:
        with remap.watch() as watched:
            linear().load_state_dict(state())
        assert (watched.strict, watched.reports) == (1, [])

    def test_seeing_nothing_is_an_error(self) -> None:
        with pytest.raises(UsageError, match="nothing was loaded"), remap.watch():
            pass
        with remap.watch(idle=True):
            pass


class TestPatches:
    def test_they_are_undone(self) -> None:
        with remap.watch(idle=True):
            assert nn.Module.load_state_dict is not ORIGINAL
        assert nn.Module.load_state_dict is ORIGINAL

    def test_they_are_undone_after_an_error_which_comes_first(self) -> None:
        with pytest.raises(ZeroDivisionError), remap.watch() as watched:
            linear().load_state_dict(state("bias"), strict=False)
            1 / 0  # noqa: B018
        assert nn.Module.load_state_dict is ORIGINAL
        assert not watched.reports[0].passed

    def test_nested_watches_all_see_a_load_each_with_its_policy(self, tmp_path: Path) -> None:
        policy = tmp_path / "policy.yaml"
        policy.write_text("policy: 1\nname: ours\nlevels: {missing-parameter: allow}\n")
        with pytest.raises(AuditFailed), remap.watch() as outer:
            with remap.watch(policy=policy) as inner:
                linear().load_state_dict(state("bias"), strict=False)
            assert nn.Module.load_state_dict is not ORIGINAL
        assert [r.passed for r in (*inner.reports, *outer.reports)] == [True, False]
        assert nn.Module.load_state_dict is ORIGINAL

    def test_one_watch_is_not_entered_twice(self) -> None:
        watch = remap.watch(idle=True)
        with watch, pytest.raises(UsageError, match="on already"):
            watch.__enter__()
        with watch:  # but again
            linear().load_state_dict(state(), strict=False)
        assert len(watch.reports) == 1

    @pytest.mark.parametrize(("only_this_thread", "seen"), [(False, 1), (True, 0)])
    def test_threads(self, only_this_thread: bool, seen: int) -> None:
        def load() -> None:
            linear().load_state_dict(state(), strict=False)

        with remap.watch(only_this_thread=only_this_thread, idle=True) as watched:
            thread = threading.Thread(target=load)
            thread.start()
            thread.join()
        assert len(watched.reports) == seen

    def test_somebody_elses_patch_is_left_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def theirs(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            return inner(self, *args, **kwargs)

        with remap.watch(idle=True):
            inner = nn.Module.load_state_dict
            monkeypatch.setattr(nn.Module, "load_state_dict", theirs)
        assert nn.Module.load_state_dict is theirs
        linear().load_state_dict(state(), strict=False)  # ours is still beneath it, and does nothing
        monkeypatch.undo()
        nn.Module.load_state_dict = ORIGINAL

    def test_a_library_imported_inside_is_watched(self, tmp_path: Path) -> None:
        """In a process of its own: torch is not there when the watch begins, and the watch imports none."""
        script = tmp_path / "script.py"
        script.write_text(
            """
import sys
import remap

with remap.watch() as watched:
    assert "torch" not in sys.modules
    import torch
    assert "transformers" not in sys.modules and "deepspeed" not in sys.modules
    torch.nn.Linear(2, 3).load_state_dict(torch.nn.Linear(2, 3).state_dict(), strict=False)
assert len(watched.reports) == 1
assert torch.nn.Module.load_state_dict.__module__ == "torch.nn.modules.module"
assert not hasattr(torch.nn.Module.load_state_dict, "__wrapped__")
assert type(torch.nn.modules.module.__loader__).__name__ == "SourceFileLoader"
"""
        )
        done = subprocess.run([sys.executable, script], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


class TestTransformers:
    def test_what_from_pretrained_invents_is_found(self, pythia: Callable[[str], Path]) -> None:
        transformers = pytest.importorskip("transformers")
        with remap.watch() as watched:
            transformers.AutoModelForCausalLM.from_pretrained(pythia("fp32"))
        assert watched.reports[0].passed
        with (
            pytest.raises(AuditFailed, match="RM101 missing-parameter: score.weight"),
            remap.watch() as watched,
        ):
            model = transformers.AutoModelForSequenceClassification.from_pretrained(pythia("fp32"))
        assert type(model).__name__ == "GPTNeoXForSequenceClassification"
        (left,) = watched.reports[0].of("unexpected-parameter")
        assert (left.key, str(left.found)) == ("embed_out.weight", "f32[512,64]")

    def test_a_new_head_passes_its_policy(self, pythia: Callable[[str], Path]) -> None:
        transformers = pytest.importorskip("transformers")
        with remap.watch(policy="finetune-head") as watched:
            model, info = transformers.AutoModelForSequenceClassification.from_pretrained(
                pythia("fp32"), output_loading_info=True
            )
        assert info["missing_keys"] == {"score.weight"}
        assert watched.reports[0].coverage.keys == len(model.state_dict()) - 1

    def test_sizes_that_were_ignored_are_not(self, pythia: Callable[[str], Path]) -> None:
        transformers = pytest.importorskip("transformers")
        with pytest.raises(AuditFailed, match="shape-mismatch"), remap.watch():
            transformers.AutoModelForCausalLM.from_pretrained(
                pythia("fp32"), vocab_size=600, ignore_mismatched_sizes=True
            )


class TestPeft:
    @pytest.fixture
    def parts(self, tmp_path: Path) -> tuple[Any, Path]:
        """PEFT, and the folder of an adapter on the MLP and the head of a small GPT-NeoX."""
        peft = pytest.importorskip("peft")
        from checkpoints import make_model

        config = peft.LoraConfig(r=2, target_modules=["dense_h_to_4h", "lm_head"])
        model = peft.get_peft_model(make_model(), config)
        model.save_pretrained(tmp_path / "adapter", save_embedding_layers=False)
        return peft, tmp_path / "adapter"

    def test_an_adapter_that_fits_passes(self, parts: tuple[Any, Path]) -> None:
        from checkpoints import make_model

        peft, folder = parts
        with remap.watch() as watched:
            peft.PeftModel.from_pretrained(make_model(), folder)
        assert len(watched.reports) == 1
        assert watched.reports[0].counts["matched"] == 10

    def test_a_head_that_is_lost_without_a_word_is_found(self, parts: tuple[Any, Path]) -> None:
        """transformers renamed the head, so an older adapter's is for a module that is called otherwise."""
        from checkpoints import make_model
        from safetensors.torch import load_file, save_file

        peft, folder = parts
        file, config = folder / "adapter_model.safetensors", folder / "adapter_config.json"
        save_file({k.replace(".lm_head.", ".embed_out."): v for k, v in load_file(file).items()}, file)
        config.write_text(config.read_text().replace("lm_head", "embed_out"))
        with pytest.raises(AuditFailed, match="embed_out"), remap.watch() as watched:
            peft.PeftModel.from_pretrained(
                make_model(), folder
            )  # PEFT says nothing: warnings are errors here
        assert [f.key for f in watched.reports[0].of("unexpected-adapter")] == [
            "base_model.model.embed_out.lora_A.weight",
            "base_model.model.embed_out.lora_B.weight",
        ]

    def test_transformers_own_loading_of_adapters_is_two_loads(
        self, parts: tuple[Any, Path], pythia: Callable[[str], Path]
    ) -> None:
        transformers = pytest.importorskip("transformers")
        _, folder = parts
        config = folder / "adapter_config.json"
        values = json.loads(config.read_text()) | {"base_model_name_or_path": str(pythia("fp32"))}
        config.write_text(json.dumps(values))
        with remap.watch(policy="lora") as watched:
            transformers.AutoModelForCausalLM.from_pretrained(folder)
        assert sorted(r.counts["matched"] for r in watched.reports) == [10, 52]

    def test_prompts_are_seen_as_well(self, tmp_path: Path) -> None:
        peft = pytest.importorskip("peft")
        from checkpoints import make_model

        config = peft.PromptTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM")
        peft.get_peft_model(make_model(), config).save_pretrained(tmp_path)
        with remap.watch() as watched:
            peft.PeftModel.from_pretrained(make_model(), tmp_path)
        assert [f.key for f in watched.reports[0].of("matched")] == ["prompt_embeddings"]

    def test_the_function_that_others_imported_is_put_back_everywhere(self) -> None:
        peft = pytest.importorskip("peft.peft_model") and sys.modules["peft"]
        original = peft.set_peft_model_state_dict
        with remap.watch(idle=True):
            assert peft.peft_model.set_peft_model_state_dict is not original
            assert peft.set_peft_model_state_dict is peft.peft_model.set_peft_model_state_dict
        assert peft.peft_model.set_peft_model_state_dict is original
        assert peft.set_peft_model_state_dict is original
