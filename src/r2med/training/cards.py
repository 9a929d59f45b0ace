"""Cards in Markdown of training data and of trained models, from their records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import orjson
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from r2med.formatting import money
from r2med.measure.figure import Figure
from r2med.training.settings import DENSE, LATE, RERANKER, SPARSE


@cache
def _template(name: str) -> Template:
    environment = Environment(
        loader=PackageLoader("r2med.training"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters: dict[str, Callable[..., str]] = {
        "count": "{:,}".format,
        "figure": lambda values: str(Figure(*values)),
        "json": lambda value: orjson.dumps(value, option=orjson.OPT_INDENT_2).decode(),
        "money": money,
        "remarks": _remarks,
    }
    environment.filters |= filters
    return environment.get_template(name)


def data_card(name: str, record: Mapping[str, Any]) -> str:
    """Return the card of training data."""
    return _template("data.md").render(record, name=name, held_out_text=held_out_text(record))


def held_out_text(record: Mapping[str, Any]) -> str:
    """Return a sentence on how separate the parts are."""
    held = record["held_out"]
    counts = f"{held['questions']:,} questions are {held['groups']:,} groups that have nothing in common"
    if not record["rows"]["dev"]:
        return f"{counts}, the largest of {held['largest']:,}; none is held out"
    shared = f"{held['shared_questions']:,} questions and {held['shared_positives']:,} positives"
    return f"{counts}; train and dev share {shared}"


def _remarks(step: Mapping[str, Any]) -> str:
    kinds = ("dropped", "failed", "marks")
    remarks = "; ".join(f"{count:,} {kind}: {reason}" for kind in kinds for reason, count in step[kind].items())
    return remarks.replace("|", "\\|")


_NAMES = {
    DENSE: ("dense retriever", "sentence-transformers"),
    SPARSE: ("learned sparse retriever", "sparse-encoder"),
    LATE: ("late-interaction retriever", "multi-vector-encoder"),
    RERANKER: ("reranker", "cross-encoder"),
}


def model_card(name: str, record: Mapping[str, Any]) -> str:
    """Return the card of a model."""
    noun, tag = _NAMES[record["kind"]]
    versions = [f"{library} {version}" for library, version in record["libraries"].items() if version]
    facts = {"noun": noun, "tag": tag, "versions": versions, "steps_taken": steps_taken(record)}
    return _template("model.md").render(record, name=name, **facts)


def steps_taken(record: Mapping[str, Any]) -> str:
    """Return the number of steps taken, and the number asked for if the data gave no further batch.

    >>> steps_taken({"steps": 2, "settings": {"train": {"steps": 4}}})
    '2 steps of the 4 asked for, as no further batch could be made,'
    """
    asked, steps = record["settings"]["train"]["steps"], f"{record['steps']:,} steps"
    if record["steps"] >= asked:
        return steps
    return f"{steps} of the {asked:,} asked for, as no further batch could be made,"
