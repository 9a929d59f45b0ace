"""Small sources of nano sets, in memory and in folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from data.folders import Content, write_r2med
from r2med.data.dataset import Collection, Dataset, Gold, Texts
from r2med.data.tasks import Task
from r2med.pipeline.executor.local import quiet
from r2med.pipeline.stage import Context
from r2med.store.cache import Cache

WORDS = "iron ferritin hepcidin kidney renal anemia lupus sarcoid fever cough marrow spleen liver copper zinc".split()


def context() -> Context:
    return Context(Cache.default(), quiet())


def dataset(
    documents: Sequence[tuple[str, str]], queries: Sequence[tuple[str, str]], qrels: Mapping[str, Mapping[str, int]]
) -> Dataset:
    def column(rows: Sequence[tuple[str, str]]) -> Texts:
        return Texts([name for name, _ in rows], [text for _, text in rows])

    return Dataset(Collection(Task("mine", "mine", "custom"), column(documents), column(queries)), Gold(qrels))


def document_text(number: int) -> str:
    """A text that shares some words with its neighbours, and is like no other."""
    return " ".join([WORDS[number % 15], WORDS[(number * 7) % 13], WORDS[number % 4], f"case{number}"])


def content(documents: int = 40, queries: int = 6) -> Content:
    """A source with two relevant documents a query, one of them hard to find."""
    rows = [(f"d{number:03}", "", document_text(number)) for number in range(documents)]
    asked = [(f"q{number}", f"{WORDS[number]} {WORDS[number + 1]} why") for number in range(queries)]
    judged = [(f"q{n}", f"d{place:03}", 1) for n in range(queries) for place in (n, documents - 1 - 2 * n)]
    return Content(rows, asked, judged)


def folder(path: Path, **size: int) -> Path:
    write_r2med(path, content(**size))
    return path


def tree(path: Path) -> dict[str, bytes]:
    """Every file under a folder with its bytes."""
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}
