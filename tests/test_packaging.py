"""remap and its packs arrive whole, whichever way they are installed: wheel, sdist, editable."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import remap

ROOT = Path(__file__).parent.parent
LIST_PACKS = """
import remap_rules
from importlib.resources import files
def walk(folder, prefix=""):
    for item in folder.iterdir():
        if item.is_dir():
            yield from walk(item, prefix + item.name + "/")
        elif item.name.endswith(".yaml"):
            yield prefix + item.name
print(*sorted(walk(files(remap_rules))), sep="\\n")
"""


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files_of(package: str, *suffixes: str) -> set[str]:
    folder = ROOT / package
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.suffix in suffixes}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree: building leaves files behind."""
    copy = tmp_path_factory.mktemp("source") / "remap"
    hidden = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "demo", "out")
    shutil.copytree(ROOT, copy, ignore=hidden)
    return copy


@pytest.fixture(scope="module")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", out, cwd=source)
    return next(out.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist, as an index's users get it."""
    out = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(out, filter="data")
    unpacked = next(out.glob("remap-*"))
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, cwd=unpacked)
    return next(out.glob("*.whl"))


def test_setup_cfg_names_every_package() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    there = {
        p.parent.relative_to(ROOT).as_posix().replace("/", ".") for p in ROOT.glob("remap/**/__init__.py")
    }
    named = config["options"]["packages"].split()
    assert named == [*sorted(there), "remap_rules"], "mend [options] packages in setup.cfg"


def test_the_wheel_holds_every_module_and_every_pack(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"remap/{name}" for name in files_of("remap", ".py", ".typed")} <= names
    assert {f"remap_rules/{name}" for name in files_of("rules", ".py", ".yaml")} <= names
    assert not any(name.startswith(("tests/", "rules/", "notebooks/")) for name in names)


def test_the_sdist_holds_what_tests_it(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "Makefile", "constraints.txt", "tests/conftest.py", "notebooks/demo.py"} <= names
    assert {f"rules/{name}" for name in files_of("rules", ".yaml")} <= names


@pytest.mark.parametrize("way", ["wheel", "sdist", "editable"])
def test_installed(way: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    python = new_environment(tmp_path / "venv")
    if way == "editable":
        what = ["--editable", request.getfixturevalue("source")]
    else:
        what = [request.getfixturevalue(way)]
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    run(*pip, "--no-deps", "--no-build-isolation", "--no-index", "--ignore-installed", *what, cwd=tmp_path)

    packs = run(python, "-c", LIST_PACKS, cwd=tmp_path).split()
    assert set(packs) == files_of("rules", ".yaml")
    assert packs
    place = run(python, "-c", "import remap; print(remap.__file__)", cwd=tmp_path).strip()
    assert not Path(place).is_relative_to(ROOT)
    assert remap.__version__ in run(python.parent / "remap", "--version", cwd=tmp_path)
    assert remap.__version__ in run(python, "-m", "remap", "--version", cwd=tmp_path)


def new_environment(folder: Path) -> Path:
    """A virtual environment that sees this one's packages, but for remap. Its interpreter."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    (Path(site) / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python
