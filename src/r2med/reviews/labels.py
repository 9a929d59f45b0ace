"""Labels out of a review: one per item, as judgements in three forms, all as CSV, or as a new version of the task.

An adjudicator's ruling goes first, then a named rule.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low, multimode
from typing import Any, NoReturn

from r2med.audit.corrected_scores import HumanSample
from r2med.audit.label_sets import ReviewedLabels
from r2med.data.dataset import Aspect, Aspects, Dataset, Gold
from r2med.data.loader import load
from r2med.data.nuggets import NuggetRow, task_label, write_nuggets
from r2med.data.task_names import task_names
from r2med.errors import R2medError, suggest
from r2med.formatting import counted
from r2med.reviews.progress import grades_by_item
from r2med.reviews.rows import (
    ANSWER,
    GRADED,
    MODEL,
    NUGGETS,
    PERSON,
    RANDOM,
    Decision,
    ReviewItem,
    ReviewQuestion,
    Ruling,
    now,
)
from r2med.reviews.sampling import DEPTH
from r2med.reviews.store import ReviewStore
from r2med.store.files import draft_folder, unwritable, write_file
from r2med.store.typed import json_bytes, json_lines

RULED = "ruling"


def _majority(grades: Sequence[int]) -> int | None:
    most_common = multimode(grades)
    return most_common[0] if len(most_common) == 1 else None


RULES: Mapping[str, Callable[[Sequence[int]], int | None]] = {
    "majority": _majority,
    "median": median_low,
    "min": min,
    "max": max,
}
"""How several grades become one; None if they cannot."""


@dataclass(frozen=True)
class ResolvedLabel:
    """The label that an item resolves to."""

    item: ReviewItem
    question: ReviewQuestion
    grade: int  # on the scale of the review
    score: int  # as judgements have it: 0 if it is not relevant, else from 1 on
    by: str  # `ruling`, or the rule


@dataclass(frozen=True)
class ResolvedLabels:
    """The labels of a review, and how they were resolved."""

    labels: Sequence[ResolvedLabel]
    undecided: int  # items that are left out: grades differ, and neither a ruling nor the rule decides
    rule: str
    reviewers: Sequence[str]
    binary: bool
    open_answer: bool = False  # whether the review shows everybody the gold answer from the start

    def settings(self) -> dict[str, Any]:
        """Return the settings that an export records."""
        facts = {name: getattr(self, name) for name in ("reviewers", "binary", "open_answer")}
        ruled = sum(label.by == RULED for label in self.labels)
        counts = {"labels": len(self.labels), "ruled": ruled, "undecided": self.undecided}
        return {"rule": f"{RULED}, then {self.rule}", **facts, **counts}


def resolve_labels(
    store: ReviewStore,
    rule: str = "majority",
    reviewers: Sequence[str] = (),
    *,
    binary: bool = False,
    ruled: bool = True,
) -> ResolvedLabels:
    """Resolve one label per item; the grades of people count, or of the named reviewers.

    A grade below the scale's `relevant_from` is written as 0, that grade as 1, the next one as 2; with `binary`, every
    relevant one as 1. Rulings go first, unless they shall not count.
    """
    if rule not in RULES:
        raise R2medError(f"there is no rule {rule!r}; choose {', '.join(RULES)}")
    people = [reviewer for reviewer in store.reviewers() if reviewer.kind == PERSON]
    judges = {judge.id: judge.name for judge in list(map(store.reviewer, reviewers)) or people}
    grades = grades_by_item(store.standing())
    rulings = store.rulings() if ruled else {}
    questions = {question.number: question for question in store.questions()}
    labels, undecided = [], 0
    for item in store.items():
        given = [grade for who, grade in grades.get(item.number, {}).items() if who in judges]
        grade = rulings[item.number].grade if item.number in rulings else None
        by = rule if grade is None else RULED
        if grade is None and given:
            grade = RULES[rule](given)
            undecided += grade is None
        if grade is not None:
            score = written_score(grade, store.project.scale.relevant_from, binary=binary)
            labels.append(ResolvedLabel(item, questions[item.question], grade, score, by))
    if not labels:
        raise R2medError(_explain_none(store, undecided))
    return ResolvedLabels(labels, undecided, rule, sorted(judges.values()), binary, store.project.open_answer)


def _explain_none(store: ReviewStore, undecided: int) -> str:
    name = store.project.name
    if undecided:
        return f"no item of {name} has one label: reviewers differ on all {undecided:,}; let somebody adjudicate"
    others = [reviewer.name for reviewer in store.reviewers() if reviewer.kind != PERSON]
    if others:
        return f"no person has graded an item of {name}; --reviewer {others[0]!r} takes the labels of a model or import"
    return f"nobody has graded an item of {name} yet"


def written_score(grade: int, relevant_from: int, *, binary: bool = False) -> int:
    """Return a grade as judgements have it.

    >>> [written_score(grade, 2) for grade in range(4)], written_score(3, 2, binary=True)
    ([0, 0, 1, 2], 1)
    """
    score = max(0, grade - relevant_from + 1)
    return min(1, score) if binary else score


def labels_by_source(source: str, task: str) -> dict[str, ReviewedLabels]:
    """Return the labels of `review:NAME`, of one reviewer, or with `review:NAME:*` of each of its reviewers."""
    name, _, reviewer = source.removeprefix("review:").partition(":")
    with ReviewStore.open(name) as store:
        if reviewer != "*":
            return {source: _reviewed_labels(store, task, reviewer)}
        # Of all reviewers with a grade for the task, models and imports included.
        questions = {question.number for question in store.questions() if question.task == task}
        items = {item.number for item in store.items() if item.question in questions}
        judges = [judge for judge, grades in store.labels().items() if items & grades.keys()] or _refuse(store, task)
        return {f"review:{name}:{judge}": _reviewed_labels(store, task, judge) for judge in judges}


def _reviewed_labels(store: ReviewStore, task: str, reviewer: str) -> ReviewedLabels:
    scores: dict[str, dict[str, int]] = {}
    grades: dict[str, dict[str, int]] = {}
    for label in resolve_labels(store, reviewers=[reviewer] if reviewer else (), ruled=not reviewer).labels:
        if label.question.task == task:
            scores.setdefault(label.question.query, {})[label.item.document] = label.score
            grades.setdefault(label.question.query, {})[label.item.document] = label.grade
    if not scores:
        _refuse(store, task)
    return ReviewedLabels(scores, store.project.name, store.project.scale.values, grades)


def random_labels(source: str, dataset: Dataset) -> HumanSample:
    """Return people's labels of the pairs that `review:NAME` drew at random; refuse a review without such pairs."""
    name, _, reviewer = source.removeprefix("review:").partition(":")
    with ReviewStore.open(name) as store:
        project = store.project
        if dataset.name not in project.data:
            _refuse(store, dataset.name)
        if dataset.fingerprint != project.data[dataset.name]:
            raise R2medError(
                f"{dataset.name}: its data changed since the review {name} was made; labels are of other data"
            )
        if reviewer and store.reviewer(reviewer).kind != PERSON:
            raise R2medError(f"{reviewer} is not a person; a correction needs labels of people")
        asked = {question.number: question.query for question in store.questions() if question.task == dataset.name}
        items = [item for item in store.items() if item.drawn == RANDOM and item.question in asked]
        if not items:
            advice = f"r2med review new NAME --queue {RANDOM} --from {dataset.name} SYSTEMS"
            raise R2medError(f"the review {name} drew no pair at random (queue {project.queue}): {advice}")
        drawn: dict[str, dict[str, int]] = {}
        for item in items:
            drawn.setdefault(asked[item.question], {})[item.document] = 0
        plain = max(grade for judged in dataset.gold.qrels.values() for grade in judged.values()) <= 1
        reviewers = [reviewer] if reviewer else []
        grades: dict[str, dict[str, int]] = {}
        for label in resolve_labels(store, reviewers=reviewers, binary=plain, ruled=not reviewer).labels:
            if label.question.number in asked and label.item.drawn == RANDOM:
                grades.setdefault(label.question.query, {})[label.item.document] = label.score
        systems = dict.fromkeys(system for item in store.items() for system in item.facts.get("ranks", {}))
        return HumanSample(f"the review {name}", grades, drawn, tuple(systems), DEPTH)


