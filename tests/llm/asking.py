"""Requests for the tests' own server."""

from __future__ import annotations

from chat_server import ChatServer
from r2med.llm.cards import find_model
from r2med.llm.types import Model, Request

KEY = "sk-secret-0123456789"


def model_at(server: ChatServer, name: str = "tiny") -> Model:
    return find_model(f"{name}@{server.url}")


def questions(server: ChatServer, count: int) -> list[Request]:
    model = model_at(server)
    return [model.request(f"question {number}") for number in range(count)]
