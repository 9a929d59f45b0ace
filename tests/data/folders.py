"""Small tasks written to disk in every layout that `load` reads."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import polars


@dataclass(frozen=True)
class Content:
    """A task's content: documents as (id, title, body), queries as (id, text), and graded judgements."""

    documents: Sequence[tuple[str, str, str]]
    queries: Sequence[tuple[str, str]]
    qrels: Sequence[tuple[str, str, int]]
    answers: Mapping[str, str] = field(default_factory=dict)

    @property
    def joined(self) -> list[tuple[str, str]]:
        """The documents as one text each."""
        return [(name, f"{title} {body}" if title and body else title or body) for name, title, body in self.documents]


SMALL = Content(
    documents=[
        ("d1", "Iron", "is carried by transferrin."),
        ("d2", "", "Hepcidin blocks ferroportin."),
        ("d3", "", "x"),
    ],
    queries=[("q1", "Why is ferritin high?"), ("q2", "What blocks iron export?")],
    qrels=[("q1", "d1", 2), ("q2", "d2", 1), ("q2", "d3", 0)],
    answers={"q1": "Inflammation."},
)


def json_lines(rows: Iterable[Mapping[str, object]]) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


def table(rows: Iterable[Sequence[object]], separator: str = "\t") -> bytes:
    return "".join(separator.join(map(str, row)) + "\n" for row in rows).encode()


def put(folder: Path, name: str, content: bytes) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)


def put_parquet(folder: Path, name: str, rows: Sequence[Sequence[object]], columns: Sequence[str]) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    data = {column: [row[place] for row in rows] for place, column in enumerate(columns)}
    polars.DataFrame(data).write_parquet(file)


def _queries(content: Content, identifier: str = "id") -> bytes:
    rows = ({identifier: name, "text": text, "answer": content.answers.get(name)} for name, text in content.queries)
    return json_lines({key: value for key, value in row.items() if value is not None} for row in rows)


def _r2med_texts(folder: Path, content: Content, suffix: str = "") -> None:
    put(folder, f"corpus.jsonl{suffix}", json_lines({"id": name, "text": text} for name, text in content.joined))
    put(folder, f"query.jsonl{suffix}", _queries(content))


def write_r2med(folder: Path, content: Content, suffix: str = "") -> None:
    _r2med_texts(folder, content, suffix)
    rows = ({"q_id": query, "p_id": document, "score": grade} for query, document, grade in content.qrels)
    put(folder, f"qrels.jsonl{suffix}", json_lines(rows))


def write_r2med_gz(folder: Path, content: Content) -> None:
    write_r2med(folder, content, ".gz")


def write_r2med_trec(folder: Path, content: Content) -> None:
    _r2med_texts(folder, content)
    put(folder, "qrels.txt", table([(query, "0", document, grade) for query, document, grade in content.qrels], " "))


def write_r2med_three_columns(folder: Path, content: Content) -> None:
    _r2med_texts(folder, content)
    put(folder, "qrels.tsv.gz", table(content.qrels))


def write_beir(folder: Path, content: Content, split: str = "test") -> None:
    rows = ({"_id": name, "title": title, "text": body, "metadata": {}} for name, title, body in content.documents)
    put(folder, "corpus.jsonl", json_lines(rows))
    put(folder, "queries.jsonl", _queries(content, "_id"))
    put(folder, f"qrels/{split}.tsv", table([("query-id", "corpus-id", "score"), *content.qrels]))


def write_parquet(folder: Path, content: Content) -> None:
    put_parquet(folder, "corpus.parquet", content.documents, ("_id", "title", "text"))
    _parquet_queries(folder, "queries.parquet", content)
    put_parquet(folder, "qrels.parquet", content.qrels, ("query-id", "corpus-id", "score"))


def _parquet_queries(folder: Path, name: str, content: Content) -> None:
    rows = [(query, text, content.answers.get(query)) for query, text in content.queries]
    put_parquet(folder, name, rows, ("id", "text", "answer"))


def write_r2med_configs(folder: Path, content: Content) -> None:
    half = len(content.documents) // 2
    for piece, rows in enumerate((content.joined[:half], content.joined[half:])):
        put_parquet(folder, f"corpus/corpus-0000{piece}-of-00002.parquet", rows, ("id", "text"))
    _parquet_queries(folder, "query/query-00000-of-00001.parquet", content)
    put_parquet(folder, "qrels/qrels-00000-of-00001.parquet", content.qrels, ("q_id", "p_id", "score"))


def write_nano(folder: Path, content: Content, split: str = "NanoR2MEDBiology") -> None:
    """The shape of NanoR2MED, which keeps positive judgements only, and no grades."""
    put_parquet(folder, f"corpus/{split}-00000-of-00001.parquet", content.joined, ("_id", "text"))
    put_parquet(folder, f"queries/{split}-00000-of-00001.parquet", content.queries, ("_id", "text"))
    pairs = [(query, document) for query, document, grade in content.qrels if grade > 0]
    put_parquet(folder, f"qrels/{split}-00000-of-00001.parquet", pairs, ("query-id", "corpus-id"))


LAYOUTS: Mapping[str, Callable[[Path, Content], None]] = {
    "r2med": write_r2med,
    "r2med-gz": write_r2med_gz,
    "r2med-trec": write_r2med_trec,
    "r2med-three-columns": write_r2med_three_columns,
    "beir": write_beir,
    "parquet": write_parquet,
    "configs": write_r2med_configs,
}
"""Every layout that keeps all of a `Content`."""
