"""Stages, encoders and verbs of another distribution, installed beside r2med in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[1] / "plugin"
TASK = ("--tasks", "sample/Biology")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `pip install --target` leaves it: the package, and its metadata."""
    place = tmp_path_factory.mktemp("site")
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text("utf-8"))["project"]
    shutil.copytree(PLUGIN / "r2med_plugin", place / "r2med_plugin")
    about = place / "r2med_plugin-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [
        line
        for group, points in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return place


def r2med(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH", ""))))
    return subprocess.run(
        [sys.executable, "-m", "r2med", *words], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
    )


def test_a_verb_is_listed_and_runs(site: Path):
    shown = r2med(site, "--help").stdout
    assert "  hello        from r2med_plugin:hello_command\n" in shown
    assert r2med(site, "hello").stdout == "hello from a plugin\n"
    assert "did you mean hello?" in r2med(site, "helo").stderr


def test_a_verb_that_cannot_be_imported_is_one_line(site: Path):
    done = r2med(site, "broken")
    assert done.returncode == 1
    assert done.stderr.startswith("r2med: broken of the package r2med-plugin (r2med_plugin:nothing_there) cannot be")
    assert done.stderr.count("\n") == 1


def test_stages_and_encoders_stand_in_specs(site: Path):
    done = r2med(site, "run", "bm25 >> backwards(depth=5)", "letters(columns=4)", "bm25", *TASK, "--json")
    assert done.returncode == 0, done.stderr
    first, second, third = json.loads(done.stdout)["results"]
    assert first["system"] == "bm25 >> backwards(depth=5)"
    assert second["system"] == "r2med_plugin:Letters(columns=4)"
    assert first["metrics"]["Hit@10"] == third["metrics"]["Hit@10"]
    assert first["metrics"]["nDCG@10"] != third["metrics"]["nDCG@10"]
    assert "has no option" in r2med(site, "run", "bm25 >> backwards(deep=5)", *TASK).stderr
    assert "did you mean backwards?" in r2med(site, "run", "bm25 >> backwardz", *TASK).stderr


def test_a_name_of_ours_is_never_looked_up(site: Path):
    code = "from r2med import System; System.parse('rrf(bm25, wordllama)')\nfrom r2med.store.plugins import plugins"
    subprocess.run([sys.executable, "-c", f"{code}\nassert plugins.cache_info().currsize == 0"], check=True)
    assert "bm25" in r2med(site, "run", "bm25", *TASK).stdout