def _refuse(store: ReviewStore, task: str) -> NoReturn:
    tasks = ", ".join(store.project.data)
    raise R2medError(f"the review {store.project.name} has no label of {task}; it is of {tasks}")


TASK, CSV = "task", "csv"
CHANGES, RECORD = "label_changes.csv", "review.json"  # in the folder of a new version: what changed, and by whom


@dataclass(frozen=True)
class LabelExport:
    """Record of an export."""

    path: str
    form: str
    labels: int
    settings: Mapping[str, Any]
    fingerprint: str = ""  # Of the new version of the task.
    before: str = ""  # Of the version that was reviewed.
    changed: int = 0  # Judgements with another grade than before.
    added: int = 0  # Pairs that were not judged.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExportSettings:
    """Settings for exporting labels."""

    form: str
    rule: str = "majority"
    reviewers: tuple[str, ...] = ()
    binary: bool = False
    task: str = ""  # which task of a review of several


def export_labels(store: ReviewStore, out: Path, settings: ExportSettings) -> LabelExport:
    """Write the labels of a review."""
    if settings.form == CSV:
        return _export_csv(store, out, settings)
    if (settings.form == NUGGETS) != (store.project.queue == NUGGETS):
        unit, form = store.project.unit, NUGGETS if store.project.queue == NUGGETS else "trec"
        raise R2medError(f"the review {store.project.name} is of {unit}s; choose --to {form} or --to {CSV}")
    tasks = list(store.project.data)
    task, review = settings.task or tasks[0], f"the review {store.project.name}"
    if task not in tasks:
        raise R2medError(f"{review} has no task {task!r}{suggest(task, tasks)}")
    if settings.form == NUGGETS:
        return _export_nuggets(store, out, settings)
    if not settings.task and len(tasks) > 1:
        raise R2medError(f"{review} is of {len(tasks)} tasks; choose with --task {task}")
    if settings.form == TASK:
        return _export_task(store, out, task, settings)
    resolved = resolve_labels(store, settings.rule, settings.reviewers, binary=settings.binary)
    rows = _rows(resolved, task)
    content, notes = _FORMS[settings.form](rows), _notes(resolved)
    if store.project.aspects and settings.form == "r2med":
        gold = _gold(rows, covered_aspects(store, resolved, task))
        content = json_lines(row for query in gold.qrels for row in gold.rows(query))
    elif store.project.aspects:
        notes = (*notes, f"aspects are not in the form {settings.form}; --to r2med has them")
    write_file(out, content, parents=True)
    return LabelExport(str(out), settings.form, len(rows), resolved.settings(), notes=notes)


