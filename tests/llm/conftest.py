from __future__ import annotations

import pytest

from chat_server import ChatServer, Plan, Say
from r2med.llm.budget import Limits
from r2med.llm.client import Client


@pytest.fixture(autouse=True)
def _own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "R2MED_LLM_URL", "R2MED_LLM_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def serve():
    """Start servers with a plan; they end with the test."""
    running: list[ChatServer] = []

    def start(plan: Plan = lambda prompt, nth: Say()) -> ChatServer:
        server = ChatServer(plan)
        server.__enter__()
        running.append(server)
        return server

    yield start
    for server in running:
        server.__exit__()


@pytest.fixture
def connect():
    """Make clients that retry quickly; they close with the test."""
    made: list[Client] = []

    def start(**limits) -> Client:
        client = Client(Limits(**{"backoff": 0.01, "timeout": 5.0, "retries": 3, **limits}))
        made.append(client)
        return client

    yield start
    for client in made:
        client.close()
