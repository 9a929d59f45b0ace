"""Writing of nuggets: a model lists the facts of a good answer, once per question, in a file that people can check.

What the file has already stays as it is; replies are kept, so that a stopped command goes on and pays nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r2med.answers.arms import Arm, PromptRule, choose, show
from r2med.answers.study import StudyOptions, with_answers
from r2med.data.dataset import Dataset
from r2med.data.nuggets import NuggetRow, read_nuggets, task_label, write_nuggets
from r2med.errors import R2medError
from r2med.llm.budget import Estimate, account
from r2med.llm.client import current_client
from r2med.llm.parsing import excerpt, read_object, unwavering
from r2med.llm.types import Failed, Model, Reply, Request
from r2med.measure.answers import normalise_answer
from r2med.models.templates import bundled, delimited
from r2med.pipeline.executor.local import Executor, postponed_as, quiet

MOST = 20
"""How many nuggets a question has at most."""


@dataclass(frozen=True)
class WrittenNuggets:
    """Record of a file of nuggets that was written or extended."""

    path: str
    nuggets: int  # All that the file has now.
    vital: int  # Those of them that are vital.
    questions: int  # Questions that have nuggets now.
    kept: int  # Questions whose nuggets were in the file before, and were not written again.
    unread: int  # Questions whose reply holds no nugget; the same command asks again.
    failed: int  # Questions without a reply; the same command asks again.
    first_unread: str  # The first reply that could not be read.
    cost: float | None  # US dollars, replies that were kept included; None if a price is not known.
    notes: Sequence[str]


class NuggetWriter:
    """Requests for the nuggets of tasks, of all questions that a file does not have yet."""

    def __init__(self, options: StudyOptions, tasks: Sequence[str], path: Path) -> None:
        self.path, self.notes = path, list[str]()
        self.rows = list(read_nuggets(path).rows.values()) if path.exists() else []
        self.kept = {(row.task, row.query_id) for row in self.rows}
        self._model, self._rule = unwavering(options.model), options.rule
        self._requests: dict[tuple[str, str], Request] = {}
        for dataset in with_answers(tasks, self.notes):
            label = task_label(dataset.name)
            for query, request in _requests(self._model, dataset, self._rule):
                if not {("", query), (label, query)} & self.kept:
                    self._requests[label, query] = request

    def estimate(self) -> Estimate:
        """Estimate the cost of asking; nothing is asked."""
        return current_client().estimate(list(self._requests.values()))

    def write(self, executor: Executor | None = None) -> WrittenNuggets:
        """Ask, and write what can be read below what the file has."""
        requests = list(self._requests.values())
        with (executor or quiet()).progress("nuggets", len(requests), "requests") as bar, postponed_as("nuggets"):
            replies = current_client().ask_all(requests, bar) if requests else []
        unread: list[Reply] = []
        rows = list(self.rows)
        for (task, query), reply in zip(self._requests, replies, strict=True):
            facts = read_facts(reply)
            if not facts and isinstance(reply, Reply):
                unread.append(reply)
            width = len(str(MOST))
            ids = (f"n{number:0{width}}" for number in range(1, MOST + 1))
            rows += [NuggetRow(query, name, text, vital, task) for name, (text, vital) in zip(ids, facts, strict=False)]
        current_client().reject(unread)
        if not rows:
            why = excerpt(unread[0].text) if unread else next((reply.incomplete for reply in replies), "no question")
            raise R2medError(f"no nugget was written: no reply could be read, the first: {why}")
        write_nuggets(self.path, rows)
        return WrittenNuggets(
            str(self.path),
            nuggets=len(rows),
            vital=sum(row.vital for row in rows),
            questions=len({(row.task, row.query_id) for row in rows}),
            kept=len(self.kept),
            unread=len(unread),
            failed=sum(isinstance(reply, Failed) for reply in replies),
            first_unread=excerpt(unread[0].incomplete or unread[0].text) if unread else "",
            cost=account(replies).cost,
            notes=self.notes,
        )


def _requests(model: Model, dataset: Dataset, rule: PromptRule) -> Sequence[tuple[str, Request]]:
    """Build a request for each question with a gold answer, with its relevant passages, cut as those of an arm."""
    template, gold = bundled("nuggets", "r2med.answers"), dataset.gold.answers
    passages = choose(Arm("gold", "gold"), dataset, None, rule.k)
    requests = []
    for query, text in dataset.collection.queries:
        if gold.get(query, "").strip():
            sources = show(query, passages[query], dataset, rule)
            numbered = (delimited("source", source.text, id=number) for number, source in enumerate(sources, 1))
            values = {"sources": "\n\n".join(numbered), "question": delimited("question", text), "most": str(MOST)}
            filled = template.fill({**values, "correct_answer": delimited("correct_answer", gold[query])})
            requests.append((query, model.request(filled)))
    return requests


def read_facts(reply: Reply | Failed) -> list[tuple[str, bool]]:
    """Read the facts of a reply with whether each is vital, vital ones first, none twice; empty if it has none."""
    content: Any = {} if reply.incomplete else (read_object(reply.text) or {}).get("nuggets")
    facts: dict[str, tuple[str, bool]] = {}
    for entry in content if isinstance(content, list) else ():
        text, vital = (entry.get("text"), entry.get("vital")) if isinstance(entry, dict) else (None, None)
        if not isinstance(text, str) or not isinstance(vital, bool):
            return []
        if words := normalise_answer(text):
            facts.setdefault(words, (" ".join(text.split()), vital))
    return sorted(facts.values(), key=lambda fact: not fact[1])[:MOST]