def _gold(rows: Sequence[Row], aspects: Aspects) -> Gold:
    qrels: dict[str, dict[str, int]] = {}
    for query, document, score in rows:
        qrels.setdefault(query, {})[document] = score
    return Gold(qrels, aspects=aspects)


def covered_aspects(store: ReviewStore, resolved: ResolvedLabels, task: str) -> dict[str, dict[str, Aspect]]:
    """Return the aspects that relevant items cover: those that most of the reviewers name who were asked."""
    judges = {reviewer.id for reviewer in store.reviewers() if reviewer.name in resolved.reviewers}
    covered, votes = store.coverage(), dict[int, list[tuple[str, ...]]]()
    for row in store.standing():
        if row.id in covered and row.reviewer in judges and row.verdict == GRADED and not row.again:
            votes.setdefault(row.item, []).append(covered[row.id])
    documents: dict[str, dict[str, set[str]]] = {}
    for label in resolved.labels:
        named = votes.get(label.item.number, [])
        for name in store.aspects_of(label.question) if label.question.task == task and label.score > 0 else ():
            if 2 * sum(name in some for some in named) > len(named):
                documents.setdefault(label.question.query, {}).setdefault(name, set()).add(label.item.document)
    weights = store.project.aspects.get(task, {})
    return {
        query: {name: Aspect(frozenset(some), weights[query][name]) for name, some in by_name.items()}
        for query, by_name in documents.items()
    }


Row = tuple[str, str, int]  # query, document and score


def _rows(resolved: ResolvedLabels, task: str) -> list[Row]:
    labels = [label for label in resolved.labels if label.question.task == task]
    if not labels:
        raise R2medError(f"no item of {task} has a label yet")
    return [(label.question.query, label.item.document, label.score) for label in labels]


