"""What all tests share: a home of their own, never the user's."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

import budget
import needs
from r2med.engines import user as user_engine
from r2med.llm import cards as llm_cards
from r2med.models.memory import fix_rounding

# Code that comes with a model is copied before it runs: not into the user's cache. Read when transformers is imported.
_MODEL_CODE = tempfile.TemporaryDirectory(prefix="r2med-model-code-")
os.environ["HF_MODULES_CACHE"] = _MODEL_CODE.name

# Tests that use torch themselves may come before the first model is loaded.
fix_rounding()

# A loaded machine is no failure: what a property costs is a matter for benchmarks.
hypothesis.settings.register_profile("r2med", deadline=None)
hypothesis.settings.load_profile("r2med")

# Doctests are collected from every module; the tests' own fixtures hold none, and share one module name.
collect_ignore_glob = ["tests/*/conftest.py"]


_LONG = ("executor", "web", "training")
"""Folders of the tests that take longest."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with long tests, so that at the end no worker waits for another."""
    items.sort(key=lambda item: item.path.parent.name not in _LONG)


def pytest_configure() -> None:
    """Refuse a folder of collections that is not there."""
    needs.check_variable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the size of the tree, and how much was not tested on this machine and why."""
    terminalreporter.write_line(budget.describe_tree())
    headline, *reasons = needs.summary(terminalreporter.stats.get("skipped", [])) or [""]
    if headline:
        terminalreporter.write_sep("!", headline, bold=True, yellow=True)
    for line in reasons:
        terminalreporter.write_line(line)


def _forget_names(patch: pytest.MonkeyPatch) -> None:
    """Have models and engines that are made known by name from now on forgotten when the patch ends."""
    patch.setattr(llm_cards, "_ADDED", dict(llm_cards._ADDED))
    patch.setattr(user_engine, "_NAMED", dict(user_engine._NAMED))


@pytest.fixture(scope="module", autouse=True)
def names_of_module() -> Iterator[None]:
    """Keep names that fixtures of a module make known to that module."""
    with pytest.MonkeyPatch.context() as patch:
        _forget_names(patch)
        yield


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has its own empty `R2MED_HOME`, and prints as into a pipe whatever the width of the terminal.

    Models and engines that it makes known by name are not known to the next one.
    """
    folder = tmp_path_factory.mktemp("home")
    _forget_names(monkeypatch)
    monkeypatch.setenv("R2MED_HOME", str(folder))
    monkeypatch.delenv("COLUMNS", raising=False)
    return folder


@pytest.fixture
def collections() -> Path:
    """The folder of real collections; the test is skipped where it is absent."""
    return needs.collection()
