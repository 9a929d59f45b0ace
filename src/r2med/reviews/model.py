"""A model as a reviewer: it labels the items of a project by the same guideline and scale as people.

Replies are kept by the client, so that a judging that was stopped goes on without paying twice. A reply that cannot be
read is counted and is not a grade; the same command asks for it again, and for what failed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from r2med.data.dataset import Dataset
from r2med.errors import R2medError
from r2med.llm.budget import Estimate, account
from r2med.llm.cards import find_model
from r2med.llm.client import current_client
from r2med.llm.parsing import read_object, unwavering
from r2med.llm.stage import settings as sampling_settings
from r2med.llm.types import Failed, Model, Reply, Request
from r2med.models.templates import bundled, delimited
from r2med.pipeline.executor.local import Executor
from r2med.reviews.rows import GRADED, MODEL, DraftDecision, ProofSpan, ReviewItem
from r2med.reviews.scale import DEFAULT_GUIDELINE, DEFAULT_SCALE, GradeScale
from r2med.reviews.store import ReviewStore

_QUOTE = "\nquote: "  # what stands before a quote in a note if the passage does not have it


@dataclass(frozen=True)
class ModelJudging:
    """Result of judging by a model."""

    reviewer: str
    items: int
    graded: int
    written: int  # Decisions that were not there before.
    unread: int
    """Replies without a grade of the scale, which count as nothing and which the same command asks for again."""
    failed: int  # Requests without a reply, which the same command asks again.
    invented: int  # Quotes that the passage does not have; the grade stands, and nothing is marked.
    first_unread: str  # The first of these replies.
    cost: float | None  # US dollars; None if a price is not known.


class ModelReviewer:
    """A model that is ready to label a project."""

    def __init__(self, store: ReviewStore, model: Model, name: str = "") -> None:
        self.store, self.model, self.name = store, unwavering(model), name or model.name
        self._items = store.items()
        sampling = sampling_settings(self.model.sampling)
        # All that the labels depend on.
        self._settings = {"model": self.model.id, "server": self.model.server, "sampling": sampling}
        self._settings["prompt"] = bundled("grade", "r2med.reviews").hash

    def requests(self) -> list[Request]:
        """Return the requests, one per item, in order; each text stands between tags that it cannot close."""
        questions = {question.number: question for question in self.store.questions()}
        asked = ((questions[item.question], item.text) for item in self._items)
        texts = [(question.text, question.answer, text) for question, text in asked]
        return _requests(self.model, self.store.project.guideline, self.store.project.scale, texts)

    def estimate(self) -> Estimate:
        """Estimate the cost of asking; nothing is asked."""
        return current_client().estimate(self.requests())

    def judge(self, executor: Executor) -> ModelJudging:
        """Ask, and append what can be read."""
        self.refuse_another()
        with executor.progress(f"judge {self.store.project.name}", len(self._items)) as bar:
            replies = current_client().ask_all(self.requests(), bar)
        scale = self.store.project.scale
        read = [_read(reply, item, scale) for reply, item in zip(replies, self._items, strict=True)]
        drafts = [(item.number, draft) for item, draft in zip(self._items, read, strict=True) if draft is not None]
        reviewer = self.store.add_reviewer(self.name, MODEL, settings=self._settings)
        written = self.store.record_all(reviewer.id, drafts)
        unread = [r for r, draft in zip(replies, read, strict=True) if draft is None and isinstance(r, Reply)]
        current_client().reject(unread)
        return ModelJudging(
            reviewer.name,
            items=len(self._items),
            graded=len(drafts),
            written=written,
            unread=len(unread),
            failed=sum(isinstance(reply, Failed) for reply in replies),
            invented=sum(draft.span is None and _QUOTE in draft.note for _, draft in drafts),
            first_unread=" ".join((unread[0].incomplete or unread[0].text).split())[:200] if unread else "",
            cost=account(replies).cost,
        )

    def refuse_another(self) -> None:
        """Refuse a name that another reviewer has, before anything is asked."""
        for reviewer in self.store.reviewers():
            if reviewer.name == self.name and (reviewer.kind, dict(reviewer.settings)) != (MODEL, self._settings):
                why = "is somebody else here, another model or asked in other words"
                raise R2medError(f"{self.name} {why}; give this one a name: --as NAME")


def _requests(model: Model, guideline: str, scale: GradeScale, texts: Iterable[tuple[str, str, str]]) -> list[Request]:
    """Return a request per question, its answer and a passage; each text stands between tags that it cannot close."""
    template = bundled("grade", "r2med.reviews")
    grades = "\n".join(f"{grade.value}: {grade.name}. {grade.meaning}" for grade in scale.grades)
    rules = {"guideline": guideline.strip(), "scale": grades}
    requests = []
    for text, solution, passage in texts:
        answer = delimited("correct_answer", solution or "(not known)")
        parts = {"question": delimited("question", text), "answer": answer, "passage": delimited("source", passage)}
        requests.append(model.request(template.fill({**rules, **parts})))
    return requests


class PairJudge:
    """A model that labels pairs of a task by the guideline and scale of a review, or by the usual ones."""

    def __init__(
        self, model: Model, review: str, dataset: Dataset, pairs: Sequence[tuple[str, str]], repeat: int
    ) -> None:
        self._scale, guideline = DEFAULT_SCALE, DEFAULT_GUIDELINE
        if review:
            with ReviewStore.open(review) as store:
                self._scale, guideline = store.project.scale, store.project.guideline
        queries, documents, answers = dataset.collection.queries, dataset.collection.documents, dataset.gold.answers
        texts = [(queries.text(query), answers.get(query, ""), documents.text(document)) for query, document in pairs]
        requests = _requests(unwavering(model), guideline, self._scale, texts)
        self._requests = [replace(request, sample=time) for time in range(repeat) for request in requests]
        self._repeat = repeat

    def estimate(self) -> Estimate:
        """Estimate the cost of asking; nothing is asked."""
        return current_client().estimate(self._requests)

    def judge(self, executor: Executor) -> list[list[float]]:
        """Return for each time of asking whether each pair is relevant; not a number where no grade can be read."""
        with executor.progress("judge holes", len(self._requests)) as bar:
            replies = current_client().ask_all(self._requests, bar)
        grades = [_read_grade(reply, self._scale) for reply in replies]
        unread = [r for r, grade in zip(replies, grades, strict=True) if grade is None and isinstance(r, Reply)]
        current_client().reject(unread)
        cut = self._scale.relevant_from
        labels = [math.nan if grade is None else float(grade >= cut) for grade in grades]
        count = len(labels) // self._repeat
        return [labels[start : start + count] for start in range(0, len(labels), count)]


def judge_of_pairs(llm: str, source: str, dataset: Dataset, pairs: Sequence[tuple[str, str]], repeat: int) -> PairJudge:
    """Return a model by name that labels pairs of a task by the rules of `review:NAME`, or the usual ones if empty."""
    return PairJudge(find_model(llm), source.removeprefix("review:").partition(":")[0], dataset, pairs, repeat)


def _read_grade(reply: Reply | Failed, scale: GradeScale) -> int | None:
    """Read a grade; None if there is no reply, or no grade of the scale in it."""
    if reply.incomplete:
        return None
    written = str((read_object(reply.text) or {}).get("grade")).strip()
    grade = int(float(written)) if re.fullmatch(r"\d+(\.0*)?", written) else None
    return grade if grade in scale.values else None


def _read(reply: Reply | Failed, item: ReviewItem, scale: GradeScale) -> DraftDecision | None:
    """Read a decision; None if there is no reply, or no grade of the scale in it."""
    if (grade := _read_grade(reply, scale)) is None:
        return None
    content = read_object(reply.text) or {}
    reason, quote = (" ".join(str(content.get(name) or "").split()) for name in ("reason", "quote"))
    span = find_quote(quote, item.text)
    note = reason if span or not quote else f"{reason}{_QUOTE}{quote}"
    return DraftDecision(GRADED, grade, span, note)


def find_quote(quote: str, text: str) -> ProofSpan | None:
    """Find a quote in a text, ignoring case and spaces; None if it is not there or empty.

    >>> find_quote("gums BLEED", "The gums\\n bleed."), find_quote("", "The gums bleed.")
    (ProofSpan(start=4, end=15), None)
    """
    words = [re.escape(word) for word in quote.split()]
    match = re.search(r"\s+".join(words), text, re.IGNORECASE) if words else None
    return ProofSpan(*match.span()) if match else None
