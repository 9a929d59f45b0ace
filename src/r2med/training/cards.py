"""Cards in Markdown of training data and of trained models, from their records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from r2med.formatting import money
from r2med.measure.figure import Figure
from r2med.training.settings import DENSE, LATE, RERANKER, SPARSE


def data_card(name: str, record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the card of training data."""
    rows = record["rows"]
    yield from ("---", "task_categories:", "- text-retrieval", "tags:", "- training-data", "---", "", f"# {name}", "")
    yield "Questions, the reasoning that leads to their evidence, the evidence, and passages that only look like it."
    counts = [f"{rows[part]:,}" for part in ("train", "dev", "positives", "negatives")]
    yield from ("", *_table("train | dev | positives | negatives", "---:|---:|---:|---:", [counts]))
    yield from ("", f"Made from: {record['origin']}. Licence of the texts: {record['licence']}.")
    yield "Questions and labels were written by language models, not by experts; the passage that a question was"
    yield "written from is neither its positive nor its negative."
    yield ""
    yield f"Held out: {held_out_text(record)}. Questions of a group are equal or nearly equal, share a positive or a"
    yield "source document, or one was written from a positive of the other."
    yield from ("", "## Leakage", "", *_leakage_lines(record["leakage"]), "## How it was made", "")
    headings, rules = "step | items | kept | requests | US dollars | remarks", "---|---:|---:|---:|---:|---"
    yield from _table(headings, rules, map(_step, record["steps"]))
    types = ((name or "(not asked)", f"{count:,}") for name, count in record["types"].items())
    yield from ("", "## Why negatives are wrong", "", *_table("type | negatives", "---|---:", types))
    yield from ("", "## Settings", "", *_json(record["settings"]), "", "## Prompts", "")
    for prompt, text in record["prompts"].items():
        yield from (f"### {prompt}", "", "~~~", text, "~~~", "")
    yield ""


def _table(headings: str, rules: str, rows: Iterable[Iterable[str]]) -> list[str]:
    return [f"| {headings} |", f"|{rules}|", *(f"| {' | '.join(row)} |" for row in rows)]


def _json(settings: object) -> list[str]:
    return ["```json", orjson.dumps(settings, option=orjson.OPT_INDENT_2).decode(), "```"]


def held_out_text(record: Mapping[str, Any]) -> str:
    """Return a sentence on how separate the parts are."""
    held = record["held_out"]
    counts = f"{held['questions']:,} questions are {held['groups']:,} groups that have nothing in common"
    if not record["rows"]["dev"]:
        return f"{counts}, the largest of {held['largest']:,}; none is held out"
    shared = f"{held['shared_questions']:,} questions and {held['shared_positives']:,} positives"
    return f"{counts}; train and dev share {shared}"


def _leakage_lines(gate: Mapping[str, Any]) -> Iterator[str]:
    rows = []
    for task in gate["tasks"]:
        queries, positives, documents = task["queries"], task["positives"], task["documents"]
        shares = [(share["affected"], share["total"]) for share in (queries, positives)]
        shares.append((documents["affected"] - positives["affected"], documents["total"] - positives["total"]))
        rows.append([task["task"], *(f"{affected:,} of {total:,}" for affected, total in shares)])
    if rows:
        yield from _table("task | queries found | positives found | other documents found", "---|---:|---:|---:", rows)
    yield ""
    affected = gate["affected_rows"]
    if gate["dropped_rows"]:
        yield f"{affected:,} rows held queries or positives of these tasks and were left out."
    elif affected:
        yield f"**{affected:,} rows hold queries or positives of these tasks; let through by --allow-leakage.**"
        yield "A system that was trained on them must not be measured there."
    elif rows:
        yield "No row holds a query or a positive of these tasks."
    if gate["unchecked"]:
        yield f"**Not compared, let through by --allow-unchecked:** {', '.join(gate['unchecked'])}."
    yield ""


def _step(step: Mapping[str, Any]) -> list[str]:
    spent, kinds = step["spent"], ("dropped", "failed", "marks")
    remarks = "; ".join(f"{count:,} {kind}: {reason}" for kind in kinds for reason, count in step[kind].items())
    asked = (f"{spent['requests']:,}", money(spent["cost"])) if spent["requests"] else ("", "")
    return [step["step"], f"{step['items']:,}", f"{step['kept']:,}", *asked, remarks.replace("|", "\\|")]


_NAMES = {
    DENSE: ("dense retriever", "sentence-transformers"),
    SPARSE: ("learned sparse retriever", "sparse-encoder"),
    LATE: ("late-interaction retriever", "multi-vector-encoder"),
    RERANKER: ("reranker", "cross-encoder"),
}


def model_card(name: str, record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a model's card."""
    base, questions, (noun, tag) = record["base"], record["questions"], _NAMES[record["kind"]]
    yield from ("---", "library_name: sentence-transformers", "tags:", f"- {tag}", "---", "")
    yield from (f"# {name}", "", f"A {noun} trained with r2med {record['r2med']}.", "")
    yield f"Base: {base['name']} ({base['version']}). Loss: {record['loss']}, {steps_taken(record)} on"
    yield f"{questions['train']:,} questions; {questions['dev']:,} were held out."
    system = f"bm25 >> ./{name}" if record["kind"] == RERANKER else f"./{name}"
    yield from ("", f'Measure it: `r2med run "{system}" --tasks ...`', "", "## Data", "")
    names = ("file", "fingerprint", "made from", "licence")
    rows = ([data[column] for column in ("file", "fingerprint", "origin", "licence")] for data in record["data"])
    yield from (*_table(" | ".join(names), "---|---|---|---", rows), "")
    for data in record["data"]:
        gate = data["leakage"] or {}
        yield f"{data['file']} was compared with: {', '.join(gate.get('checked', ())) or 'no task'}."
        if gate.get("allow_leakage") and gate.get("affected_rows"):
            yield f"**{gate['affected_rows']:,} rows hold queries or positives of these tasks.**"
        if gate.get("unchecked"):
            yield f"**It was not compared with {len(gate['unchecked']):,} tasks that could not be had.**"
        yield ""
    before, after = record["dev"]["before"], record["dev"]["after"]
    if after:
        yield from ("## Held-out questions", "", "Means x 100 with 95% intervals over questions.", "")
        rows = ([measure, f"{Figure(*before[measure])}", f"{Figure(*after[measure])}"] for measure in after)
        yield from (*_table("measure | base | trained", "---|---:|---:", rows), "")
    versions = ", ".join(f"{library} {version}" for library, version in record["libraries"].items() if version)
    yield from ("## Settings", "", versions, "", *_json(record["settings"]), "")


def steps_taken(record: Mapping[str, Any]) -> str:
    """Return the number of steps taken, and the number asked for if the data gave no further batch.

    >>> steps_taken({"steps": 2, "settings": {"train": {"steps": 4}}})
    '2 steps of the 4 asked for, as no further batch could be made,'
    """
    asked, steps = record["settings"]["train"]["steps"], f"{record['steps']:,} steps"
    if record["steps"] >= asked:
        return steps
    return f"{steps} of the {asked:,} asked for, as no further batch could be made,"