def _trec(rows: Sequence[Row]) -> str:
    for query, document, _ in rows:
        if any(sign.isspace() for sign in query + document):
            raise R2medError(f"TREC's format has no ids with blanks, such as {query!r} {document!r}; try --to r2med")
    return "".join(f"{query} 0 {document} {score}\n" for query, document, score in rows)


def _r2med(rows: Sequence[Row]) -> bytes:
    return json_lines({"q_id": query, "p_id": document, "score": score} for query, document, score in rows)


def _beir(rows: Sequence[Row]) -> str:
    for query, document, _ in rows:
        if any(sign in "\t\r\n" for sign in query + document):
            raise R2medError(f"BEIR's format has no ids with tabs, such as {query!r} {document!r}; try --to r2med")
    return "query-id\tcorpus-id\tscore\n" + "".join(f"{q}\t{d}\t{score}\n" for q, d, score in rows)


_FORMS: Mapping[str, Callable[[Sequence[Row]], bytes | str]] = {"trec": _trec, "r2med": _r2med, "beir": _beir}
FORMS = (*_FORMS, CSV, TASK, NUGGETS)
_OPEN = "the gold answer was in view of everybody who judged in this review"


def _notes(resolved: ResolvedLabels) -> tuple[str, ...]:
    opened = (_OPEN,) if resolved.open_answer else ()
    if not resolved.undecided:
        return opened
    items = counted(resolved.undecided, "item is", "items are")
    return (*opened, f"{items} left out: reviewers differ, nobody has ruled, and {resolved.rule} does not decide")


_COLUMNS = "task query_id doc_id reviewer kind score given drawn seconds created quote note revealed aspects".split()


def _export_csv(store: ReviewStore, out: Path, settings: ExportSettings) -> LabelExport:
    """Write a row per standing grade; `score` is as in judgements, `given` on the scale of the review."""
    reviewers = {reviewer.id: reviewer for reviewer in store.reviewers()}
    items = {item.number: item for item in store.items()}
    questions = {question.number: question for question in store.questions()}
    tasks = task_names(question.task for question in questions.values())
    graded: list[Decision | Ruling] = [row for row in store.standing() if row.verdict == GRADED and not row.again]
    rows: list[tuple[object, ...]] = []
    covered = store.coverage()
    for row in graded + list(store.rulings().values()):
        item, reviewer, grade = items[row.item], reviewers[row.reviewer], row.grade or 0
        question = questions[item.question]
        score = written_score(grade, store.project.scale.relevant_from, binary=settings.binary)
        seen = [fact.what for fact in row.revealed]
        kind, quote, aspects = reviewer.role, "", ""
        if isinstance(row, Decision):
            aspects = json_bytes(covered[row.id]).decode() if row.id in covered else ""
            kind, quote = reviewer.kind, item.text[slice(*row.span)] if row.span else ""
            seen = [ANSWER] if kind == MODEL and question.answer else seen
        head = (tasks[question.task], question.query, item.document, reviewer.name, kind, score, grade, item.drawn)
        rows.append((*head, row.seconds, row.created, _prose(quote), _prose(row.note), " ".join(seen), aspects))
    if not rows:
        raise R2medError(f"nobody has graded an item of {store.project.name} yet")
    if not store.project.aspects:
        rows = [row[:-1] for row in rows]
    write_file(out, _csv_text(_COLUMNS[: len(rows[0])], *rows), parents=True)
    opened = store.project.open_answer
    facts = {"binary": settings.binary, "open_answer": opened}
    return LabelExport(str(out), CSV, len(rows), facts, notes=(_OPEN,) if opened else ())


def _export_nuggets(store: ReviewStore, out: Path, settings: ExportSettings) -> LabelExport:
    """Write the nuggets that are not wrong, vital or okay as they were judged, for `r2med rag --nuggets`."""
    resolved = resolve_labels(store, settings.rule, settings.reviewers)
    vital = max(store.project.scale.values)
    labels = [label for label in resolved.labels if settings.task in ("", label.question.task)]
    rows = [
        NuggetRow(of.query, label.item.document, label.item.text, label.grade == vital, task_label(of.task))
        for label in labels
        if label.score and (of := label.question)
    ]
    if not rows:
        raise R2medError(f"no nugget of {store.project.name} was judged to be right")
    write_nuggets(out, rows)
    wrong = sum(not label.score for label in resolved.labels)
    unjudged = store.item_count - len(resolved.labels) - resolved.undecided
    notes = [f"{counted(wrong, 'nugget')} left out: wrong"] if wrong else []
    notes += [f"{counted(unjudged, 'nugget')} left out: not judged"] if unjudged else []
    return LabelExport(str(out), NUGGETS, len(rows), resolved.settings(), notes=(*notes, *_notes(resolved)[1:]))


