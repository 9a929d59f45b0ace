"""What all tests share: a home of their own, never the user's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# A loaded machine is no failure: what a property costs is a matter for benchmarks.
hypothesis.settings.register_profile("r2med", deadline=None)
hypothesis.settings.load_profile("r2med")

# Doctests are collected from every module; the tests' own fixtures hold none, and share one module name.
collect_ignore_glob = ["tests/*/conftest.py"]

ROOT = Path(__file__).resolve().parent
SHARED = ROOT.parent / "shared" / "data"


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has its own empty `R2MED_HOME`."""
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("R2MED_HOME", str(folder))
    return folder


@pytest.fixture(autouse=True)
def no_models_left() -> Iterator[None]:
    """A model that a test makes known is forgotten after it."""
    from r2med.llm import cards

    before = dict(cards._ADDED)
    yield
    cards._ADDED.clear()
    cards._ADDED.update(before)


@pytest.fixture
def collections() -> Path:
    """The folder of real collections; the test is skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("the real collections are not here")
    return SHARED
