"""The arms of a study: the passages that a question is asked with, what chose them, and the prompt that shows them.

`closed` shows none, `system` and a run file the first k of a ranked list. Three are chosen by the judgements, which no
system sees, and are oracles: `gold` shows relevant passages, `random` relevant passages of other questions, and `hard`
the passages that a system ranks highest although they are not relevant. A prompt has them as numbered sources, cut to
one budget and separate from instructions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from r2med.data.dataset import Dataset
from r2med.data.run import Run
from r2med.data.run_files import read_run
from r2med.errors import R2medError, SpecError, suggest
from r2med.measure.score import positive
from r2med.models.templates import Template, bundled, delimited, own_template
from r2med.pipeline.system import System
from r2med.store.typed import Typed

KINDS = ("closed", "system", "gold", "random", "hard")  # the arms with a name, in the order of reports
_BY_SYSTEM = ("system", "hard")
_JUDGED = ("gold", "random", "hard")


class Arm(Typed, frozen=True):
    """One condition under which every question is answered."""

    kind: str  # one of `KINDS`, or `run` for the lists of a file
    label: str  # as reports name it
    system: str = ""  # the spec of the system whose lists it is made of
    file: Path | None = None  # the run file whose lists it is made of
    oracle_system: bool = False  # whether that system was itself shown gold answers

    @property
    def oracle(self) -> bool:
        """Return whether its passages were chosen by judgements or gold answers, which no system can see."""
        return self.kind in _JUDGED or self.oracle_system

    @property
    def retrieves(self) -> bool:
        """Return whether its passages are the first of a list that can be measured."""
        return self.kind in ("system", "run")

    @property
    def is_system(self) -> bool:
        """Return whether its passages are those of a system that saw no judgements."""
        return self.retrieves and not self.oracle

    @property
    def title(self) -> str:
        """Return the label, marked if it is an oracle."""
        return f"{self.label} (oracle)" if self.oracle else self.label


class ArmPassage(NamedTuple):
    """A document that a question is asked with, and its score in the list that it came from."""

    document: str
    score: float | None = None


def make_arms(systems: Sequence[str], names: Sequence[str] = ()) -> list[Arm]:
    """Build the arms of names: kinds, run files (`FILE` or `NAME=FILE`), further systems; by default all kinds.

    >>> [arm.title for arm in make_arms(["bm25"], ["closed", "system", "gold", "bm25-classic"])]
    ['closed', 'bm25', 'gold (oracle)', 'bm25-classic']
    """
    specs = list(dict.fromkeys(System.parse(text).spec for text in systems))
    labels = list(dict.fromkeys(names)) or [kind for kind in KINDS if specs or kind not in _BY_SYSTEM]
    arms: dict[str, Arm] = {}
    for name in labels:
        for arm in _arms_of(name, specs):
            if arm.label in arms and arms[arm.label] != arm:
                raise R2medError(f"two arms are called {arm.label!r}; give one another name, as in NAME=FILE")
            arms[arm.label] = arm
    return list(arms.values())


def _arms_of(name: str, specs: Sequence[str]) -> list[Arm]:
    if name in _BY_SYSTEM:
        if not specs:
            raise R2medError(f"the arm {name} needs a system: r2med rag SYSTEM --arms {name}")
        return [_of_system(name, spec) for spec in specs]
    if name in KINDS:
        return [Arm(name, name)]
    label, _, path = name.rpartition("=")
    file = Path(path).expanduser()
    if file.is_file():
        return [Arm("run", label or file.name, file=file)]
    if label and "(" not in label:
        raise R2medError(f"{path}: no such run file, for the arm {label!r}")
    try:
        return [_of_system("system", System.parse(name).spec)]
    except SpecError as error:
        why = f"{suggest(name, KINDS)}, no run file of that name, and no system: {error}"
        raise R2medError(f"no arm {name!r}{why}") from error


def _of_system(kind: str, spec: str) -> Arm:
    oracle = System.parse(spec).oracle
    return Arm(kind, spec if kind == "system" else f"{kind}: {spec}", spec, oracle_system=oracle)


def file_lists(arm: Arm, dataset: Dataset) -> Run:
    """Read the lists of a run file, for the questions of a task."""
    if arm.file is None:
        raise TypeError(f"{arm.label} has no file")
    run, _ = read_run(arm.file)
    documents = dataset.collection.documents.position
    queries = [query for query in dataset.collection.queries.ids if query in run]
    if not queries:
        raise R2medError(f"{arm.file}: none of its {len(run):,} queries is a question of {dataset.name}")
    unknown = next((name for query in queries for name in run[query].documents if name not in documents), None)
    if unknown is not None:
        raise R2medError(f"{arm.file}: document {unknown!r} is not in {dataset.name}")
    return run.select(dataset.collection.queries.ids)


def choose(arm: Arm, dataset: Dataset, run: Run | None, k: int) -> Mapping[str, Sequence[ArmPassage]]:
    """Choose the passages of every question, the best first; `run` are the lists of the arm's system or file."""
    queries = dataset.collection.queries.ids
    relevant = positive(dataset.gold.qrels)
    if arm.kind == "closed":
        return dict.fromkeys(queries, ())
    passages = {}
    for query in queries:
        grades = relevant.get(query, {})
        if arm.kind == "gold":
            passages[query] = list(map(ArmPassage, sorted(grades, key=lambda name: (-grades[name], name))[:k]))
        elif arm.kind == "random":
            # Relevant passages of other questions, the same ones every time.
            pool = {name for other, names in relevant.items() if other != query for name in names}
            passages[query] = list(map(ArmPassage, nsmallest(k, pool - set(grades), key=partial(draw, query))))
        elif run is None:
            raise TypeError(f"{arm.label} needs ranked lists")
        else:
            without = grades if arm.kind == "hard" else {}
            pairs = zip(run[query].documents, run[query].scores.tolist(), strict=True)
            passages[query] = list(islice((ArmPassage(name, score) for name, score in pairs if name not in without), k))
    return passages


