"""Creating a project: draw pairs, mark the shared ones, add those whose grade is known, store the texts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from r2med.data.qrels import read_label_sets
from r2med.errors import DataError
from r2med.reviews.rows import GOLD, RANDOM, ReviewItem, ReviewProject, ReviewQuestion, now
from r2med.reviews.sampling import Candidate, PooledPair, TaskPool, draw, read_pools
from r2med.reviews.scale import DEFAULT_GUIDELINE, DEFAULT_SCALE, GradeScale
from r2med.reviews.store import ReviewStore, create_review
from r2med.runs.ledger import Ledger


@dataclass(frozen=True)
class ReviewSettings:
    """Settings for creating a project."""

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


def new_review(
    ledger: Ledger, name: str, sources: Sequence[str], settings: ReviewSettings
) -> tuple[ReviewStore, list[str]]:
    """Create a project from tasks, runs and builds; return it with notes for its owner."""
    pools = read_pools(ledger, sources)
    sample, notes = draw(pools, settings.queue, settings.items, settings.seed)
    gold = _read_gold(settings.gold, pools, settings.scale) if settings.gold else {}
    pairs = {_key(pair): (name, pair) for name, stratum in sample.items() for pair in stratum.pairs}
    pairs = {key: (GOLD, pair) for key, (pair, _) in gold.items()} | pairs
    pairs = dict(sorted(pairs.items()))  # equal draws give equal projects
    questions = _questions([pair for _, pair in pairs.values()])
    others = [key for key in pairs if key not in gold]
    chance = random.Random(f"{settings.seed}\toverlap")
    shared = {*gold, *chance.sample(others, round(settings.overlap * len(others)))}
    items = [
        ReviewItem(
            number,
            questions[key[:2]].number,
            document=key[2],
            text=pair.pool.dataset.collection.documents.text(key[2]),
            drawn=drawn,
            shared=key in shared,
            gold=gold[key][1] if key in gold else None,
            facts={"label": pair.candidate.label, "ranks": pair.candidate.ranks, **pair.candidate.facts},
        )
        for number, (key, (drawn, pair)) in enumerate(pairs.items(), 1)
    ]
    project = ReviewProject(
        name,
        now(),
        tuple(sources),
        data={pool.dataset.name: pool.dataset.fingerprint for pool in pools},
        queue=settings.queue,
        frames={name: stratum.frame for name, stratum in sample.items()},
        scale=settings.scale,
        guideline=settings.guideline or next((pool.guideline for pool in pools if pool.guideline), DEFAULT_GUIDELINE),
        overlap=settings.overlap,
        repeat=settings.repeat,
        seed=settings.seed,
        open_answer=settings.open_answer,
    )
    return create_review(project, list(questions.values()), items), notes


_Key = tuple[str, str, str]
"""Task, query and document."""


def _key(pair: PooledPair) -> _Key:
    return pair.pool.dataset.name, pair.candidate.query, pair.candidate.document


def _read_gold(path: Path, pools: Sequence[TaskPool], scale: GradeScale) -> dict[_Key, tuple[PooledPair, int]]:
    """Return the pairs of a file of known grades."""
    gold: dict[_Key, tuple[PooledPair, int]] = {}
    for qrels in read_label_sets(path).values():
        for query, judged in qrels.items():
            for document, grade in judged.items():
                if grade not in scale.values:
                    raise DataError(f"{path}: the scale has no grade {grade} ({query} {document})")
                pair = _find_pair(path, pools, query, document)
                gold[_key(pair)] = (pair, grade)
    return gold


def _find_pair(path: Path, pools: Sequence[TaskPool], query: str, document: str) -> PooledPair:
    for pool in pools:
        collection = pool.dataset.collection
        if query in collection.queries.position and document in collection.documents.position:
            same = (pair for pair in pool.candidates if (pair.query, pair.document) == (query, document))
            return PooledPair(pool, next(same, Candidate(query, document)))
    names = ", ".join(pool.dataset.name for pool in pools)
    raise DataError(f"{path}: {names} has no query {query!r} with a document {document!r}")


def _questions(pairs: Sequence[PooledPair]) -> dict[tuple[str, str], ReviewQuestion]:
    """Return the questions of pairs by task and query, numbered in order."""
    questions: dict[tuple[str, str], ReviewQuestion] = {}
    for task, query, dataset in ((*_key(pair)[:2], pair.pool.dataset) for pair in pairs):
        if (task, query) not in questions:
            answer_facts = (dataset.gold.answers.get(query, ""), dataset.gold.reasoning.get(query, ""))
            text = dataset.collection.queries.text(query)
            questions[task, query] = ReviewQuestion(len(questions) + 1, task, query, text, *answer_facts)
    return questions
