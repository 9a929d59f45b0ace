from __future__ import annotations

from pathlib import Path

import pytest

import r2med


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two runs, made once; tests copy it or read it."""
    home = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(home))
        r2med.evaluate(["bm25", "bm25-classic"], "sample/Biology")
    return home
