"""Listwise reranking in the manner of RankGPT: a model orders a window of passages, which slides from the bottom up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from r2med.data.dataset import Collection
from r2med.data.run import Run
from r2med.data.tasks import Task
from r2med.errors import SpecError
from r2med.llm.client import current_client
from r2med.llm.parsing import Permutation, excerpt, read_permutation, read_tied_ranking
from r2med.llm.stage import Exchange
from r2med.llm.types import Failed, Reply, Request
from r2med.models.templates import Template
from r2med.pipeline.stage import Context, note_incomplete
from r2med.rerank.candidates import CandidateList, candidates, reranked
from r2med.rerank.llm import ModelReranker


def windows(documents: int, window: int, step: int) -> list[tuple[int, int]]:
    """Return the windows over a list, from the bottom up; the last one always begins at the top.

    >>> windows(25, 20, 10), windows(5, 20, 10)
    ([(5, 25), (0, 15)], [(0, 5)])
    """
    spans = []
    end = documents
    while True:
        start = max(0, end - window)
        spans.append((start, end))
        if start == 0:
            return spans
        end -= step


@dataclass
class _List:
    """One query's list while it is being ordered."""

    shown: CandidateList
    windows: Sequence[tuple[int, int]]
    read: Callable[[str, int], Permutation | None]
    order: list[int]
    problems: list[str] = field(default_factory=list)
    unread: list[Reply | Failed] = field(default_factory=list)
    repaired: int = 0

    def apply(self, span: tuple[int, int], reply: Reply | Failed) -> None:
        """Put a window in the order of a reply; an unusable reply leaves it unchanged."""
        start, end = span
        permutation = None if reply.incomplete else self.read(reply.text, end - start)
        if permutation is None:
            self.problems.append(reply.incomplete or f"no ranking in the reply {excerpt(reply.text)}")
            self.unread.append(reply)
            return
        self.repaired += permutation.repaired
        self.order[start:end] = [self.order[start + place] for place in permutation.order]

    @property
    def reason(self) -> str:
        """Return the reason why this list is not completely ordered; empty if it is."""
        if not self.problems:
            return ""
        return f"{len(self.problems)} of {len(self.windows)} windows kept their order: {self.problems[0]}"


@dataclass(frozen=True)
class Listwise(ModelReranker):
    """Reranker whose language model orders windows of passages from the bottom up (arXiv 2304.09542).

    With `scores`, each passage is shown with its score of the stage before (arXiv 2506.14086).

    >>> str(Listwise("gpt-4o", window=10, step=5, scores=True))
    'listwise(gpt-4o, window=10, step=5, scores=true)'
    """

    window: int = 20  # how many passages are shown at a time
    step: int = 10  # how far the window moves up
    scores: bool = False  # whether the scores of the stage before are shown

    name = "listwise"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.step < self.window:
            # A window must overlap with the one before, or nothing could rise through them.
            raise SpecError(f"listwise: step must be 1 or more and below window, not {self.step} and {self.window}")

    def templates(self) -> tuple[Template, ...]:
        """Return the prompt with or without scores."""
        return (self.template("listwise-scores" if self.scores else "listwise"),)

    def describe(self) -> Mapping[str, object]:
        """Return the settings that a plan shows."""
        return {**super().describe(), "window": self.window, "step": self.step, "scores": self.scores}

    def requests_a_query(self, documents: int) -> int:
        """Return one request per window."""
        return len(windows(documents, self.window, self.step)) if documents else 0

    def example(self, task: Task, query: str, texts: Sequence[str]) -> Request:
        """Build the request for a window, without scores, which are not known yet."""
        return self.group_request(task, query, texts[: self.window])

    def rerank(self, collection: Collection, run: Run, context: Context) -> Run:
        """Order every list, the windows of all queries at the same height together."""
        shown = candidates(collection, run, self.depth)
        read = read_tied_ranking if self.answer == "tied ranking" else read_permutation
        spans = [windows(len(row), self.window, self.step) for row in shown]
        lists = [_List(row, slots, read, list(range(len(row)))) for row, slots in zip(shown, spans, strict=True)]
        self._slide(lists, collection.task, context)
        reasons = {row.shown.query: row.reason for row in lists if row.reason}
        note_incomplete(self, reasons, len(lists), context, kept="were not wholly ordered")
        # Scores that encode only the order: the last has 1, the one before it 2, and so on.
        scores = [len(row.order) - np.argsort(row.order).astype(np.float64) for row in lists]
        return reranked(self, run, shown, scores, context)

    def _slide(self, lists: Sequence[_List], task: Task, context: Context) -> None:
        total = sum(len(row.windows) for row in lists)
        exchange = Exchange()
        with context.executor.progress(str(self), total) as bar:
            for height in range(max((len(row.windows) for row in lists), default=0)):
                active = [row for row in lists if height < len(row.windows)]
                replies = exchange.ask([self._request(row, row.windows[height], task) for row in active], bar)
                for row, reply in zip(active, replies, strict=True):
                    row.apply(row.windows[height], reply)
        current_client().reject(reply for row in lists for reply in row.unread)
        self.note(exchange, context)
        unusable, repaired = sum(len(row.problems) for row in lists), sum(row.repaired for row in lists)
        context.notes.facts |= {"windows": total, "unusable": unusable, "repaired": repaired}

    def _request(self, row: _List, span: tuple[int, int], task: Task) -> Request:
        shown, places = row.shown, row.order[slice(*span)]
        if not self.scores:
            return self.group_request(task, shown.text, [shown.texts[place] for place in places])
        scored = (f"(score {shown.scores[place]:.4g}) {self.passage(shown.texts[place])}" for place in places)
        passages = "\n\n".join(f"[{number}] {passage}" for number, passage in enumerate(scored, 1))
        values = {"passages": passages, "count": str(len(places))}
        return self.request(task, shown.text, self.templates()[0], values)
