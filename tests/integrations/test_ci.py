"""The action, the hooks and docs/ci.md: what they say is run as they say it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs/ci.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", DOCS, re.MULTILINE | re.DOTALL)
MODEL = "from integrations.magma_model import build\n"

ENVIRONMENT = os.environ | {
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT)]),
}


def shell(text: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """As GitHub runs ``shell: bash``."""
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text]
    return subprocess.run(command, cwd=cwd, env=ENVIRONMENT | more, capture_output=True, text=True)


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCKS if kind == language]


@pytest.fixture(scope="module")
def project(pythia: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project that the docs speak of, its key lists written by the docs' own commands."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "keys").mkdir()
    (folder / "train").mkdir()
    (folder / "train/model.py").write_text(MODEL)
    (folder / "pythia-410m").symlink_to(pythia("fp32"))
    (folder / "audit.yaml").write_text(next(b for b in blocks("yaml") if b.startswith("policy:")))
    done = shell(next(b for b in blocks("sh") if b.startswith("remap keys")), folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def here(project: Path, tmp_path: Path) -> Path:
    """A copy to write into."""
    return Path(shutil.copytree(project, tmp_path / "project", symlinks=True))


class TestDocs:
    @pytest.mark.parametrize("text", [b for b in blocks("sh") if b.startswith("remap audit")])
    def test_its_commands_pass(self, here: Path, text: str) -> None:
        done = shell(text, here)
        assert done.returncode == 0, done.stdout + done.stderr

    def test_the_policy_is_for_just_as_many_adapters(self, here: Path) -> None:
        policy = here / "audit.yaml"
        policy.write_text(policy.read_text().replace("32", "33"))
        text = next(b for b in blocks("sh") if b.startswith("remap audit keys/pythia.json"))
        assert shell(text, here).returncode == 1

    def test_gitlab_s_script_passes_and_leaves_its_reports(self, here: Path) -> None:
        (job,) = (d["remap-audit"] for d in map(yaml.safe_load, blocks("yaml")) if "remap-audit" in d)
        done = shell("\n".join(job["script"]), here)
        assert done.returncode == 0, done.stderr
        assert (here / job["artifacts"]["reports"]["junit"]).read_text().startswith("<?xml")
        assert [p for p in job["artifacts"]["paths"] if not (here / p).is_file()] == []

    def test_its_hooks_are_hooks_and_pass(self, here: Path) -> None:
        (config,) = (d for d in map(yaml.safe_load, blocks("yaml")) if "repos" in d)
        known = {h["id"]: h for h in hooks()}
        used = {h["id"]: h for h in config["repos"][0]["hooks"]}
        assert used.keys() == known.keys()
        audit = [known["remap-audit"]["entry"], *used["remap-audit"]["args"]]
        assert shell(" ".join(audit), here).returncode == 0

    def test_its_job_gives_the_action_what_it_takes(self, here: Path) -> None:
        (workflow,) = (d for d in map(yaml.safe_load, blocks("yaml")) if "jobs" in d)
        (step,) = (s for s in workflow["jobs"]["audit"]["steps"] if s.get("id") == "audit")
        code, outputs, *_ = act(here, **step["with"])
        assert (code, outputs["passed"], outputs["exit-code"]) == (0, "true", "0")

    def test_its_python_is_python(self) -> None:
        for text in blocks("python"):
            compile(text, "docs/ci.md", "exec")


def hooks() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    return found


class TestHooks:
    @pytest.mark.parametrize(("text", "code"), [("", 0), ("  - nonsense: here\n", 2)])
    def test_lint_finds_a_broken_pack(self, tmp_path: Path, text: str, code: int) -> None:
        (hook,) = (h for h in hooks() if h["id"] == "remap-rules-lint")
        pack = tmp_path / "rules/wrap.yaml"
        pack.parent.mkdir()
        pack.write_text((ROOT / "rules/magma/wrap-adapters.yaml").read_text() + text)
        assert re.search(hook["files"], "rules/wrap.yaml")
        assert not re.search(hook["files"], "my_rules/wrap.yaml")
        done = shell(f"{hook['entry']} {shlex.quote(str(pack))}", tmp_path)
        assert done.returncode == code, done.stdout + done.stderr


def act(cwd: Path, **given: str) -> tuple[int, dict[str, str], str, str]:
    """Run the action's steps as GitHub would, but for pip. Exit code, outputs, log, summary."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    assert given.keys() <= action["inputs"].keys()
    values = {k: i.get("default", "") for k, i in action["inputs"].items()} | given | {"install": "no"}
    assert not [k for k, i in action["inputs"].items() if i.get("required") and k not in given]
    output, summary = cwd / "output", cwd / "summary"
    output.touch()
    summary.touch()
    log = ""
    for step in action["runs"]["steps"]:
        environment = {k: expanded(v, values) for k, v in step["env"].items()}
        files = {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary)}
        done = shell(step["run"], cwd, **environment, **files)
        log += done.stdout + done.stderr
    outputs = dict(line.split("=", 1) for line in output.read_text().splitlines())
    for name, text in action["outputs"].items():
        assert text["value"] == f"${{{{ steps.audit.outputs.{name} }}}}"
        assert name in outputs
    return done.returncode, outputs, log, summary.read_text()


def expanded(text: str, inputs: dict[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        context, _, name = found[1].partition(".")
        return str(ROOT) if context == "github" else inputs[name]

    return re.sub(r"\$\{\{ ([\w.-]+) \}\}", value, text)


ARGUMENTS = {"source": "keys/pythia.json", "against": "keys/model.json"}


class TestAction:
    def test_a_failure_is_annotated_summed_up_and_logged_as_sarif(self, here: Path) -> None:
        code, outputs, log, summary = act(here, **ARGUMENTS, policy="magma", html="remap.html")
        assert (code, outputs["passed"], outputs["exit-code"]) == (1, "false", "1")
        assert "::error title=RM101 missing-parameter::" in log
        assert "missing-parameter" in summary
        sarif = json.loads((here / outputs["sarif"]).read_text())
        assert sarif["version"] == "2.1.0"
        assert any(r["ruleId"] == "RM101" for r in sarif["runs"][0]["results"])
        assert "<html" in (here / "remap.html").read_text()

    def test_rules_and_parameters_come_one_a_line(self, here: Path) -> None:
        rules = "gpt_neox/hf-to-neox\nmagma/wrap-adapters\n"
        code, outputs, log, _ = act(here, **ARGUMENTS, rules=rules, params="layers=4", policy="magma")
        assert (code, outputs["sarif"]) == (0, "remap.sarif"), log

    def test_a_layout_is_a_target_with_its_parameters(self, here: Path) -> None:
        layout = {"source": "keys/pythia.json", "against": "magma/neox", "rules": "magma/from-hf"}
        code, *_ = act(here, **layout)
        assert code == 0
        code, _, log, _ = act(here, **layout, **{"target-params": "mlp_adapter=present\nlayers=4\n"})
        assert code == 1
        assert "missing-adapter" in log

    def test_wrong_use_has_its_code_and_no_sarif(self, here: Path) -> None:
        code, outputs, log, _ = act(here, **ARGUMENTS, policy="no-such.yaml")
        assert (code, outputs["sarif"], outputs["passed"]) == (2, "", "false")
        assert "error: " in log

    def test_what_an_input_says_is_never_a_command(self, here: Path) -> None:
        act(here, source="$(touch pwned)", against='"; touch pwned; "', rules="`touch pwned`")
        assert not (here / "pwned").exists()
