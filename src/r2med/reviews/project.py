"""Making a project: draw pairs, mark those that everybody judges, add those whose grade is known, keep the texts."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from r2med.data.qrels import read_label_sets
from r2med.errors import DataError
from r2med.reviews.pool import Candidate, TaskPool, read_pools
from r2med.reviews.rows import GOLD, RANDOM, ReviewItem, ReviewProject, ReviewQuestion, now
from r2med.reviews.sampling import Draw, PooledPair, draw
from r2med.reviews.scale import DEFAULT_GUIDELINE, DEFAULT_SCALE, GradeScale
from r2med.reviews.store import ReviewStore, create_review
from r2med.runs.ledger import Ledger


@dataclass(frozen=True)
class ReviewSettings:
    """How a project is made."""

    queue: str = RANDOM
    items: int = 100
    overlap: float = 0.2
    repeat: float = 0.0
    scale: GradeScale = DEFAULT_SCALE
    guideline: str = ""
    """Empty for that of the build, or the usual one."""
    gold: Path | None = None
    seed: int = 0
    open_answer: bool = False


@dataclass(frozen=True)
class NewReview:
    """A project that was made, and what its owner should know."""

    store: ReviewStore
    notes: tuple[str, ...]


def new_review(ledger: Ledger, name: str, sources: Sequence[str], settings: ReviewSettings) -> NewReview:
    """Make a project from tasks, runs and builds."""
    pools = read_pools(ledger, sources)
    drawn = draw(pools, settings.queue, settings.items, settings.seed)
    gold = _gold_pairs(settings.gold, pools, settings.scale) if settings.gold else {}
    pairs = _in_order(drawn, gold)
    questions = _questions(pairs)
    items = _items(pairs, questions, gold, settings)
    guideline = settings.guideline or next((pool.guideline for pool in pools if pool.guideline), DEFAULT_GUIDELINE)
    project = ReviewProject(
        name,
        now(),
        tuple(sources),
        {pool.dataset.name: pool.dataset.fingerprint for pool in pools},
        settings.queue,
        drawn.frames,
        settings.scale,
        guideline,
        settings.overlap,
        settings.repeat,
        settings.seed,
        settings.open_answer,
    )
    return NewReview(create_review(project, list(questions.values()), items), drawn.notes)


_Key = tuple[str, str, str]
"""Task, query and document."""


def _key(pair: PooledPair) -> _Key:
    return pair.pool.dataset.name, pair.candidate.query, pair.candidate.document


def _gold_pairs(path: Path, pools: Sequence[TaskPool], scale: GradeScale) -> dict[_Key, tuple[PooledPair, int]]:
    """The pairs of a file with the grades that are known to be right."""
    found: dict[_Key, tuple[PooledPair, int]] = {}
    for qrels in read_label_sets(path).values():
        for query, judged in qrels.items():
            for document, grade in judged.items():
                if grade not in scale.values:
                    raise DataError(f"{path}: the scale has no grade {grade} ({query} {document})")
                pair = _find_pair(path, pools, query, document)
                found[_key(pair)] = (pair, grade)
    return found


def _find_pair(path: Path, pools: Sequence[TaskPool], query: str, document: str) -> PooledPair:
    for pool in pools:
        collection = pool.dataset.collection
        if query in collection.queries.position and document in collection.documents.position:
            known = (each for each in pool.candidates if (each.query, each.document) == (query, document))
            return PooledPair(pool, next(known, Candidate(query, document)))
    names = ", ".join(pool.dataset.name for pool in pools)
    raise DataError(f"{path}: {names} has no query {query!r} with a document {document!r}")


def _in_order(drawn: Draw, gold: Mapping[_Key, tuple[PooledPair, int]]) -> dict[_Key, tuple[str, PooledPair]]:
    """Every pair once, with how it was drawn, sorted so that equal draws give equal projects."""
    pairs = {_key(pair): (name, pair) for name, several in drawn.pairs.items() for pair in several}
    for key, (pair, _) in gold.items():
        pairs.setdefault(key, (GOLD, pair))
    return dict(sorted(pairs.items()))


def _questions(pairs: Mapping[_Key, tuple[str, PooledPair]]) -> dict[tuple[str, str], ReviewQuestion]:
    found: dict[tuple[str, str], ReviewQuestion] = {}
    for (task, query, _), (_, pair) in pairs.items():
        if (task, query) not in found:
            dataset = pair.pool.dataset
            known = (dataset.gold.answers.get(query, ""), dataset.gold.reasoning.get(query, ""))
            text = dataset.collection.queries.text(query)
            found[task, query] = ReviewQuestion(len(found) + 1, task, query, text, *known)
    return found


def _items(
    pairs: Mapping[_Key, tuple[str, PooledPair]],
    questions: Mapping[tuple[str, str], ReviewQuestion],
    gold: Mapping[_Key, tuple[PooledPair, int]],
    settings: ReviewSettings,
) -> list[ReviewItem]:
    plain = [key for key in pairs if key not in gold]
    chance = random.Random(f"{settings.seed}\toverlap")
    shared = {*gold, *chance.sample(plain, round(settings.overlap * len(plain)))}
    items = []
    for number, (key, (drawn, pair)) in enumerate(pairs.items(), 1):
        task, query, document = key
        text = pair.pool.dataset.collection.documents.text(document)
        known = gold[key][1] if key in gold else None
        question = questions[task, query].number
        facts = pair.candidate.as_facts()
        items.append(ReviewItem(number, question, document, text, drawn, key in shared, known, facts))
    return items
