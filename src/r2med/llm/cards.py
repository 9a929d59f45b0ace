"""Chat models by name: the cards of `cards.toml`, the user's own, and names of models without a card."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from r2med.errors import SpecError, suggest
from r2med.llm.local import local_model
from r2med.llm.reasoning import FORMATS
from r2med.llm.scripted import scripted_file
from r2med.llm.types import Model, Sampling
from r2med.models.cards import CardRegistry
from r2med.models.http import check_url, server_name

_ADDED: dict[str, Model] = {}
_OWN_KEY = "R2MED_LLM_KEY"


@dataclass(frozen=True)
class ChatCard:
    """A model as in `cards.toml`, which says what each field means."""

    name: str
    id: str
    server: str = "own"
    sampling: str = "own"
    trace: str = "auto"
    reasoning: bool = False
    system: bool = True
    price: tuple[float, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    url: str | None = None  # in place of the server's
    key_env: str | None = None  # in place of the server's
    servers: str = ""  # the name of a set of equal servers: answers are shared by all addresses under it

    def __post_init__(self) -> None:
        if len(self.price) not in (0, 2):
            raise SpecError(f"{self.name}: price must be two numbers, for prompt and completion, not {self.price}")


_DECK = CardRegistry(ChatCard, "r2med.llm", "llms.toml")


def find_model(text: str) -> Model:
    """Resolve the name of a model in a spec.

    A card (`gpt-4o`), any model of any server (`NAME@http://host:port/v1`), `local` or `local:FILE.gguf` for one that
    r2med serves itself, or `scripted:FILE` for scripted answers. Before an address, a card's name, or the id in a card,
    selects that card.

    >>> find_model("gpt-4o").id
    'gpt-4o-2024-11-20'
    >>> find_model("qwq-32b@http://localhost:8001/v1").trace
    'think'
    """
    kind, _, rest = text.partition(":")
    name, _, url = text.partition("@")
    cards = _DECK.cards()
    if text in _ADDED:
        return _ADDED[text]
    if kind == "local":
        return local_model(rest)
    if kind == "scripted" and rest:
        return scripted_file(Path(rest))
    if not url:
        if text not in cards:
            hint = " (or NAME@http://host:port/v1 for any server, local, scripted:FILE)"
            raise SpecError(f"unknown model {text!r}{suggest(text, model_names())}{hint}")
        return _model(cards[text])
    if not name:
        raise SpecError(f"cannot read the model {text!r}; write NAME@http://host:port/v1")
    url = check_url(name, url, _OWN_KEY)
    host = urlsplit(url).hostname or ""
    key_env = _DECK.tables["host"].get(host, "")
    card = next((card for card in cards.values() if name in (card.name, card.id)), None)
    model = _model(card) if card else Model(name, name, sampling=Sampling(**_DECK.tables["sampling"]["own"]))
    return replace(
        model,
        name=text,
        url=url,
        servers=_set_of(url),
        key_env=key_env or _OWN_KEY,
        needs_key=bool(key_env),
        continues=_DECK.tables["server"]["own"]["continues"] and not key_env,
        token_field="max_completion_tokens" if host == "api.openai.com" else "max_tokens",
        price=model.price if key_env and key_env == model.key_env else None,
    )


def model_names() -> list[str]:
    """Return every name that `find_model` resolves without an address or file, `local` included."""
    return [*_DECK.cards(), *_ADDED, "local"]


def add_model(model: Model) -> Model:
    """Register a model by its name in this process, as tests do with scripted ones; a later one replaces it."""
    _ADDED[model.name] = model
    return model


def _model(card: ChatCard) -> Model:
    server: dict[str, Any] = dict(_choice(card, "server", _DECK.tables["server"]))
    server["url"] = os.environ.get(server.pop("url_env", ""), "") or server["url"]
    server |= {name: value for name, value in (("url", card.url), ("key_env", card.key_env)) if value is not None}
    server["url"] = check_url(card.name, server["url"], server["key_env"] or _OWN_KEY)
    _choice(card, "trace", FORMATS)
    return Model(
        name=card.name,
        id=card.id,
        trace=card.trace,
        reasoning=card.reasoning,
        system=card.system,
        sampling=Sampling(**_choice(card, "sampling", _DECK.tables["sampling"])),
        price=(float(card.price[0]), float(card.price[1])) if card.price else None,
        extra=card.extra,
        servers=card.servers or _set_of(server["url"]),
        **server,
    )


def _set_of(url: str) -> str:
    """Return the set of equal servers that an address belongs to; empty for none."""
    name = server_name(url)
    return "" if name == url else name


def _choice(card: ChatCard, name: str, choices: Mapping[str, Any]) -> Any:
    choice = getattr(card, name)
    if choice not in choices:
        raise SpecError(f"model {card.name}: unknown {name} {choice!r}{suggest(choice, choices)}")
    return choices[choice]