def draw(query: str, document: str) -> bytes:
    """Return a place in a random order that depends on the two names alone."""
    return hashlib.blake2b(f"{query}\0{document}".encode("utf-8", "surrogatepass"), digest_size=8).digest()


ORDERS = ("ranked", "shuffled")
"""How sources are numbered: as the list has them, or by a draw that is the same for every arm."""
NO_SOURCES = "(no sources are given)"
_NEEDED = ("question", "sources")
_LETTERS = 4  # letters per token, as in every estimate without a tokenizer


@dataclass(frozen=True)
class PromptRule:
    """Rule by which the prompts of all arms are made."""

    k: int = 5  # passages at the most
    budget: int = 2000  # tokens of all passages together; each may have a k-th part of them, however few there are
    order: str = "ranked"
    prompt: str = ""  # a file in place of the prompt that comes with r2med

    def __post_init__(self) -> None:
        if self.k < 1 or self.budget < self.k:
            raise R2medError(f"k={self.k} and a budget of {self.budget} tokens: a passage needs one token at least")
        if self.order not in ORDERS:
            raise R2medError(f"no order {self.order!r}; sources are {' or '.join(ORDERS)}")

    @property
    def letters(self) -> int:
        """Return the number of letters that a passage may have."""
        return _LETTERS * (self.budget // self.k)

    def template(self) -> Template:
        """Return the prompt."""
        return own_template("answers", self.prompt, _NEEDED) if self.prompt else bundled("answer", "r2med.answers")


class ShownPassage(Typed, frozen=True):
    """A passage that was in view, under its place from 1."""

    document: str
    relevant: bool
    cut: bool  # whether the budget left some of it out
    tokens: int  # an estimate of how many it takes
    score: float | None  # of the list that it came from


class Source(NamedTuple):
    """A passage as a prompt shows it."""

    shown: ShownPassage
    text: str


def show(query: str, passages: Sequence[ArmPassage], dataset: Dataset, rule: PromptRule) -> list[Source]:
    """Return the sources of a question, in their order and cut."""
    if rule.order == "shuffled":
        passages = sorted(passages, key=lambda passage: draw(query, passage.document))
    grades = dataset.gold.qrels.get(query, {})
    sources = []
    for document, score in passages:
        text = dataset.collection.documents.text(document)
        part = cut_letters(text, rule.letters)
        relevant, is_cut = grades.get(document, 0) > 0, len(part) < len(text.strip())
        sources.append(Source(ShownPassage(document, relevant, is_cut, -(-len(part) // _LETTERS), score), part))
    return sources


def cut_letters(text: str, most: int) -> str:
    """Cut a text after the last word that so many letters have room for; a longer word is broken.

    >>> cut_letters("swollen, bleeding gums", 18), cut_letters("gums", 9), cut_letters("hepatolenticular", 6)
    ('swollen, bleeding', 'gums', 'hepato')
    """
    text = text.strip()
    if len(text) <= most:
        return text
    head = text[: most + 1]
    space = max(head.rfind(" "), head.rfind("\n"))
    return head[:space].rstrip() if space > 0 else text[:most]


def prompt(template: Template, question: str, sources: Sequence[Source], words: Mapping[str, str]) -> str:
    """Write the prompt: every text between tags that it cannot close."""
    texts = "\n\n".join(delimited("source", source.text, id=number) for number, source in enumerate(sources, 1))
    return template.fill({**words, "question": delimited("question", question), "sources": texts or NO_SOURCES})
