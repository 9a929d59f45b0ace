"""A slice of `benchmarks/fuzz.py`: bad input of every kind ends in a result or in one line."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "fuzz.py"


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", ["data", "run", "spec", "toml", "zip"])
def test_bad_input_is_refused_in_one_line(fuzz: ModuleType, kind: str) -> None:
    (tally,) = fuzz.fuzz({kind: range(100)}, seed=2).values()
    assert tally.faults == []
    assert tally.cases == 100
    assert tally.accepted, "input that is hardly spoiled must get through, or nothing behind the door is tried"
    assert tally.refused


def test_what_is_no_error_of_ours_is_a_fault(fuzz: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that finds nothing must be able to find something."""

    def fails(random: object, folder: Path) -> None:
        raise KeyError(str(folder))

    def speaks_in_lines(random: object, folder: Path) -> None:
        raise fuzz.R2medError("one\ntwo")

    def hangs(random: object, folder: Path) -> None:
        raise fuzz.HangError

    monkeypatch.setattr(fuzz, "KINDS", {"a": (1, fails), "b": (1, speaks_in_lines), "c": (1, hangs)})
    found = fuzz.fuzz({"a": [0], "b": [0], "c": [0]})
    said = [tally.faults[0].partition(": ")[2] for tally in found.values()]
    assert said[0].startswith("KeyError in test_fuzz.py:")
    assert said[1].startswith("an error of several lines")
    assert said[2] == "hangs"