def _merge_aspects(gold: Gold, judged: Container[tuple[str, str]], new: Aspects) -> dict[str, dict[str, Aspect]]:
    """Return the aspects of a task with those of a review in the place of its own, for the pairs that it judged."""
    merged: dict[str, dict[str, Aspect]] = {}
    for query, named in gold.aspects.items():
        for name, (documents, weight) in named.items():
            rest = frozenset(document for document in documents if (query, document) not in judged)
            added = new.get(query, {}).get(name, Aspect(frozenset())).documents
            merged.setdefault(query, {})[name] = Aspect(rest | added, weight)
    return merged


def _csv_text(*rows: Sequence[object]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue()


def _prose(text: str) -> str:
    """Return a free text in one line, escaped so that a spreadsheet does not read it as a formula.

    >>> _prose("=HYPERLINK(1)"), _prose("two\\nlines")
    ("'=HYPERLINK(1)", 'two lines')
    """
    line = " ".join(text.split())
    return f"'{line}" if line[:1] in ("=", "+", "-", "@") else line


def _export_task(store: ReviewStore, out: Path, task: str, settings: ExportSettings) -> LabelExport:
    """Write the task with labels corrected by the review, into a folder that must not exist yet."""
    if out.exists() or out.is_symlink():
        raise R2medError(f"{out}: exists already; give another --out or remove it")
    dataset = load(task)
    if dataset.fingerprint != store.project.data[task]:
        raise R2medError(f"{task}: its data changed since the review was made; the labels are of other data")
    merged = {query: dict(judged) for query, judged in dataset.gold.qrels.items()}
    plain = max(grade for judged in merged.values() for grade in judged.values()) <= 1
    resolved = resolve_labels(store, settings.rule, settings.reviewers, binary=settings.binary or plain)
    rows = _rows(resolved, task)
    changes = []
    for query, document, score in rows:
        before = merged.setdefault(query, {}).get(document)
        if before != score:
            changes.append((query, document, before, score))
        merged[query][document] = score
    facts = {"review": store.project.name, "task": task, "made": now(), "data": dataset.fingerprint}
    record = {**facts, "scale": store.project.scale, **resolved.settings()}
    gold = {"answer": dataset.gold.answers, "reasoning": dataset.gold.reasoning, "synonyms": dataset.gold.synonyms}
    queries = [
        {"id": query, "text": text} | {name: table[query] for name, table in gold.items() if table.get(query)}
        for query, text in dataset.collection.queries
    ]
    judged = {(query, document) for query, document, _ in rows}
    labelled = Gold(merged, aspects=dataset.gold.aspects)
    if store.project.aspects:
        labelled = Gold(merged, aspects=_merge_aspects(dataset.gold, judged, covered_aspects(store, resolved, task)))
    files = {
        "corpus.jsonl": json_lines({"id": name, "text": text} for name, text in dataset.collection.documents),
        "query.jsonl": json_lines(queries),
        "qrels.jsonl": json_lines(row for query in merged for row in labelled.rows(query)),
        CHANGES: _csv_text(("query_id", "doc_id", "before", "after"), *changes).encode(),
        RECORD: json_bytes(record, indent=2),
    }
    if (folder := dataset.task.folder) and (folder / "task.toml").is_file():
        files["task.toml"] = (folder / "task.toml").read_bytes()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with draft_folder(out.parent, out.name) as draft:
            for name, content in files.items():
                (draft / name).write_bytes(content)
            draft.rename(out)
    except OSError as error:
        raise unwritable(out, error) from error
    written = load(out)
    added = sum(before is None for _, _, before, _ in changes)
    versions = (written.fingerprint, dataset.fingerprint, len(changes) - added, added)
    notes = (*_notes(resolved), *written.warnings)
    return LabelExport(str(out), TASK, len(rows), resolved.settings(), *versions, notes)
