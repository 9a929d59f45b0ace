"""Cards: everything that is to be known of a reranker, as data. The bundled ones, the user's own, and their checks."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from r2med.encode.prompts import Template
from r2med.errors import SpecError, suggest
from r2med.store.home import home

HEADS = ("auto", "one", "second", "margin")
DTYPES = ("float32", "bfloat16", "float16")
_GPU_MILLIONS = 3000  # from here on a model is out of reach of a processor in any useful time


@dataclass(frozen=True)
class Card:
    """A model of pairs and how it is used. `cards.toml` says what each field means.

    >>> card("bge-reranker").head, card("rankllama").query
    ('one', 'query: {query}')
    """

    name: str
    id: str
    revision: str = "main"
    adapter: str = ""
    adapter_revision: str = "main"
    query: str = "{query}"
    document: str = "{document}"
    pieces: tuple[str, ...] = ()
    instruction: Template = field(default_factory=Template)
    head: str = "auto"
    answers: tuple[str, ...] = ()
    max_length: int = 512
    dtype: str = "float32"
    remote_code: bool = False
    parameters: float = 0
    licence: str = ""
    gated: bool = False
    notes: str = ""

    def __post_init__(self) -> None:
        for name, allowed in (("head", HEADS), ("dtype", DTYPES)):
            if getattr(self, name) not in allowed:
                raise SpecError(f"{self.name}: {name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}")
        if self.max_length < 8:
            raise SpecError(f"{self.name}: a max_length of {self.max_length} tokens leaves no room for a pair")
        if bool(self.pieces) != bool(self.answers):
            raise SpecError(f"{self.name}: a language model has both pieces and answers, any other neither")
        texts = "".join(self.pieces) if self.pieces else self.query + self.document
        for place in ("{query}", "{document}"):
            if texts.count(place) != 1:
                raise SpecError(f"{self.name}: what the model reads must have {place} in it once")

    @property
    def needs_gpu(self) -> bool:
        """Whether reranking a task without an accelerator would take days."""
        return self.parameters >= _GPU_MILLIONS


@dataclass(frozen=True)
class ApiCard:
    """A reranker of a server.

    >>> api_card("jina").url
    'https://api.jina.ai/v1'
    """

    name: str
    id: str
    url: str
    key_env: str
    needs_key: bool = True
    top: str = "top_n"


def card(name: str) -> Card:
    """The card of a model that runs here."""
    found = cards()
    if name not in found:
        raise SpecError(f"unknown reranker {name!r}{suggest(name, found)}")
    return found[name]


def api_card(name: str) -> ApiCard:
    """The card of a model of a server."""
    found = api_cards()
    if name not in found:
        raise SpecError(f"unknown reranking server {name!r}{suggest(name, found)} (or NAME@http://host:port/v1)")
    return found[name]


def cards() -> Mapping[str, Card]:
    """Every card of a model by name: the bundled ones, then the user's; of two with a name, the user's."""
    return _read(Card, "model")


def api_cards() -> Mapping[str, ApiCard]:
    """Every card of a server by name, the same way."""
    return _read(ApiCard, "api")


Kind = TypeVar("Kind", Card, ApiCard)


def _read(kind: type[Kind], table: str) -> dict[str, Kind]:
    found = _made(kind, _bundled().get(table, {}), "cards.toml", {})
    own = home() / "rerankers.toml"
    return found | _made(kind, _own(own).get(table, {}), str(own), found) if own.is_file() else found


@cache
def _bundled() -> Mapping[str, Any]:
    return tomllib.loads(resources.files("r2med.rerank").joinpath("cards.toml").read_text(encoding="utf-8"))


def _own(file: Path) -> Mapping[str, Any]:
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SpecError(f"{file}: cannot be read: {error}") from error
    for name, value in found.items():
        if name not in ("model", "api") or not isinstance(value, dict):
            raise SpecError(f"{file}: unknown table {name!r}; a card is a table [model.NAME] or [api.NAME]")
    return found


def _made(kind: type[Kind], table: Mapping[str, Any], where: str, known: Mapping[str, Kind]) -> dict[str, Kind]:
    hints = get_type_hints(kind)
    required = {each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING}
    made: dict[str, Kind] = {}
    for name, entry in table.items():
        values: dict[str, Any] = {
            key: _value(where, name, key, value, hints) for key, value in entry.items() if key != "like"
        }
        before = {**known, **made}
        like = entry.get("like")
        if like is None:
            missing = sorted(required - {"name", *values})
            if missing:
                raise SpecError(f"{where}: {name} has no {missing[0]}")
            made[name] = kind(name=name, **values)
        elif like in before:
            made[name] = replace(before[like], **{**_fresh_commits(values), "name": name})
        else:
            raise SpecError(f"{where}: {name} is like {like!r}, which is no card before it{suggest(str(like), before)}")
    return made


def _fresh_commits(values: dict[str, Any]) -> dict[str, Any]:
    """A commit belongs to its repository: another one does not take it over."""
    for repository, commit in (("id", "revision"), ("adapter", "adapter_revision")):
        if repository in values:
            values.setdefault(commit, "main")
    return values


_WANTED = {str: "a text", bool: "true or false", int: "a whole number", float: "a number"}


def _value(where: str, name: str, key: str, value: Any, hints: Mapping[str, Any]) -> Any:
    """A field as the card holds it, of the right type."""
    if key not in hints or key == "name":
        raise SpecError(f"{where}: {name} has an unknown field {key!r}{suggest(key, hints)}")
    hint = str if hints[key] is Template else hints[key]
    if hint == tuple[str, ...]:
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return tuple(value)
        raise SpecError(f"{where}: {name}: {key} must be a list of texts")
    fits = isinstance(value, int | float) if hint is float else isinstance(value, hint)
    if not fits or (isinstance(value, bool) and hint is not bool):
        raise SpecError(f"{where}: {name}: {key} must be {_WANTED[hint]}, not {value!r}")
    return Template(value) if hints[key] is Template else value
