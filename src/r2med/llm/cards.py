"""Names to models: the cards of `cards.toml`, the user's own, and the ways to name a model that has no card."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from r2med.errors import SpecError, suggest
from r2med.llm.traces import FORMATS
from r2med.llm.types import Model, Sampling
from r2med.store.home import home

_ADDED: dict[str, Model] = {}
_FIELDS = {"id", "server", "sampling", "trace", "reasoning", "price", "extra"}
_OWN_KEY = "R2MED_LLM_KEY"


def find_model(text: str) -> Model:
    """The model behind a name in a spec.

    A card (`gpt-4o`), any model of any server (`NAME@http://host:port/v1`), `local` or `local:FILE.gguf` for one that
    r2med serves itself, or `scripted:FILE` for prepared answers.

    >>> find_model("gpt-4o").id
    'gpt-4o-2024-11-20'
    >>> find_model("qwq-32b@http://localhost:8001/v1").trace
    'think'
    """
    if text in _ADDED:
        return _ADDED[text]
    kind, _, rest = text.partition(":")
    if kind == "local":
        from r2med.llm.local import local_model

        return local_model(rest)
    if kind == "scripted" and rest:
        from r2med.llm.scripted import scripted_file

        return scripted_file(Path(rest))
    name, _, url = text.partition("@")
    if url:
        return _at(text, name, url)
    if text not in _cards():
        raise SpecError(
            f"unknown model {text!r}{suggest(text, model_names())}"
            " (or NAME@http://host:port/v1 for any server, local, scripted:FILE)"
        )
    return _model(text)


def model_names() -> list[str]:
    """Every name that `find_model` knows by heart, `local` included."""
    return [*_cards(), *_ADDED, "local"]


def add_model(model: Model) -> Model:
    """Make a model known by its name in this process, as tests do with scripted ones; a later one replaces it."""
    _ADDED[model.name] = model
    return model


@cache
def _table() -> dict[str, Any]:
    text = resources.files("r2med.llm").joinpath("cards.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _cards() -> dict[str, Mapping[str, Any]]:
    """The bundled cards and, over them, the user's."""
    return {**_table()["model"], **_own(home() / "llms.toml").get("model", {})}


def _own(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: not readable as TOML: {error}") from error
    for name, card in table.get("model", {}).items():
        if "id" not in card or set(card) - _FIELDS - {"url", "key_env"}:
            raise SpecError(f"{path}: model {name} needs an id and may have {', '.join(sorted(_FIELDS))}, url, key_env")
    return table


def _model(name: str) -> Model:
    card, table = _cards()[name], _table()
    server: dict[str, Any] = dict(_choice(name, card, "server", "own", table["server"]))
    server["url"] = os.environ.get(server.pop("url_env", ""), "") or server["url"]
    server |= {field: card[field] for field in ("url", "key_env") if field in card}
    server["url"] = server["url"].rstrip("/")
    _choice(name, card, "trace", "auto", FORMATS)
    price = card.get("price")
    return Model(
        name=name,
        id=card["id"],
        trace=card.get("trace", "auto"),
        reasoning=card.get("reasoning", False),
        sampling=Sampling(**_choice(name, card, "sampling", "own", table["sampling"])),
        price=(float(price[0]), float(price[1])) if price else None,
        extra=card.get("extra", {}),
        **server,
    )


def _choice(name: str, card: Mapping[str, Any], field: str, default: str, choices: Mapping[str, Any]) -> Any:
    chosen = card.get(field, default)
    if chosen not in choices:
        raise SpecError(f"model {name}: unknown {field} {chosen!r}{suggest(str(chosen), choices)}")
    return choices[chosen]


def _at(text: str, name: str, url: str) -> Model:
    """A model of a server that is named by its address. A card's name, or the id in a card, brings the card along."""
    parts = urlsplit(url)
    if not name or parts.scheme not in ("http", "https") or not parts.hostname:
        raise SpecError(f"cannot read the model {text!r}; write NAME@http://host:port/v1")
    if parts.username or parts.password:
        raise SpecError(f"the address of {name} holds a user or password; set {_OWN_KEY} in the environment instead")
    key_env = _table()["host"].get(parts.hostname, "")
    own = _table()["server"]["own"]
    known = next((card for card, entry in _cards().items() if name in (card, entry["id"])), None)
    model = _model(known) if known else Model(name, name, sampling=Sampling(**_table()["sampling"]["own"]))
    return replace(
        model,
        name=text,
        url=url.rstrip("/"),
        key_env=key_env or _OWN_KEY,
        needs_key=bool(key_env),
        continues=own["continues"] and not key_env,
        token_field="max_completion_tokens" if parts.hostname == "api.openai.com" else "max_tokens",
        price=model.price if key_env and key_env == model.key_env else None,
    )
