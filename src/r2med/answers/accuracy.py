"""Answer accuracy: does what a model wrote for a query hold the right answer, and does that go with retrieval?

A judge model compares each generated text with the gold answer; a comparison of the words is made as well, which is
free. A verdict that cannot be read and a text that was never finished are neither right nor wrong: they are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from r2med.data.loader import load
from r2med.errors import R2medError
from r2med.llm.budget import account
from r2med.llm.cards import find_model
from r2med.llm.client import current_client
from r2med.llm.parsing import judge_text, unwavering, verdict_of
from r2med.llm.types import Model
from r2med.measure.answers import matches
from r2med.measure.correlation import Correlation, correlate
from r2med.pipeline.executor.local import Executor, every_share, postponed_as, quiet
from r2med.pipeline.joins import usable
from r2med.pipeline.loaded_runs import query_values
from r2med.pipeline.named_runs import select
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.selection import check_data, each_once
from r2med.usage import Usage

if TYPE_CHECKING:
    from r2med.data.dataset import Dataset, Generation
    from r2med.models.templates import Template

Generations = Mapping[str, Sequence["Generation"]]
"""Query id to what was written for it, as `Ledger.generations` gives it."""


@dataclass(frozen=True)
class JudgedAnswer:
    """One generated text with the gold answer."""

    query: str
    answer: str
    gold: str
    exact: bool  # whether the words are the same
    contained: bool  # whether the gold answer's words stand in the text
    verdict: bool | None = None  # the judge's verdict; None if it was not asked or could not be understood
    problem: str = ""  # why there is no verdict: the text is incomplete, or the judge's reply has none


@dataclass(frozen=True)
class Accuracy:
    """Counts of right answers of one system on one task."""

    system: str
    task: str
    judged: Sequence[JudgedAnswer]
    missing: Mapping[str, str] = field(default_factory=dict)
    """Queries with a gold answer for which nothing usable was written, and why."""
    account: Usage = field(default_factory=Usage)  # usage of the judge
    retrieval: Mapping[str, float] = field(default_factory=dict)
    """The measure by which answers are compared with retrieval, by query."""

    @cached_property
    def right(self) -> dict[str, float]:
        """Return the share of right answers of each query that has a verdict; with one sample per query, 0 or 1."""
        return _shares((answer.query, answer.verdict) for answer in self.judged if answer.verdict is not None)

    @property
    def queries(self) -> int:
        """Count the queries with a gold answer."""
        return len({answer.query for answer in self.judged}) + len(self.missing)

    @property
    def accuracy(self) -> float | None:
        """Return the mean over the queries with a verdict; None if there are none."""
        return float(np.mean(list(self.right.values()))) if self.right else None

    @property
    def unparsable(self) -> int:
        """Count the answers whose verdict could not be read."""
        return sum(bool(answer.problem) for answer in self.judged)

    def share(self, name: str) -> float:
        """Return the share of texts that are `exact` or `contained`, over all queries with a gold answer."""
        shares = _shares((answer.query, getattr(answer, name)) for answer in self.judged)
        return sum(shares.values()) / max(1, self.queries)

    @cached_property
    def correlation(self) -> Correlation:
        """Correlate right answers with retrieval over this task's queries."""
        shared = [query for query in self.right if query in self.retrieval]
        return correlate([self.right[query] for query in shared], [self.retrieval[query] for query in shared])

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--json`."""
        facts = {name: getattr(self, name) for name in ("system", "task", "queries", "accuracy")}
        return facts | {
            **{name: self.share(name) for name in ("exact", "contained")},
            "judged": len(self.right),
            "unparsable": self.unparsable,
            "missing": dict(self.missing),
            "correlation": self.correlation.as_dict(),
            "account": self.account.as_json(),
        }


def _shares(outcomes: Iterable[tuple[str, bool]]) -> dict[str, float]:
    """Return the share of positive outcomes of each query."""
    by_query: dict[str, list[bool]] = {}
    for query, outcome in outcomes:
        by_query.setdefault(query, []).append(outcome)
    return {query: sum(hits) / len(hits) for query, hits in by_query.items()}


def judge_answers(
    dataset: Dataset,
    generations: Generations,
    judge: str | Model = "",
    system: str = "",
    prompt: Template | None = None,
    executor: Executor | None = None,
) -> Accuracy:
    """Compare what was written for a task's queries with its gold answers; without a judge, by words alone."""
    gold, synonyms = _gold_answers(dataset), dataset.gold.synonyms
    if not gold:
        raise R2medError(f"{dataset.name} has no gold answers to compare with")
    if not any(generations.get(query) for query in gold):
        run = system or "this run"
        raise R2medError(f"nothing was generated in {run} for {dataset.name}, so there is no answer to judge")
    answers = [
        JudgedAnswer(query, text.text, answer, *matches(text.text, answer, synonyms.get(query, ())))
        for query, answer in gold.items()
        for text in usable(generations.get(query, ()))
    ]
    answered = {answer.query for answer in answers}
    reasons = {query: [text.incomplete for text in generations.get(query, ()) if text.incomplete] for query in gold}
    missing = {query: (reasons[query] or ["nothing was generated"])[0] for query in gold if query not in answered}
    if not judge:
        return Accuracy(system, dataset.name, answers, missing)
    model = unwavering(find_model(judge) if isinstance(judge, str) else judge)
    queries = dataset.collection.queries
    texts = (judge_text(queries.text(answer.query), answer.gold, answer.answer, prompt) for answer in answers)
    requests = [model.request(text) for text in texts]
    progress = (executor or quiet()).progress(f"verdicts on {dataset.name}", len(requests), "requests")
    with progress as bar, postponed_as(dataset.name):
        replies = current_client().ask_all(requests, bar)
    verdicts = list(map(verdict_of, replies))
    current_client().reject(r for r, (verdict, _) in zip(replies, verdicts, strict=True) if verdict is None)
    judged = [replace(a, verdict=v, problem=problem) for a, (v, problem) in zip(answers, verdicts, strict=True)]
    return Accuracy(system, dataset.name, judged, missing, account(replies))


def _gold_answers(dataset: Dataset) -> dict[str, str]:
    return {query: answer for query, answer in dataset.gold.answers.items() if answer.strip()}


@dataclass(frozen=True)
class AnswerReport:
    """The answers of several runs: one line each, and how answers go with retrieval over queries and over systems."""

    results: Sequence[Accuracy]
    measure: str
    notes: Sequence[str] = ()  # tasks that are left out, and why

    @cached_property
    def over_queries(self) -> Correlation:
        """Correlate over all queries of all runs together."""
        rows = [(r.right[query], r.retrieval[query]) for r in self.results for query in r.right if query in r.retrieval]
        return correlate([right for right, _ in rows], [value for _, value in rows])

    @cached_property
    def systems(self) -> dict[str, tuple[float, float]]:
        """Return the accuracy and retrieval of each system that has every task, both averaged over tasks."""
        tasks = {result.task for result in self.results}
        points: dict[str, tuple[float, float]] = {}
        for system in dict.fromkeys(result.system for result in self.results):
            decided = [result for result in self.results if result.system == system and result.right]
            if {result.task for result in decided} == tasks:
                accuracy = np.mean([np.mean(list(result.right.values())) for result in decided])
                retrieval = np.mean([np.mean(list(result.retrieval.values())) for result in decided])
                points[system] = float(accuracy), float(retrieval)
        return points

    @property
    def too_few(self) -> str:
        """Explain why systems cannot be correlated; empty if they can be, or if their answers are all alike."""
        if not any(result.right for result in self.results):
            return "only a --judge says which answers are right"
        named = {result.system for result in self.results}
        if len(self.systems) == len(named):
            return "" if len(named) > 1 else "it takes several systems"
        tasks = len({result.task for result in self.results})
        return f"{len(self.systems)} of {len(named)} systems have all {tasks} tasks; choose tasks with --tasks"

    @cached_property
    def over_systems(self) -> Correlation:
        """Correlate over systems, one point per system."""
        points = list(self.systems.values())
        return correlate([accuracy for accuracy, _ in points], [value for _, value in points])

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--json`."""
        results = [result.as_dict() for result in self.results]
        correlations = {name: getattr(self, name).as_dict() for name in ("over_queries", "over_systems")}
        return {"measure": self.measure, "results": results, **correlations, "notes": list(self.notes)}


def judge_runs(
    names: Sequence[str],
    judge: str = "",
    measure: str = "nDCG@10",
    tasks: Sequence[str] = (),
    prompt: Template | None = None,
    executor: Executor | None = None,
) -> AnswerReport:
    """Judge the answers of runs in the ledger, named as for `selection.select`, in the order given.

    Runs on tasks without gold answers are left out with a note; another note names a prompt file of the judge.
    """
    notes = [f"The judge was asked with {prompt.source} ({prompt.hash})."] if prompt is not None else []
    with Ledger() as ledger:
        systems = select(ledger, names, tasks)
        notes += [system.lack for system in systems if system.lack]
        for system in systems:
            if not any(ledger.generations(entry) for entry in system.runs.values()):
                raise R2medError(f"{system.label} generates no text, so there is no answer to judge")

        @cache
        def load_once(task: str) -> Dataset | None:
            """Return the data of a task if it has gold answers; otherwise None, and add a note."""
            try:
                dataset = load(task)
                if _gold_answers(dataset):
                    return dataset
                notes.append(f"{task} is left out: it has no gold answers to compare with")
            except R2medError as error:
                notes.append(f"{task} is left out: {error}")
            return None

        def judge_entry(entry: Entry) -> Accuracy | None:
            dataset = load_once(entry.task)
            if dataset is None:
                return None
            check_data(entry, dataset)
            accuracy = judge_answers(dataset, ledger.generations(entry), judge, entry.system, prompt, executor)
            return replace(accuracy, retrieval=query_values(ledger, entry, measure, dataset))

        accuracies = every_share(partial(judge_entry, entry) for entry in each_once(systems))
    results = [accuracy for accuracy in accuracies if accuracy is not None]
    if not results:
        raise R2medError(f"no answer can be judged: {'; '.join(notes)}")
    return AnswerReport(results, measure, tuple(notes))
