"""PLAID beside exact late interaction: seconds of building and searching, size, and what is lost.

    python benchmarks/plaid.py FOLDER MODEL [--documents 1296,5183] [--queries 50] [--rounds 3]

FOLDER is a collection such as SciFact, MODEL a late-interaction model. Needs an interpreter with `r2med[plaid]`. Texts
are encoded once, with vectors in float16. Then the best 100 documents of some queries are searched for among the first
so many documents: exactly, and by fast-plaid with each of the settings below, whose candidates are ranked exactly as
`colbert(MODEL, index=plaid)` does. All take turns in one process, ROUNDS times after one round that does not count;
shown are median processor seconds a query, as they are and as a multiple of exact search, and the share of the exact
lists that was not found. Building is timed once, for settings that need an index of their own.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

import r2med
from r2med.data.dataset import Texts
from r2med.encode.approximate import recall_lost
from r2med.encode.encoder import Role, Vectors
from r2med.encode.maxsim import MaxSimIndex
from r2med.encode.plaid import PlaidSettings
from r2med.encode.token_encoding import encode_tokens
from r2med.pipeline.engine import Engine
from r2med.pipeline.stage import Context
from r2med.storage.cache import Cache

DEPTH = 100
SETTINGS = ("plaid", "plaid(n_full_scores=1000)", "plaid(n_ivf_probe=2, n_full_scores=1000)", "plaid(nbits=2)")


class Contestant(NamedTuple):
    """A search, and what it took to get ready for it."""

    search: Callable[[], np.ndarray]
    build: float | None
    megabytes: float


def vectors(folder: Path, model: str, count: int, queries: int) -> tuple[MaxSimIndex, list[Vectors]]:
    """The first so many documents, and queries evenly drawn from all."""
    collection, context = r2med.load(folder).collection, Context(Cache.default(), Engine())
    stage = r2med.ColBERT(model)
    some = Texts(collection.documents.ids[:count], collection.documents.texts[:count])
    documents = encode_tokens(stage.encoder, some, Role.DOCUMENT, context, "float16")
    asked = encode_tokens(stage.encoder, collection.queries, Role.QUERY, context)
    places = np.linspace(0, len(asked) - 1, queries).astype(int)
    return MaxSimIndex(documents, unit=stage.card.normalize), [asked.of(place) for place in places.tolist()]


def contestants(exact: MaxSimIndex, queries: list[Vectors], folder: Path) -> dict[str, Contestant]:
    """Exact search, and every setting with its index."""
    ties = np.arange(len(exact.documents))
    found = {"exact": Contestant(lambda: exact.search(queries, DEPTH, ties).places, None, exact.nbytes / 1e6)}
    built: dict[str, Path] = {}
    for spec in SETTINGS:
        settings, seconds = PlaidSettings.read(spec, DEPTH), None
        key = str(settings.index_key())
        if key not in built:
            built[key] = folder / str(len(built))
            built[key].mkdir()
            start = time.process_time()
            settings.write(exact.documents, built[key])
            seconds = time.process_time() - start
        index = settings.open(exact, built[key], 0)
        search = lambda index=index: index.search(queries, DEPTH, ties)[0].places  # noqa: E731
        found[spec] = Contestant(search, seconds, index.nbytes / 1e6)
    return found


def race(all_of_them: dict[str, Contestant], rounds: int) -> dict[str, float]:
    """Median processor seconds of each; in turn, so that what else the machine does meets all of them alike."""
    spent: dict[str, list[float]] = {name: [] for name in all_of_them}
    for _ in range(rounds):
        for name, contestant in all_of_them.items():
            start = time.process_time()
            contestant.search()
            spent[name].append(time.process_time() - start)
    return {name: float(np.median(times)) for name, times in spent.items()}


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.argument("model")
@click.option("--documents", default="1296,5183")
@click.option("--queries", default=50)
@click.option("--rounds", default=3)
def main(folder: Path, model: str, documents: str, queries: int, rounds: int) -> None:
    for count in map(int, documents.split(",")):
        exact, asked = vectors(folder, model, count, queries)
        tokens, mean = int(exact.documents.count.sum()), np.mean([len(query) for query in asked])
        print(f"\n{count:,} documents, {tokens:,} tokens, {queries} queries of {mean:.0f} tokens\n")
        print("| search | building, s | a query, s | times exact | on disk, MB | lost, % |\n|---|---|---|---|---|---|")
        with tempfile.TemporaryDirectory() as scratch:
            every = contestants(exact, asked, Path(scratch))
            lists = {name: contestant.search() for name, contestant in every.items()}
            spent = race(every, rounds)
            for name, seconds in spent.items():
                build = "" if every[name].build is None else f"{every[name].build:.0f}"
                times, lost = seconds / spent["exact"], 100 * recall_lost(lists[name], lists["exact"])
                size = every[name].megabytes
                print(f"| {name} | {build} | {seconds / queries:.3f} | {times:.1f} | {size:.0f} | {lost:.2f} |")


if __name__ == "__main__":
    main()
