"""Requests to a search engine over HTTP, as data: a bundled preset or a file of the user."""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

import msgspec
import orjson
from msgspec import Meta

from r2med.errors import DataError, SpecError, suggest
from r2med.formatting import shorten
from r2med.models.http import check_key
from r2med.store.files import expanded
from r2med.store.typed import Typed, convert, read_toml

_PLACES = (
    "query", "query_json", "k", "candidates", "vector", "vector_json", "items", "index", "field", "vector_field",
    "id_field", "ranking",
)  # fmt: skip
_PLACE = re.compile(r"\{([a-z_]+)\}")
_ENV = re.compile(r"\{env:([A-Za-z_]\w*)\}")
_ANY_PLACE = re.compile(r"(?<!\{)\{([A-Za-z_]\w*)\}(?!\})")
"""What looks like a placeholder; doubled braces belong to templates of the engine itself."""


class ReplyPaths(Typed, frozen=True):
    """Paths in a reply: names and places joined by dots, such as `hits.hits` or `data.0.id`."""

    hits: str
    id: str
    score: str = ""  # empty where hits have no score; they then count by their order
    lists: str = ""
    """The list of replies, where several queries are asked at once; all other paths are inside each of them."""
    errors: tuple[str, ...] = ()  # what must be absent, false, 0 or empty: anything else says that the search failed
    lower: bool = False  # whether a lower score is better
    optional: bool = False  # whether a reply without hits says that nothing was found

    def split(self, answer: Any) -> Any:
        """Return the replies to the queries of a request."""
        return follow(answer, self.lists) if self.lists else [answer]

    def find_error(self, reply: Any) -> str:
        """Return the error that a reply reports; empty if there is none."""
        for path in self.errors:
            try:
                value = follow(reply, path)
            except NoSuchPath:
                continue
            if value:
                return f"{path}: {message_of(reply) or _one_line(value)}"
        return ""

    def read_hits(self, reply: Any, chunk: re.Pattern[str] | None) -> list[tuple[str, float]] | list[str]:
        """Return the documents of a reply with or without scores; of a document's chunks the best one counts."""
        try:
            hits = follow(reply, self.hits)
        except NoSuchPath:
            if not self.optional:
                raise
            hits = None
        hits = [] if hits is None and self.optional else hits
        if not isinstance(hits, Sequence) or isinstance(hits, str):
            raise NoSuchPath(self.hits, hits, "list at ")
        ids = []
        for value in (follow(hit, self.id) for hit in hits):
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise UnusableHit(f"has the id {_written(value)}, which is neither a text nor a whole number")
            match = chunk.match(str(value)) if chunk else None
            ids.append(match[1] if match else str(value))
        if not self.score:
            return list(dict.fromkeys(ids)) if chunk else ids
        sign = -1.0 if self.lower else 1.0
        pairs = [(name, sign * _score(name, follow(hit, self.score))) for name, hit in zip(ids, hits, strict=True)]
        if chunk is None:
            return pairs
        best: dict[str, float] = {}
        for name, score in pairs:
            best[name] = max(score, best.get(name, score))
        return list(best.items())


class _ReplyTable(Typed, frozen=True):
    reply: ReplyPaths


class _EngineSettings(Typed, frozen=True, kw_only=True):
    """What holds for all requests to an engine."""

    path: str = ""
    method: Literal["POST", "GET"] = "POST"
    url: str = ""
    versions: str = ""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    largest: Annotated[int, Meta(ge=0)] = 0
    """The most hits that the engine gives at a time; 0 where it has no such limit."""
    batch: Annotated[int, Meta(ge=1)] = 1


class _EngineTable(_EngineSettings, frozen=True, kw_only=True):
    """What a preset or a file says of an engine."""

    reply: dict[str, Any]
    vector_reply: dict[str, Any] = msgspec.field(default_factory=dict)
    """What differs in the reply to a search by vector."""
    query: dict[str, Any] | None = None
    query_item: dict[str, Any] | None = None
    vector: dict[str, Any] | None = None
    vector_item: dict[str, Any] | None = None


class EngineRequest(_EngineSettings, frozen=True, kw_only=True):
    """One engine's requests and replies."""

    name: str
    reply: ReplyPaths
    body: Any  # the request, with placeholders
    item: Any = None  # what stands for each query in `{items}`

    def keys(self) -> list[str]:
        """Return the environment variables that the headers need."""
        return [name for value in self.headers.values() for name in _ENV.findall(value)]

    def sent_headers(self) -> dict[str, str]:
        """Return the headers with their keys; one whose variable is not set, or blank, is left out."""
        return {
            name: _ENV.sub(lambda match: check_key(match[1], os.environ[match[1]].strip()), value)
            for name, value in self.headers.items()
            if all(os.environ.get(variable, "").strip() for variable in _ENV.findall(value))
        }

    def without_keys(self, text: str) -> str:
        """Mask the values of the headers in a text from outside: an engine may repeat them."""
        for value in self.sent_headers().values():
            text = text.replace(value, "***").replace(value.rpartition(" ")[2], "***")
        return text


@cache
def presets() -> Mapping[str, Any]:
    """Return the bundled engines, as tables."""
    return tomllib.loads(_presets_text())


def _presets_text() -> str:
    return (files("r2med.engines") / "presets.toml").read_text("utf-8")


def preset_text(name: str) -> str:
    """Return a bundled engine in the form of a user's file.

    >>> print(preset_text("qdrant").splitlines()[1])
    path = "collections/{index}/points/query"
    """
    lines: list[str] = []
    inside = False
    for line in _presets_text().splitlines():
        if heading := re.fullmatch(r"\[([\w-]+)(?:\.(\w+))?\]", line):
            inside = heading[1] == name
            line = f"[{heading[2]}]" if heading[2] else ""
        if inside and (line or lines):
            lines.append(line)
    return "\n".join(lines).rstrip() + "\n"


