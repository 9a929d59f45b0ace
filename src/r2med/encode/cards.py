"""Cards: everything that is to be known of an encoder, as data. The bundled ones, the user's own, and their checks."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, get_type_hints

from r2med.encode.prompts import NO_PROMPT, Template
from r2med.errors import SpecError, suggest
from r2med.store.home import home

BACKENDS = ("torch", "onnx", "static", "api")
POOLINGS = ("cls", "mean", "last", "max", "weighted", "own")
SIMILARITIES = ("cosine", "dot")
DTYPES = ("float32", "bfloat16", "float16", "int8")
_GPU_MILLIONS = 3000  # from here on a model is out of reach of a processor in any useful time


@dataclass(frozen=True)
class Card:
    """A model and how it is used. `cards.toml` says what each field means.

    >>> card("bge").pooling, card("bge").max_document
    ('cls', 512)
    """

    name: str
    id: str
    revision: str = "main"
    query_id: str = ""
    query_revision: str = "main"
    package: str = ""
    subfolder: str = ""
    backend: str = "torch"
    pooling: str = "mean"
    attention: str = ""
    normalize: bool = False
    max_query: int = 512
    max_document: int = 512
    query_prompt: Template = NO_PROMPT
    document_prompt: Template = NO_PROMPT
    exclude_prompt: bool = False
    prompt_passages: bool = False
    lowercase: bool = False
    pair: bool = False
    append_eos: bool = False
    padding: str = "right"
    dense: tuple[str, ...] = ()
    similarity: str = "cosine"
    dtype: str = "float32"
    remote_code: bool = False
    adapter: str = ""
    adapter_revision: str = "main"
    url: str = ""
    input_types: bool = False
    tokenizer: str = ""
    parameters: float = 0
    licence: str = ""
    gated: bool = False
    notes: str = ""
    published: str = ""

    def __post_init__(self) -> None:
        self._check("backend", BACKENDS)
        self._check("pooling", POOLINGS)
        self._check("attention", ("", "bidirectional"))
        self._check("padding", ("left", "right"))
        self._check("similarity", SIMILARITIES)
        self._check("dtype", DTYPES)
        if self.dtype == "int8" and self.backend != "onnx":
            raise SpecError(f"{self.name}: dtype=int8 needs backend=onnx")
        if self.pooling == "own" and not self.remote_code:
            raise SpecError(f"{self.name}: pooling=own runs code of the model's own, which needs remote_code=true")
        if self.pooling == "weighted" and self.exclude_prompt:
            raise SpecError(f"{self.name}: exclude_prompt and pooling=weighted do not go together")
        if min(self.max_query, self.max_document) < 0:
            raise SpecError(f"{self.name}: a max length of {min(self.max_query, self.max_document)} tokens")

    def _check(self, field: str, allowed: tuple[str, ...]) -> None:
        value = getattr(self, field)
        if value not in allowed:
            known = ", ".join(word for word in allowed if word)
            raise SpecError(f"{self.name}: {field} must be one of {known}, not {value!r}")

    @property
    def needs_gpu(self) -> bool:
        """Whether encoding a task without an accelerator would take days."""
        return self.backend == "torch" and self.parameters >= _GPU_MILLIONS


def card(name: str) -> Card:
    """The card of a name."""
    found = cards()
    if name not in found:
        raise SpecError(f"unknown model {name!r}{suggest(name, found)}")
    return found[name]


def cards() -> Mapping[str, Card]:
    """Every card by name: the bundled ones in their order, then the user's; of two with a name, the user's."""
    own = home() / "encoders.toml"
    if not own.is_file():
        return _bundled()
    return {**_bundled(), **read_cards(own, _bundled())}


@cache
def _bundled() -> Mapping[str, Card]:
    file = resources.files("r2med.encode").joinpath("cards.toml")
    return _cards(tomllib.loads(file.read_text(encoding="utf-8")), "cards.toml", {})


def read_cards(file: Path, known: Mapping[str, Card]) -> dict[str, Card]:
    """The cards of a file, which may be like the known ones."""
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SpecError(f"{file}: cannot be read: {error}") from error
    return _cards(table, str(file), known)


def _cards(table: Mapping[str, Any], where: str, known: Mapping[str, Card]) -> dict[str, Card]:
    for name in table:
        if name != "model":
            raise SpecError(f"{where}: unknown table {name!r}; a card is a table [model.NAME]")
    made: dict[str, Card] = {}
    for name, entry in table.get("model", {}).items():
        base = entry.pop("like", None)
        before = {**known, **made}
        if base is not None and base not in before:
            raise SpecError(f"{where}: {name} is like {base!r}, which is no card before it{suggest(str(base), before)}")
        values = {key: _value(where, name, key, value) for key, value in entry.items()}
        if base is None and "id" not in values:
            raise SpecError(f"{where}: {name} has no id")
        for repository, commit in _COMMITS.items():
            # A commit belongs to its repository: another one does not take it over.
            if repository in values:
                values.setdefault(commit, "main")
        made[name] = Card(name, **values) if base is None else replace(before[base], name=name, **values)
    return made


_HINTS = {field.name: get_type_hints(Card)[field.name] for field in fields(Card) if field.name != "name"}
_COMMITS = {"id": "revision", "query_id": "query_revision", "adapter": "adapter_revision"}
_WANTED = {str: "a text", bool: "true or false", int: "a whole number", float: "a number"}


def _value(where: str, name: str, key: str, value: Any) -> Any:
    """A field as the card holds it, of the right type."""
    if key not in _HINTS:
        raise SpecError(f"{where}: {name} has an unknown field {key!r}{suggest(key, _HINTS)}")
    hint = _HINTS[key]
    if hint is Template:
        if isinstance(value, str) or (
            isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
        ):
            return Template.of(value)
        raise SpecError(f"{where}: {name}: {key} must be a text, or a table of texts by family")
    if hint == tuple[str, ...]:
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return tuple(value)
        raise SpecError(f"{where}: {name}: {key} must be a list of texts")
    right = isinstance(value, int | float) if hint is float else isinstance(value, hint)
    if not right or (isinstance(value, bool) and hint is not bool):
        raise SpecError(f"{where}: {name}: {key} must be {_WANTED[hint]}, not {value!r}")
    return value
