"""The card of a trained model: what it was made of, how, and how well it does on what was held out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from r2med.train.run_settings import DENSE, LATE, RERANKER, SPARSE

_NOUNS = {
    DENSE: "dense retriever",
    SPARSE: "learned sparse retriever",
    LATE: "late-interaction retriever",
    RERANKER: "reranker",
}
_TAGS = {
    DENSE: "sentence-transformers",
    SPARSE: "sparse-encoder",
    LATE: "multi-vector-encoder",
    RERANKER: "cross-encoder",
}


def card_text(name: str, record: Mapping[str, Any]) -> str:
    """The card."""
    return "\n".join(_lines(name, record)) + "\n"


def _lines(name: str, record: Mapping[str, Any]) -> Iterator[str]:
    base, questions = record["base"], record["questions"]
    yield from ("---", "library_name: sentence-transformers", "tags:", f"- {_TAGS[record['kind']]}", "---", "")
    yield from (f"# {name}", "", f"A {_NOUNS[record['kind']]} trained with r2med {record['r2med']}.", "")
    yield f"Base: {base['name']} ({base['version']}). Loss: {record['loss']}, {steps_taken(record)} on"
    yield f"{questions['train']:,} questions; {questions['dev']:,} were held out."
    yield ""
    system = f"bm25 >> ./{name}" if record["kind"] == RERANKER else f"./{name}"
    yield f'Measure it: `r2med run "{system}" --tasks ...`'
    yield from ("", "## Data", "", "| file | fingerprint | made from | licence |", "|---|---|---|---|")
    for data in record["data"]:
        yield f"| {data['file']} | {data['fingerprint']} | {data['origin']} | {data['licence']} |"
    yield ""
    for data in record["data"]:
        yield from _leakage_lines(data)
    yield from _dev_lines(record["dev"])
    versions = ", ".join(f"{library} {version}" for library, version in record["libraries"].items() if version)
    yield from ("## Settings", "", versions, "", "```json")
    yield orjson.dumps(record["settings"], option=orjson.OPT_INDENT_2).decode()
    yield "```"


def steps_taken(record: Mapping[str, Any]) -> str:
    """How many steps were taken; and of how many, where the data gave no further batch.

    >>> steps_taken({"steps": 2, "settings": {"train": {"steps": 4}}})
    '2 steps of the 4 asked for, as no further batch could be made,'
    """
    wanted, taken = record["settings"]["train"]["steps"], f"{record['steps']:,} steps"
    return (
        taken
        if record["steps"] >= wanted
        else f"{taken} of the {wanted:,} asked for, as no further batch could be made,"
    )


def _leakage_lines(data: Mapping[str, Any]) -> Iterator[str]:
    """What a reader of scores must know of the data."""
    found = data["leakage"] or {}
    checked = ", ".join(found.get("checked", ())) or "no task"
    yield f"{data['file']} was compared with: {checked}."
    if found.get("allow_leakage") and found.get("affected_rows"):
        yield f"**{found['affected_rows']:,} rows hold queries or positives of these tasks.**"
    if found.get("unchecked"):
        yield f"**It was not compared with {len(found['unchecked']):,} tasks that could not be had.**"
    yield ""


def _dev_lines(dev: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    if not dev["after"]:
        return
    yield from ("## Held-out questions", "", "Means x 100 with 95% intervals over questions.", "")
    yield from ("| measure | base | trained |", "|---|---:|---:|")
    for measure, after in dev["after"].items():
        yield f"| {measure} | {_interval(dev['before'][measure])} | {_interval(after)} |"
    yield ""


def _interval(ends: Any) -> str:
    mean, low, high = (100 * value for value in ends)
    return f"{mean:.2f} [{low:.2f}, {high:.2f}]"
