from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """No keys of the developer's, and no hub: waiting for one that is not there takes minutes."""
    for name in ("COHERE_API_KEY", "JINA_API_KEY", "VOYAGE_API_KEY", "R2MED_RERANK_KEY", "R2MED_LLM_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
