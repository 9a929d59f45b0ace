from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    for name in ("OPENAI_API_KEY", "VOYAGE_API_KEY", "R2MED_EMBED_KEY"):
        monkeypatch.delenv(name, raising=False)
