"""Labels of queries for slicing: a language model names one of a few classes per query; any other reply is no label."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path

from r2med.data.dataset import Texts
from r2med.errors import R2medError, suggest
from r2med.llm.budget import account
from r2med.llm.client import current_client
from r2med.llm.parsing import read_class
from r2med.llm.types import Failed, Model, Reply
from r2med.models.templates import Template
from r2med.pipeline.executor.local import Progress
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
    if name.endswith(".toml"):
        return _own_scheme(expanded(name))
    if name not in schemes():
        raise R2medError(
            f"no labels by {name!r}{suggest(name, schemes())}; classes of your own are in a file NAME.toml"
        )
    return schemes()[name]


def _own_scheme(path: Path) -> Scheme:
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
    failed: Mapping[str, str] = field(default_factory=dict)
    """Queries that no reply came for, and why."""
    account: Usage = field(default_factory=Usage)


def label_queries(queries: Texts, by: Scheme, model: Model, progress: Progress | None = None) -> Labelled:
    """Ask a model for the class of each query, without chance where the model has a say in that."""
    if model.sampling.temperature is not None:
        model = replace(model, sampling=replace(model.sampling, temperature=0.0))
    requests = [model.request(by.fill(text)) for text in queries.texts]
    replies = current_client().ask_all(requests, progress)
    labels, unparsable, failed = {}, {}, {}
    for query, reply in zip(queries.ids, replies, strict=True):
        label = read_class(reply.text, by.classes) if isinstance(reply, Reply) else None
        if label is not None:
            labels[query] = label
        elif isinstance(reply, Failed):
            failed[query] = reply.reason
        else:
            unparsable[query] = reply.incomplete or " ".join(reply.text.split())[:200]
    current_client().reject(reply for query, reply in zip(queries.ids, replies, strict=True) if query in unparsable)
    return Labelled(labels, unparsable, failed, account(replies))


def counts(labels: Iterable[str], classes: Sequence[str]) -> dict[str, int]:
    """Count the queries of each class, in the order of the classes."""
    found = Counter(labels)
    return {name: found[name] for name in classes}
