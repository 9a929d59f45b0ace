from __future__ import annotations

from pathlib import Path

import pytest
import webparts

pytest.importorskip("starlette", reason="the web extra is not installed")


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory):
    """A home with runs, made once; every test reads it."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(home))
        task = webparts.fill(home)
        yield home, task


@pytest.fixture(autouse=True)
def _home(filled: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MED_HOME", str(filled[0]))