def read_request(engine: str, *, vector: bool) -> EngineRequest:
    """Return the requests of a preset or of a TOML file, for searches by text or by vector."""
    bundled = not engine.endswith(".toml")
    if bundled:
        if engine not in presets():
            raise SpecError(f"http: unknown engine {engine!r}{suggest(engine, presets())} (or a file engine.toml)")
        table = convert(presets()[engine], _EngineTable, engine, SpecError)
    else:
        advice = f"http takes one of {', '.join(presets())}, or a file"
        table = read_toml(expanded(engine), _EngineTable, advice=advice, error=SpecError)
    kind = "vector" if vector else "query"
    body, item = getattr(table, kind), getattr(table, f"{kind}_item")
    if body is None:
        how = "searches by text; leave encoder out" if vector else "searches by vectors; give encoder=..."
        raise SpecError(f"http: {engine} {how}" if bundled else f"{engine}: no table [{kind}]")
    try:
        orjson.dumps([body, item])
    except TypeError as error:
        raise DataError(f"{engine}: has a value that cannot be sent as JSON ({error})") from error
    for header, value in table.headers.items():
        if "{" in _ENV.sub("", value):
            raise SpecError(f"{engine}: headers.{header} has a placeholder that is none; a key is {{env:NAME}}")
    merged = {**table.reply, **(table.vector_reply if vector else {})}
    reply = convert({"reply": merged}, _ReplyTable, engine, SpecError).reply
    texts = [*_texts(body), *_texts(item)]
    templates = [*((f"[{kind}]", text, _PLACES) for text in texts), ("path", table.path, ("index",))]
    for where, text, places in templates:
        for place in _ANY_PLACE.findall(text):
            if place not in places:
                raise SpecError(f"{engine}: {where} cannot hold {{{place}}}{suggest(place, places)}")
    if not any(f"{{{kind}}}" in text or f"{{{kind}_json}}" in text for text in texts):
        raise SpecError(f"{engine}: [{kind}] has no {{{kind}}}: every query would be asked for alike")
    if item is not None and not (reply.lists and any("{items}" in text for text in _texts(body))):
        raise SpecError(f"{engine}: [{kind}_item] needs {{items}} in [{kind}], and reply.lists")
    if table.batch > 1 and item is None:
        raise SpecError(f"{engine}: batch = {table.batch} needs a table [{kind}_item]")
    settings = {name: getattr(table, name) for name in _EngineSettings.__struct_fields__}
    return EngineRequest(name=engine, reply=reply, body=body, item=item, **settings)


def _texts(value: Any) -> list[str]:
    """Return all texts in a template, names included."""
    if isinstance(value, Mapping):
        return [text for pair in value.items() for part in pair for text in _texts(part)]
    if isinstance(value, list):
        return [text for part in value for text in _texts(part)]
    return [value] if isinstance(value, str) else []


def fill(template: Any, values: Mapping[str, Any]) -> Any:
    """Fill the placeholders of a template; one that is a whole string keeps the type of its value.

    >>> fill({"size": "{k}", "match": {"{field}": "about {query}"}}, {"k": 3, "field": "text", "query": "fever"})
    {'size': 3, 'match': {'text': 'about fever'}}
    """
    if isinstance(template, Mapping):
        return {str(fill(name, values)): fill(value, values) for name, value in template.items()}
    if isinstance(template, list):
        return [fill(value, values) for value in template]
    if not isinstance(template, str):
        return template
    whole = _PLACE.fullmatch(template)
    if whole and whole[1] in values:
        return values[whole[1]]
    return _PLACE.sub(lambda match: _text(values[match[1]]) if match[1] in values else match[0], template)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


class NoSuchPath(Exception):
    """A path that leads to nothing; `there` is the value found in its place."""

    def __init__(self, path: str, there: Any, kind: str = "") -> None:
        types = {type(None): "null", bool: "true or false", int: "a number", float: "a number", str: "a text"}
        names = ", ".join(map(str, there)) if isinstance(there, Mapping) else types.get(type(there), "a list")
        super().__init__(f"has no {kind}{path!r} (there is: {names[:120] or 'nothing'})")


class UnusableHit(ValueError):
    """A hit whose id or score is not valid."""


def follow(value: Any, path: str) -> Any:
    """Return the value at a path.

    >>> follow({"hits": {"hits": [{"_id": "d1"}]}}, "hits.hits.0._id")
    'd1'
    """
    for name in path.split(".") if path else ():
        if isinstance(value, Mapping) and name in value:
            value = value[name]
        elif isinstance(value, Sequence) and not isinstance(value, str) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            raise NoSuchPath(path, value)
    return value


def message_of(reply: Any) -> str:
    """Return the message of a reply; empty if there is none."""
    message = reply.get("message") if isinstance(reply, Mapping) else None
    return _one_line(message) if message else ""


def _one_line(value: Any) -> str:
    return " ".join(_text(value).split())[:200]


def _score(document: str, value: Any) -> float:
    score = number_of(value)
    if not math.isfinite(score):
        raise UnusableHit(f"has the score {_written(value)} for {shorten(document)!r}, which is not a number")
    return score


def number_of(value: Any) -> float:
    """Return a score, which some engines write as a text; NaN for anything else."""
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return math.nan


def _written(value: Any) -> str:
    return shorten(orjson.dumps(value, default=str).decode())
