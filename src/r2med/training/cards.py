"""Cards in Markdown of training data and of trained models, from their records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from r2med.formatting import money
from r2med.store.files import write_file
from r2med.training.settings import DENSE, LATE, RERANKER, SPARSE

_HEAD = ("---", "task_categories:", "- text-retrieval", "tags:", "- training-data", "---", "")


def card_path(file: Path) -> Path:
    """Return the path of a file's card."""
    return file.with_suffix(".md")


def write_card(file: Path, record: Mapping[str, Any]) -> None:
    """Write the card of a file."""
    write_file(card_path(file), "\n".join(card_lines(file.name, record)) + "\n", parents=True)


def card_lines(name: str, record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a card."""
    rows = record["rows"]
    yield from (*_HEAD, f"# {name}", "")
    yield "Questions, the reasoning that leads to their evidence, the evidence, and passages that only look like it."
    yield from ("", "| train | dev | positives | negatives |", "|---:|---:|---:|---:|")
    yield f"| {rows['train']:,} | {rows['dev']:,} | {rows['positives']:,} | {rows['negatives']:,} |"
    yield from ("", f"Made from: {record['origin']}. Licence of the texts: {record['licence']}.")
    yield "Questions and labels were written by language models, not by experts; the passage that a question was"
    yield "written from is neither its positive nor its negative."
    yield from ("", *_held_out_lines(record))
    yield from ("", *_leakage_lines(record["leakage"]), *_step_lines(record["steps"]), *_type_lines(record["types"]))
    yield from ("", "## Settings", "", "```json")
    yield orjson.dumps(record["settings"], option=orjson.OPT_INDENT_2).decode()
    yield from ("```", "", "## Prompts", "")
    for prompt, text in record["prompts"].items():
        yield from (f"### {prompt}", "", "~~~", text, "~~~", "")


def held_out_text(record: Mapping[str, Any]) -> str:
    """Return a sentence on how separate the parts are."""
    found, dev = record["held_out"], record["rows"]["dev"]
    counts = f"{found['questions']:,} questions are {found['groups']:,} groups that have nothing in common"
    if not dev:
        return f"{counts}, the largest of {found['largest']:,}; none is held out"
    shared = f"{found['shared_questions']:,} questions and {found['shared_positives']:,} positives"
    return f"{counts}; train and dev share {shared}"


def _held_out_lines(record: Mapping[str, Any]) -> Iterator[str]:
    yield f"Held out: {held_out_text(record)}. Questions of a group are equal or nearly equal, share a positive or a"
    yield "source document, or one was written from a positive of the other."


def _leakage_lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield from ("## Leakage", "")
    if found["tasks"]:
        yield from ("| task | queries found | positives found | other documents found |", "|---|---:|---:|---:|")
    for task in found["tasks"]:
        queries, positives, documents = task["queries"], task["positives"], task["documents"]
        others = documents["affected"] - positives["affected"]
        cells = [f"{share['affected']:,} of {share['total']:,}" for share in (queries, positives)]
        yield f"| {task['task']} | {' | '.join(cells)} | {others:,} of {documents['total'] - positives['total']:,} |"
    yield ""
    affected = found["affected_rows"]
    if found["dropped_rows"]:
        yield f"{affected:,} rows held queries or positives of these tasks and were left out."
    elif affected:
        yield f"**{affected:,} rows hold queries or positives of these tasks; let through by --allow-leakage.**"
        yield "A system that was trained on them must not be measured there."
    elif found["tasks"]:
        yield "No row holds a query or a positive of these tasks."
    if found["unchecked"]:
        yield f"**Not compared, let through by --allow-unchecked:** {', '.join(found['unchecked'])}."
    yield ""


def _step_lines(steps: list[Mapping[str, Any]]) -> Iterator[str]:
    yield from ("## How it was made", "", "| step | items | kept | requests | US dollars | remarks |")
    yield "|---|---:|---:|---:|---:|---|"
    for step in steps:
        spent = step["spent"]
        remarks = "; ".join(
            f"{count:,} {kind}: {reason}"
            for kind in ("dropped", "failed", "marks")
            for reason, count in step[kind].items()
        )
        asked = (f"{spent['requests']:,}", money(spent["cost"])) if spent["requests"] else ("", "")
        cells = (step["step"], f"{step['items']:,}", f"{step['kept']:,}", *asked, remarks.replace("|", "\\|"))
        yield f"| {' | '.join(cells)} |"


def _type_lines(types: Mapping[str, int]) -> Iterator[str]:
    yield from ("", "## Why negatives are wrong", "", "| type | negatives |", "|---|---:|")
    for name, count in types.items():
        yield f"| {name or '(not asked)'} | {count:,} |"


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
    """Return the text of the card."""
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
        yield from _gate_lines(data)
    yield from _dev_lines(record["dev"])
    versions = ", ".join(f"{library} {version}" for library, version in record["libraries"].items() if version)
    yield from ("## Settings", "", versions, "", "```json")
    yield orjson.dumps(record["settings"], option=orjson.OPT_INDENT_2).decode()
    yield "```"


def steps_taken(record: Mapping[str, Any]) -> str:
    """Return the number of steps taken, and the number asked for if the data gave no further batch.

    >>> steps_taken({"steps": 2, "settings": {"train": {"steps": 4}}})
    '2 steps of the 4 asked for, as no further batch could be made,'
    """
    wanted, taken = record["settings"]["train"]["steps"], f"{record['steps']:,} steps"
    return (
        taken
        if record["steps"] >= wanted
        else f"{taken} of the {wanted:,} asked for, as no further batch could be made,"
    )


def _gate_lines(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield notes on the leakage check, for readers of scores."""
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
