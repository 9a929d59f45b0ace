"""A distribution that adds a stage, an encoder and a verb to r2med."""

from __future__ import annotations

from dataclasses import dataclass

import click
import numpy as np

from r2med.data.run import Run
from r2med.pipeline.registry import spec_of
from r2med.pipeline.stage import Reranker


@dataclass(frozen=True)
class Backwards(Reranker):
    """The first documents, the worst first."""

    depth: int = 10

    @property
    def spec(self):
        return spec_of(self, "backwards")

    def rerank(self, collection, run, context):
        lists = {}
        for query, ranking in run:
            names = [*reversed(ranking.documents[: self.depth]), *ranking.documents[self.depth :]]
            lists[query] = (names, [float(-place) for place in range(len(names))])
        return Run.from_lists(lists)


class Letters:
    """How often each of the first letters occurs."""

    def __init__(self, columns: int = 8):
        self.columns = columns

    def encode_queries(self, texts):
        return np.array([[text.count(chr(97 + place)) + 1.0 for place in range(self.columns)] for text in texts])

    encode_documents = encode_queries


@click.command("hello")
def hello_command():
    """Greet from another distribution."""
    click.echo("hello from a plugin")
