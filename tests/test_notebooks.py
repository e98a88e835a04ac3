"""The notebooks run from top to bottom, and print what is written in them.

python tests/test_notebooks.py    runs them, and writes down what they print
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
COMMANDS = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def run(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    resources = {"metadata": {"path": str(NOTEBOOKS)}}
    client = NotebookClient(
        notebook, timeout=120, resources=resources, record_timing=False, coalesce_streams=True
    )
    return client.execute()


def printed(notebook: nbformat.NotebookNode) -> list[str]:
    """The results of every cell; not what libraries say on stderr."""
    return ["".join(map(result, cell.get("outputs", []))) for cell in notebook.cells]


def result(output: nbformat.NotebookNode) -> str:
    if output.output_type == "stream":
        return output.text if output.name == "stdout" else ""
    return output.get("data", {}).get("text/plain", "")


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_it_prints_what_is_written_in_it(path, monkeypatch):
    monkeypatch.setenv("PATH", COMMANDS)
    notebook = nbformat.read(path, as_version=4)
    written = printed(notebook)
    assert printed(run(notebook)) == written


def renew() -> None:
    os.environ["PATH"] = COMMANDS
    for path in PATHS:
        notebook = run(nbformat.read(path, as_version=4))
        for cell in notebook.cells:
            for counted in (cell, *cell.get("outputs", [])):
                if "execution_count" in counted:
                    counted["execution_count"] = None
        notebook.metadata["language_info"] = {"name": "python"}
        nbformat.write(notebook, path)


if __name__ == "__main__":
    renew()
