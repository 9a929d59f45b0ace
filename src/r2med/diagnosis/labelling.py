"""`r2med label`: a language model sorts queries into a few classes, for slicing; any other reply is not a label."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

import click

from r2med.cli.execution import asking, asking_options
from r2med.cli.options import ManyValues, json_option, write_json
from r2med.data.dataset import Texts
from r2med.data.labels import write_labels
from r2med.data.loader import load
from r2med.data.problems import Findings
from r2med.data.tasks import resolve
from r2med.data.texts import read_queries
from r2med.errors import R2medError, suggest
from r2med.llm.budget import account
from r2med.llm.cards import find_model
from r2med.llm.client import current_client
from r2med.llm.parsing import read_class
from r2med.llm.types import Failed, Model
from r2med.models.templates import Template
from r2med.pipeline.executor.local import Progress, every_share, postponed_as
from r2med.settings import read_toml
from r2med.store.files import expanded
from r2med.usage import Usage

_ANY_PROMPT = """
Sort a text into one of these classes:
{classes}

The text:
{query}

Name exactly one class, in one line and with nothing after it:
Class: <one of the classes>
"""
"""What a model is asked for classes that come without a prompt."""


@dataclass(frozen=True)
class Scheme:
    """Classes to choose from, and the prompt that asks for one of them."""

    name: str
    classes: tuple[str, ...]
    prompt: Template

    def fill(self, query: str) -> str:
        """Fill in the prompt that asks for the class of a query."""
        return self.prompt.fill({"query": query, "classes": "\n".join(f"- {name}" for name in self.classes)})


@cache
def schemes() -> Mapping[str, Scheme]:
    """Return every labelling scheme that comes with r2med.

    >>> len(schemes()["body-system"].classes)
    12
    """
    file = resources.files("r2med.diagnosis").joinpath("schemes.toml")
    tables = tomllib.loads(file.read_text("utf-8"))
    return {
        name: Scheme(name, tuple(table["classes"]), Template(table["prompt"].strip(), source=f"schemes.toml:{name}"))
        for name, table in tables.items()
    }


def scheme(name: str) -> Scheme:
    """Return the scheme of a name, or of a file (`.toml`) with `classes`, and a `prompt` if it needs its own."""
    if not name.endswith(".toml"):
        if name not in schemes():
            near = suggest(name, schemes())
            raise R2medError(f"no labels by {name!r}{near}; classes of your own are in a file NAME.toml")
        return schemes()[name]
    path = expanded(name)
    table = read_toml(path, ("classes", "prompt"))
    classes, prompt = table.get("classes"), table.get("prompt", _ANY_PROMPT)
    if not isinstance(classes, list) or not all(isinstance(name, str) and name.strip() for name in classes):
        raise R2medError(f'{path}: must have classes = ["...", "..."], each of them a text')
    if len(classes) < 2 or len({name.casefold() for name in classes}) < len(classes):
        raise R2medError(f"{path}: must have two classes or more, and each of them once")
    if any(re.search(r"[\t\r\n]", name) for name in classes):
        raise R2medError(f"{path}: a class may hold no tab or line break")
    missing = [place for place in ("{query}", "{classes}") if not isinstance(prompt, str) or place not in prompt]
    if missing:
        raise R2medError(f"{path}: the prompt must be a text with {' and '.join(missing)} in it")
    return Scheme(path.stem, tuple(classes), Template(prompt.strip(), source=str(path)))


@dataclass(frozen=True)
class Labelled:
    """Labels by a model of some queries."""

    labels: Mapping[str, str]
    unparsable: Mapping[str, str] = field(default_factory=dict)
    """Queries whose reply names no class, or more than one, with what was said."""
    failed: Mapping[str, str] = field(default_factory=dict)  # queries that no reply came for, and why
    account: Usage = field(default_factory=Usage)


def label_queries(queries: Texts, by: Scheme, model: Model, progress: Progress | None = None) -> Labelled:
    """Ask a model for the class of each query, without chance where the model has a say in that."""
    if model.sampling.temperature is not None:
        model = replace(model, sampling=replace(model.sampling, temperature=0.0))
    requests = [model.request(by.fill(text)) for text in queries.texts]
    replies = current_client().ask_all(requests, progress)
    labels, unparsable, failed = {}, {}, {}
    for query, reply in zip(queries.ids, replies, strict=True):
        label = read_class(reply.text, by.classes)
        if label is not None:
            labels[query] = label
        elif isinstance(reply, Failed):
            failed[query] = reply.incomplete
        else:
            unparsable[query] = reply.incomplete or " ".join(reply.text.split())[:200]
    current_client().reject(reply for query, reply in zip(queries.ids, replies, strict=True) if query in unparsable)
    return Labelled(labels, unparsable, failed, account(replies))


@click.command("label", cls=ManyValues)
@click.argument("queries", nargs=-1, required=True, metavar="QUERIES...")
@click.option("--by", default="body-system", show_default=True, metavar="SCHEME|FILE.toml", help="Into which classes.")
@click.option("--llm", required=True, metavar="MODEL", help="Such as gpt-4o, NAME@http://host:port/v1 or local.")
@click.option("--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="The table to write.")
@asking_options
@json_option()
def label_command(queries: tuple[str, ...], by: str, llm: str, out: Path, as_json: bool, **settings: Any) -> None:
    """Sort queries into classes by a language model, for r2med diagnose --slices --labels.

    QUERIES are tasks, groups, folders, or a file of queries (query.jsonl). The table has a line for each query that
    the model named exactly one class for; the others are counted, never guessed. Answers are kept, so that the same
    command asks for what is missing only. A file of your own has classes = ["...", "..."], and a prompt with {classes}
    and {query} in it where the usual one does not say enough.

    \b
    Examples:
      r2med label sample --by body-system --llm gpt-4o --out body_system.tsv
      r2med label sample --by urgency.toml --llm gpt-4o --out urgency.tsv
    """
    classes, model = scheme(by), find_model(llm)
    rows: list[tuple[str, str, str]] = []
    lost: dict[str, dict[str, str]] = {"unparsable": {}, "failed": {}}
    with asking(**settings) as executor:

        def ask_about(task: str, texts: Texts) -> tuple[str, Labelled]:
            name = task or "queries"
            with executor.progress(f"label {name}", len(texts)) as bar, postponed_as(name):
                return task, label_queries(texts, classes, model, bar)

        labelled = every_share(partial(ask_about, *row) for row in _texts(queries))
    money = sum((answers.account for _, answers in labelled), Usage()).cost
    for task, answers in labelled:
        rows += [(task, query, label) for query, label in answers.labels.items()]
        prefix = f"{task} " if task else ""
        lost["unparsable"] |= {prefix + query: reply for query, reply in answers.unparsable.items()}
        lost["failed"] |= {prefix + query: why for query, why in answers.failed.items()}
    if not rows:
        (query, why), *others = (lost["unparsable"] | lost["failed"]).items()
        raise R2medError(
            f"none of {len(others) + 1:,} queries got a label, so that {out} is not written;"
            f" the first is {query}: {why!r}"
        )
    write_labels(out, rows)
    counts = Counter(label for _, _, label in rows)
    summary = {name: counts[name] for name in classes.classes}
    if as_json:
        write_json({"labels": summary, **lost, "cost": money, "file": str(out)})
        return
    for label, count in summary.items():
        click.echo(f"{count:6,}  {label}")
    for what, queries_lost in lost.items():
        if queries_lost:
            first, why = next(iter(queries_lost.items()))
            click.echo(f"{len(queries_lost):6,}  {what}, the first {first}: {why!r}")
    price = "at an unknown price" if money is None else f"for ${money:.4f}"
    click.echo(f"{len(rows)} labels are in {out}, {price}", err=True)


def _texts(names: tuple[str, ...]) -> Iterator[tuple[str, Texts]]:
    """Yield the queries of each task, or of each file, which belongs to no task."""
    for name in names:
        if Path(name).is_file():
            findings = Findings()
            table = read_queries([Path(name)], findings)
            findings.raise_errors(name)
            yield "", Texts(table.ids, table.texts)
        else:
            for task in resolve([name]):
                yield task.name, load(task).collection.queries
