"""Runs as JSON, a query per line (jsonl) or one object (json).

A line of jsonl is an object with the query under one of `QUERY` and its list under one of `LIST`. The values of a json
file, and a line's list, are any of

    [["document", score], ...]                  the benchmark authors' form, under "topk_pid"
    {"document": score, ...}                    the input of pytrec_eval
    [{"id": "document", "score": score}, ...]   the document under one of `DOCUMENT`
    ["document", ...]                           best first; the scores become n, n - 1, ..., 1

Ids may be numbers. Lists of one query on several lines are joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from r2med.data.formats import repeated_key
from r2med.data.run import Run
from r2med.data.run_formats.rows import FileRows, as_score
from r2med.errors import DataError
from r2med.formatting import describe, shorten

QUERY = ("id", "q_id", "query_id", "qid", "query-id")
LIST = ("topk_pid", "topk_docs", "docs", "documents", "results")
DOCUMENT = ("id", "doc_id", "p_id", "pid", "docid", "document", "corpus-id")
_UNSCORED = object()


def read_lines(data: bytes, name: str) -> FileRows:
    """Read the rows of a file with a query per line."""
    found = FileRows()
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        where = f"{name}:{number}"
        entry = _parsed(line, where)
        if not isinstance(entry, dict):
            raise DataError(f"{where}: not an object with a query and its documents")
        query, documents = pick(entry, QUERY), pick(entry, LIST)
        if query is None:
            raise DataError(f"{where}: no query id; looked for {', '.join(QUERY)}")
        if documents is None:
            raise DataError(f"{where}: no list of documents; looked for {', '.join(LIST)}")
        _add(found, _identifier(entry[query], where), entry[documents], where)
    return found


def read_object(data: bytes, name: str) -> FileRows:
    """Read the rows of a file that is one object of queries."""
    lists = _parsed(data, name)
    if not isinstance(lists, dict):
        raise DataError(f"{name}: not an object of queries, each with its documents")
    found = FileRows()
    for query, documents in lists.items():
        _add(found, query, documents, f"{name}: query {query}")
    return found


def write_lines(run: Run, _: str) -> bytes:
    """Write a query per line, in the shape of the benchmark's authors."""
    lines = []
    for query, (documents, scores) in run:
        pairs = list(zip(documents, scores.tolist(), strict=True))
        lines.append(orjson.dumps({"id": query, "topk_pid": pairs}, option=orjson.OPT_APPEND_NEWLINE))
    return b"".join(lines)


def write_object(run: Run, _: str) -> bytes:
    """Write one object: query to document to score."""
    lists = {query: dict(zip(documents, scores.tolist(), strict=True)) for query, (documents, scores) in run}
    return orjson.dumps(lists, option=orjson.OPT_APPEND_NEWLINE)


def is_lines(data: bytes) -> bool:
    """Return whether JSON text is a query per line rather than one object."""
    first, _, rest = data.strip().partition(b"\n")
    try:
        entry = orjson.loads(first)
    except orjson.JSONDecodeError:
        return False
    return bool(rest) or (isinstance(entry, dict) and None not in (pick(entry, QUERY), pick(entry, LIST)))


def pick(entry: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    """Return the first of these keys that an object has."""
    return next((key for key in keys if key in entry), None)


def _parsed(data: bytes, where: str) -> Any:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        fault = f"not JSON ({error.msg.removesuffix('.')}, column {error.colno})"
        try:
            data.decode()
        except UnicodeDecodeError:
            fault = "not UTF-8"
        # One object may span lines; a line of jsonl is in `where` already.
        line = f":{error.lineno}" if b"\n" in data else ""
        raise DataError(f"{where}{line}: {fault}") from error
    if repeated := repeated_key(data, value):
        raise DataError(f"{where}: the key {shorten(repeated)!r} is given twice")
    return value


def _add(found: FileRows, query: str, value: Any, where: str) -> None:
    """Add a query's list in any of its shapes."""
    pairs = list(_pairs(value, where))
    unscored = sum(score is _UNSCORED for _, score in pairs)
    rows = found.of(query)
    if unscored:
        if unscored < len(pairs):
            raise DataError(f"{where}: {unscored} of {len(pairs)} documents have no score")
        if rows.documents:
            raise DataError(f"{where}: a second list for query {query}, without scores to join the two by")
        found.unscored += 1
        pairs = [(document, len(pairs) - place) for place, (document, _) in enumerate(pairs)]
    for document, score in pairs:
        rows.documents.append(document)
        rows.scores.append(as_score(score, f"{where}: document {document}"))


def _pairs(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    """Yield documents and their scores."""
    if isinstance(value, dict):
        yield from value.items()
        return
    if not isinstance(value, list):
        raise DataError(f"{where}: the documents are neither a list nor an object")
    for item in value:
        if isinstance(item, list) and len(item) == 2:
            yield _identifier(item[0], where), item[1]
        elif isinstance(item, dict) and (key := pick(item, DOCUMENT)) is not None:
            yield _identifier(item[key], where), item.get("score", _UNSCORED)
        else:
            yield _identifier(item, where), _UNSCORED


def _identifier(value: Any, where: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise DataError(f"{where}: expected an id, found {describe(value)}")
