"""From scores to judgements: cuts and the band between them, numbers of positives, the corpus and the splits."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from r2med.construction.items import Question
from r2med.construction.mining import PassageCorpus
from r2med.construction.plan import SelectSettings
from r2med.data.labels import BAND, NEGATIVE, POSITIVE, UNJUDGED
from r2med.llm.items import Outcome
from r2med.store.hashes import seeded_hash

DEV, TEST = "dev", "test"


def verdict(judged: Outcome, settings: SelectSettings) -> str:
    """Return the verdict of the cuts on a judged pair: positive, band, negative; unjudged if no judge could be read."""
    if "answers" not in judged.value:
        return UNJUDGED
    answers, supports = judged.value["answers"], judged.value["supports"]
    if judged.dropped or answers < settings.band_answers or supports < settings.band_supports:
        return NEGATIVE
    return POSITIVE if answers >= settings.answers and supports >= settings.supports else BAND


def select_question(verdicts: Mapping[str, str], settings: SelectSettings) -> Outcome:
    """Decide whether a question has an allowed number of positives."""
    count, why = list(verdicts.values()).count(POSITIVE), ""
    if count < settings.min_positives:
        why = f"fewer than {settings.min_positives} positives" if count else "no positive"
    elif count > settings.max_positives:
        why = f"more than {settings.max_positives} positives"
    marks = ("a pair could not be judged",) * (UNJUDGED in verdicts.values())
    return Outcome({"verdicts": verdicts}, why, marks=marks)


@dataclass(frozen=True)
class Selection:
    """The questions of the task, its passages and its splits."""

    questions: Sequence[Question]
    verdicts: Mapping[str, Mapping[str, str]]
    passages: Sequence[str]
    splits: Mapping[str, str]  # the split of each question; empty where there is one only


def select(
    questions: Sequence[Question], outcomes: Mapping[str, Outcome], corpus: PassageCorpus, settings: SelectSettings
) -> Selection:
    """Select the questions and splits of the task, and its passages: the pool and others, drawn up to a size."""
    kept = [question for question in questions if not outcomes[question.id].dropped]
    verdicts: dict[str, Mapping[str, Any]] = {question.id: outcomes[question.id].value["verdicts"] for question in kept}
    pool: dict[str, set[str]] = {}
    for passage, verdict in chain.from_iterable(judged.items() for judged in verdicts.values()):
        pool.setdefault(passage, set()).add(verdict)
    inside = {name for name, seen in pool.items() if settings.band != "drop" or BAND not in seen or POSITIVE in seen}
    rest = [passage.id for passage in corpus.passages if passage.id not in pool]
    if settings.corpus:
        rest.sort(key=lambda name: seeded_hash(settings.seed, name))
        rest = rest[: max(0, settings.corpus - len(inside))]
    inside.update(rest)
    passages = [passage.id for passage in corpus.passages if passage.id in inside]
    if not settings.dev:
        return Selection(kept, verdicts, passages, {})
    shared = {
        question.id: [
            *corpus.source_documents(question),
            *question.sources,
            *(corpus.passage(name).document for name, label in verdicts[question.id].items() if label == POSITIVE),
        ]
        for question in kept
    }
    dev = draw_groups(join_groups(shared), settings.dev, settings.seed)
    splits = {question.id: DEV if question.id in dev else TEST for question in kept}
    return Selection(kept, verdicts, passages, splits)


def draw_groups(groups: Mapping[str, str], share: float, seed: int) -> set[str]:
    """Return whole groups of questions that make up a share of them, drawn by the seed."""
    members: dict[str, list[str]] = {}
    for question, root in groups.items():
        members.setdefault(root, []).append(question)
    size = share * len(groups)
    held: set[str] = set()
    for root in sorted(members, key=lambda name: seeded_hash(seed, name)):
        # A group is held out where that brings the number nearer to what is wanted.
        if abs(len(held) + len(members[root]) - size) < abs(len(held) - size):
            held.update(members[root])
    return held


def join_groups(shared: Mapping[str, Iterable[Hashable]]) -> dict[str, str]:
    """Return for each question one of those that have something in common with it, directly or through others.

    >>> join_groups({"a": [1], "b": [2], "c": [1, 3], "d": [3]})
    {'a': 'a', 'b': 'b', 'c': 'a', 'd': 'a'}
    """
    parent = {name: name for name in shared}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    owner: dict[Hashable, str] = {}
    for name, things in shared.items():
        for thing in things:
            parent[root(name)] = root(owner.setdefault(thing, name))
    return {name: root(name) for name in parent}
