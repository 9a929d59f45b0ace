"""Chat models: one client for every OpenAI-compatible server, with kept answers, limits and accounts.

    model = find_model("gpt-4o")                            # or "NAME@http://host:port/v1", "local", "scripted:FILE"
    requests = [model.request(prompt) for prompt in prompts]
    with Client(Limits(max_cost=5.0)) as client:
        for reply in client.ask_all(requests):              # a Reply, or a Failed with its reason
            ...

A stage does not build a client: it uses `current_client()`, so that one command has one budget and one local server.
"""

from r2med.llm.budget import Estimate, Limits, account
from r2med.llm.client import Client, current_client, session
from r2med.llm.llm_cards import add_model, find_model, model_names
from r2med.llm.reasoning import FORMATS, Trace, split_trace
from r2med.llm.scripted import scripted
from r2med.llm.types import (
    Failed,
    LimitReached,
    Message,
    Model,
    RawAnswer,
    Reply,
    Request,
    Sampling,
    Token,
    Usage,
    chat,
)
from r2med.models.http import AttemptError
from r2med.models.servers import ServerError
from r2med.runs.step_record import Account

__all__ = [
    "FORMATS",
    "Account",
    "AttemptError",
    "Client",
    "Estimate",
    "Failed",
    "LimitReached",
    "Limits",
    "Message",
    "Model",
    "RawAnswer",
    "Reply",
    "Request",
    "Sampling",
    "ServerError",
    "Token",
    "Trace",
    "Usage",
    "account",
    "add_model",
    "chat",
    "current_client",
    "find_model",
    "model_names",
    "scripted",
    "session",
    "split_trace",
]
