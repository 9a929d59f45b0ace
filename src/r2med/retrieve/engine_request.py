"""How a search engine is asked over HTTP, as data: a bundled preset or a file of the user's own."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

import orjson

from r2med.errors import DataError, SpecError, suggest
from r2med.storage.files import expanded

_PLACE = re.compile(
    r"\{(query|query_json|k|candidates|vector|vector_json|items|index|field|vector_field|id_field|ranking)\}"
)
_ENV = re.compile(r"\{env:([A-Za-z_]\w*)\}")
_KEYS = (
    "versions", "method", "url", "path", "headers", "reply", "vector_reply", "largest", "batch",
    "query", "query_item", "vector", "vector_item",
)  # fmt: skip


@dataclass(frozen=True)
class ReplyPaths:
    """Where in a reply things are: names and places joined by dots, such as `hits.hits` or `data.0.id`."""

    hits: str
    id: str
    score: str = ""
    """Empty where hits have no score; they then count by their order."""
    lists: str = ""
    """The list of replies, where several queries are asked at once; all other paths are inside each of them."""
    errors: tuple[str, ...] = ()
    """What must be absent, false, 0 or empty: anything else says that the search failed."""
    lower: bool = False
    """Whether a lower score is better."""
    optional: bool = False
    """Whether a reply without hits says that nothing was found."""


@dataclass(frozen=True)
class EngineRequest:
    """One engine's requests and replies."""

    name: str
    path: str
    reply: ReplyPaths
    body: Any
    """The request, with placeholders."""
    item: Any = None
    """What stands for each query in `{items}`."""
    method: str = "POST"
    url: str = ""
    versions: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    largest: int = 0
    """The most hits that the engine gives at a time; 0 where it has no such limit."""
    batch: int = 1

    def keys(self) -> list[str]:
        """The environment variables that headers are made with."""
        return [name for value in self.headers.values() for name in _ENV.findall(value)]

    def sent_headers(self) -> dict[str, str]:
        """The headers with their keys; one whose variable is not set is left out."""
        ready = {name: value for name, value in self.headers.items() if all(map(os.environ.get, _ENV.findall(value)))}
        return {name: _ENV.sub(lambda match: os.environ[match[1]].strip(), value) for name, value in ready.items()}


@cache
def presets() -> Mapping[str, Any]:
    """The bundled engines, as tables."""
    return tomllib.loads(_presets_text())


def _presets_text() -> str:
    return (files("r2med.retrieve") / "engines.toml").read_text("utf-8")


def preset_text(name: str) -> str:
    """A bundled engine as a file of the user's own would have it.

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
    """The requests of a preset or of a TOML file, for searches by text or by vector."""
    if not engine.endswith(".toml"):
        if engine not in presets():
            raise SpecError(f"http: unknown engine {engine!r}{suggest(engine, presets())} (or a file engine.toml)")
        return _request(engine, presets()[engine], vector)
    path = expanded(engine)
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{engine}: no such file; http takes one of {', '.join(presets())}, or a file") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"{engine}: cannot be read as TOML ({error})") from error
    return _request(engine, table, vector)


def _request(name: str, table: Mapping[str, Any], vector: bool) -> EngineRequest:
    for key in table:
        if key not in _KEYS:
            raise SpecError(f"{name}: unknown key {key!r}{suggest(key, _KEYS)}")
    kind = "vector" if vector else "query"
    if kind not in table:
        how = "searches by text only; leave encoder out" if vector else "searches by vectors; give encoder=..."
        raise SpecError(f"http: {name} {how}" if name in presets() else f"{name}: no table [{kind}]")
    reply = {**table.get("reply", {}), **(table.get("vector_reply", {}) if vector else {})}
    wanted = {"hits": str, "id": str, "score": str, "lists": str, "errors": list, "lower": bool, "optional": bool}
    for key, value in reply.items():
        if key not in wanted or not isinstance(value, wanted[key]):
            raise SpecError(f"{name}: reply.{key} is not a setting of that kind{suggest(key, wanted)}")
    if not {"hits", "id"} <= reply.keys():
        raise SpecError(f"{name}: [reply] must say where hits and id are")
    for key, type_ in (("largest", int), ("batch", int), ("url", str), ("path", str), ("headers", dict)):
        if not isinstance(table.get(key, type_()), type_):
            raise SpecError(f"{name}: {key} is {table[key]!r}, not {_WORDS[type_]}")
    method = table.get("method", "POST")
    if method not in ("POST", "GET"):
        raise SpecError(f"{name}: method must be POST or GET, not {method!r}")
    paths = ReplyPaths(**{**reply, "errors": tuple(reply.get("errors", ()))})
    return EngineRequest(
        name, table.get("path", ""), paths, table[kind], table.get(f"{kind}_item"), method, table.get("url", ""),
        str(table.get("versions", "")), table.get("headers", {}), table.get("largest", 0), table.get("batch", 1),
    )  # fmt: skip


_WORDS = {int: "a whole number", str: "a text", dict: "a table"}


def fill(template: Any, values: Mapping[str, Any]) -> Any:
    """A template with its placeholders filled; one that is a whole string keeps the type of its value.

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


def filled_reply(reply: ReplyPaths, values: Mapping[str, Any]) -> ReplyPaths:
    """The paths of a reply with placeholders such as `{id_field}` filled."""
    return replace(reply, hits=fill(reply.hits, values), id=fill(reply.id, values), score=fill(reply.score, values))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


class NoSuchPath(Exception):
    """A path that leads nowhere; `there` is what was found in its place."""

    def __init__(self, path: str, there: Any) -> None:
        names = ", ".join(map(str, there)) if isinstance(there, Mapping) else type(there).__name__
        super().__init__(f"has no {path!r} (there is: {names[:120] or 'nothing'})")


def follow(value: Any, path: str) -> Any:
    """What is at a path.

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


def problem(reply: Any, paths: ReplyPaths) -> str:
    """What a reply says went wrong; empty when nothing did."""
    for path in paths.errors:
        try:
            value = follow(reply, path)
        except NoSuchPath:
            continue
        if value:
            said = reply.get("message") if isinstance(reply, Mapping) else None
            line = " ".join(_text(said or value).split())
            return f"{path}: {line[:200]}"
    return ""


def hits_of(reply: Any, paths: ReplyPaths, chunk: re.Pattern[str] | None) -> list[tuple[str, float]] | list[str]:
    """The documents of a reply with their scores, or without; of a document's chunks the best one counts."""
    try:
        hits = follow(reply, paths.hits)
    except NoSuchPath:
        if not paths.optional:
            raise
        hits = []
    ids = [_document(follow(hit, paths.id), chunk) for hit in hits]
    if not paths.score:
        return list(dict.fromkeys(ids)) if chunk else ids
    sign = -1.0 if paths.lower else 1.0
    pairs = [(name, sign * float(follow(hit, paths.score))) for name, hit in zip(ids, hits, strict=True)]
    if chunk is None:
        return pairs
    best: dict[str, float] = {}
    for name, score in pairs:
        best[name] = max(score, best.get(name, score))
    return list(best.items())


def _document(value: Any, chunk: re.Pattern[str] | None) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"an id that is {value!r}")
    match = chunk.match(str(value)) if chunk else None
    return match[1] if match else str(value)
