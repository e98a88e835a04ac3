"""torch is imported where its arithmetic or its objects are needed, and nowhere else."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = ("torch", "deepspeed", "transformers")
LIGHT = ("remap.api", "remap.plan", "msgspec", "numpy", "rapidfuzz", "regex", "rich", "yaml")
"""What ``remap --help`` does without, beside the heavy ones: it answers at once."""


def loaded(code: str, *arguments: object) -> set[str]:
    """Run ``code`` in a process of its own; the modules that are loaded at its end."""
    report = "import atexit, sys\natexit.register(lambda: print('LOADED', *sys.modules))\n"
    command = [sys.executable, "-c", report + code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return set(done.stdout.rpartition("LOADED")[2].split())


def remap(*arguments: object) -> set[str]:
    """What a command of remap has loaded at its end."""
    return loaded("from remap.cli.main import main\nmain()", *arguments)


@pytest.mark.parametrize("module", ["remap", "remap.api", "remap.cli.main"])
def test_importing_remap_imports_nothing_heavy(module: str) -> None:
    assert not loaded(f"import {module}").intersection(HEAVY)


def test_help_imports_next_to_nothing() -> None:
    assert not remap("--help").intersection(HEAVY + LIGHT)


def test_inspect_imports_no_packs_and_no_plan(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": [[1], "float32"]}')
    found = remap("inspect", tmp_path / "x.json")
    assert not found.intersection({*HEAVY, "remap.api", "remap.plan", "numpy", "yaml", "regex"})


def test_modules_do_not_hide_the_functions_of_their_name() -> None:
    loaded(
        "import remap.plan, remap.verify, remap\n"
        "assert all(callable(getattr(remap, name)) for name in ('open', 'plan', 'convert', 'verify', 'diff'))"
    )


def test_a_conversion_needs_no_torch(tmp_path: Path) -> None:
    loaded(
        "from pathlib import Path\nfrom notebooks.demo import make_pythia\nmake_pythia(Path(sys.argv[1]))",
        tmp_path / "pythia",
    )
    there = tmp_path / "pythia"
    for command in (
        ["inspect", there],
        ["plan", there, "-r", "magma/from-hf"],
        ["convert", there, tmp_path / "neox", "-r", "gpt_neox/hf-to-neox", "--to", "safetensors"],
        ["convert", there, tmp_path / "magma", "-r", "magma/from-hf", "--to", "deepspeed-pipeline"],
        ["inspect", tmp_path / "magma"],
        [
            "convert",
            tmp_path / "magma",
            tmp_path / "back",
            "-r",
            "magma/from-hf",
            "--inverse",
            "--to",
            "safetensors",
        ],
        ["diff", there, tmp_path / "back"],
        ["verify", tmp_path / "magma"],
        ["convert", there, tmp_path / "cast", "--dtype", "bf16"],
    ):
        assert not remap(*command).intersection(HEAVY), command


def test_adapters_need_no_torch(tmp_path: Path) -> None:
    loaded(
        "from pathlib import Path\nimport numpy as np\nfrom safetensors.numpy import save_file\n"
        "from notebooks.demo import make_pythia\nroot = Path(sys.argv[1])\nmake_pythia(root / 'pythia')\n"
        "q = 'base_model.model.gpt_neox.layers.0.attention.dense.lora_'\n"
        "ones = {q + 'A.weight': np.ones((2, 64)), q + 'B.weight': np.ones((64, 2))}\n"
        "save_file(ones, root / 'adapter.safetensors')\n",
        tmp_path,
    )
    for command in (
        ["graft", tmp_path / "pythia", tmp_path / "adapter.safetensors", "-o", tmp_path / "model"],
        ["extract", tmp_path / "model", "-o", tmp_path / "again", "--set", "lora_alpha=2"],
        ["extract", tmp_path / "model", "-o", tmp_path / "base", "--part", "base"],
        ["migrate", tmp_path / "again", "-o", tmp_path / "d.safetensors", "--to", "diffusers"],
    ):
        assert not remap("adapter", *command).intersection(HEAVY), command


def module_level_imports(tree: ast.Module) -> Iterator[str]:
    """Top-level names that are imported when the module is, functions and TYPE_CHECKING apart."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (name.name.split(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]
        waiting += ast.iter_child_nodes(node)


def test_no_module_imports_torch_outside_a_function() -> None:
    modules = [p for p in (ROOT / "remap").rglob("*.py") if "integrations" not in p.parts]
    assert modules
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in modules
        for name in module_level_imports(ast.parse(path.read_text()))
        if name in HEAVY
    ]
    assert found == []
