"""What a repository promises beside its code: the workflow runs the README's commands, the hooks run the linters."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILES = sorted([*ROOT.glob(".github/**/*.yml"), ROOT / ".pre-commit-config.yaml"])


def read(path: str) -> Any:
    """A file of YAML."""
    return yaml.safe_load((ROOT / path).read_text("utf-8"))


def targets() -> set[str]:
    """What the Makefile makes."""
    return set(re.findall(r"(?m)^([a-z]+):", (ROOT / "Makefile").read_text("utf-8")))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_file_is_yaml(file: Path):
    assert isinstance(yaml.safe_load(file.read_text("utf-8")), dict)


def test_the_workflow_runs_the_commands_of_the_readme_on_every_python_that_is_named():
    job = read(".github/workflows/test.yml")["jobs"]["test"]
    commands = [step["run"] for step in job["steps"] if "run" in step]
    readme = (ROOT / "README.md").read_text("utf-8").partition("## Two commands")[2]
    assert re.findall(r"(?m)^(make \w+)", readme)[:2] == commands[:2] == ["make demo", "make test"]
    assert {word for line in commands for word in line.split()[1:]} <= targets()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = [line.rpartition(" ")[2] for line in project["classifiers"] if ":: Python :: 3." in line]
    assert job["strategy"]["matrix"]["python"] == named
    assert project["requires-python"] == f">={named[0]}"


def test_the_hooks_are_those_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text("utf-8").replace("$(BIN)", ".venv/bin")
    entries = [hook["entry"] for hook in read(".pre-commit-config.yaml")["repos"][0]["hooks"]]
    assert len(entries) == 3
    for entry in entries:
        assert f"\t{entry.removesuffix(' --force-exclude')}" in makefile


def test_every_extra_has_a_pinned_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pinned = {normal(line.partition("==")[0]) for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()}
    wanted = [project["dependencies"], *project["optional-dependencies"].values()]
    names = {normal(re.split(r"[\[<>=]", line)[0]) for lines in wanted for line in lines}
    assert names - {"r2med"} <= pinned


def normal(name: str) -> str:
    """A name of a package as indexes compare them."""
    return re.sub(r"[-_.]+", "-", name).lower()
