"""What a test needs that a machine may not have: it is skipped there, and the end of the run counts what was left out.

Real collections are in the folder that `R2MED_TEST_DATA` names, or in `../shared/data` beside the checkout; the tables
that the published figures were collected in are in a folder `facts` beside it. Packages are asked for by
`pytest.importorskip`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

VARIABLE = "R2MED_TEST_DATA"
COLLECTIONS = Path(os.environ.get(VARIABLE) or Path(__file__).resolve().parents[2] / "shared" / "data")
FACTS = COLLECTIONS.parent / "facts"
TRAINED = Path(__file__).with_name("trained")
"""A small SPLADE, ColBERT and cross-encoder that learned something: see scripts/make_test_models.py."""


def collection(name: str = "") -> Path:
    """A real collection, or a file of one; without a name, the folder of them all."""
    return _present(COLLECTIONS / name, "the real collections")


def facts(name: str) -> Path:
    """A table that published figures were collected in."""
    return _present(FACTS / name, "the tables of published figures")


def _present(path: Path, what: str) -> Path:
    if not path.exists():
        pytest.skip(f"{what} are not here: {VARIABLE} names their folder")
    return path


def program(*names: str) -> str:
    """The path of a program that may go by several names."""
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip(f"{names[0]} is not installed")
    return found


def packages(*names: str) -> pytest.MarkDecorator:
    """A mark for tests of packages that are imported late or in another process."""
    absent = [name for name in names if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(absent), reason=f"{', '.join(absent)} is not installed")


def check_variable() -> None:
    """A folder that was named and is not there is a slip of the pen, and no reason to leave tests out."""
    if os.environ.get(VARIABLE) and not COLLECTIONS.is_dir():
        raise pytest.UsageError(f"{VARIABLE} names {COLLECTIONS}, which is not a folder")


def summary(reports: Iterable[pytest.TestReport | pytest.CollectReport]) -> list[str]:
    """What was left out and why, most frequent first; empty if nothing was."""
    reasons: Counter[str] = Counter()
    files = 0
    for report in reports:
        longrepr = report.longrepr
        text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
        reasons[text.removeprefix("Skipped: ")] += 1
        files += isinstance(report, pytest.CollectReport)
    if not reasons:
        return []
    tests = reasons.total() - files
    counted = " and ".join(f"{n} {what}" for n, what in ((tests, "test(s)"), (files, "whole file(s) of tests")) if n)
    return [f"NOT TESTED: {counted} skipped"] + [f"{count:>5}  {reason}" for reason, count in reasons.most_common()]
