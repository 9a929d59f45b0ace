"""The wheel: built once, installed outside the checkout, and used there as a stranger would."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

import r2med
from r2med.web.citation import PAPER

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "r2med"


def call(*command: object, cwd: Path) -> str:
    """Run a command away from the checkout, and give what it printed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (file,) = built.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment that holds the wheel, and sees the dependencies that are installed here.

    Their folder is named in a .pth file, whose own .pth files are not read: the checkout stays out of sight.
    """
    folder = tmp_path_factory.mktemp("environment")
    call(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    paths = sysconfig.get_paths("venv", vars={"base": str(folder), "platbase": str(folder)})
    Path(paths["purelib"], "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    scripts = Path(paths["scripts"])
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", scripts / "python")
    call(*pip, "install", "--quiet", "--no-deps", "--no-index", "--ignore-installed", wheel, cwd=folder)
    return scripts


def test_the_archives_pass_the_check_of_the_package_index(built: Path, tmp_path: Path):
    names = sorted(file.name for file in built.iterdir())
    assert names == [f"r2med-{r2med.__version__}-py3-none-any.whl", f"r2med-{r2med.__version__}.tar.gz"]
    assert call(sys.executable, "-m", "twine", "check", "--strict", *built.iterdir(), cwd=tmp_path).count("PASSED") == 2


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: Path):
    kept = {file for file in PACKAGE.rglob("*") if file.is_file() and "__pycache__" not in file.parts}
    expected = {f"r2med/{file.relative_to(PACKAGE).as_posix()}" for file in kept}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name for name in names if ".dist-info/" not in name} == expected
    kinds = {Path(name).suffix for name in names}
    assert {".toml", ".txt", ".tsv", ".jsonl", ".html", ".css"} <= kinds, (
        "cards, prompts, published rows, sample, pages"
    )


def test_the_wheel_says_what_it_is(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        facts = message_from_bytes(archive.read(f"r2med-{r2med.__version__}.dist-info/METADATA"))
    versions = {line.rpartition(" ")[2] for line in facts.get_all("Classifier", []) if ":: Python :: 3." in line}
    assert versions == {"3.11", "3.12", "3.13"}
    assert facts["Requires-Python"] == ">=3.11"
    assert f"Paper, {PAPER.url}" in facts.get_all("Project-URL", [])


def test_the_wheel_works_outside_the_checkout(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    where = call(programs / "python", "-c", "import r2med; print(r2med.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(programs.parent)
    table = call(programs / "r2med", "run", "bm25", "replay >> bm25", "--tasks", "sample/Biology", cwd=tmp_path)
    assert "37.16" in table
    assert "93.19" in table
    assert "IIYi-Clinical" in call(programs / "r2med", "tasks", cwd=tmp_path)
    assert "base/bge" in call(programs / "r2med", "board", "--format", "csv", cwd=tmp_path)
    assert "bge-large" in call(programs / "r2med", "models", cwd=tmp_path)
