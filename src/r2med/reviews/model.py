"""A model as a reviewer: it labels the items of a project by the same guideline and scale as people.

Replies are kept by the client, so that a judging that was stopped goes on without paying twice. A reply that cannot be
read is counted and is no grade; the same command asks for it again, and for what failed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from r2med.errors import R2medError
from r2med.llm.budget import Estimate, account
from r2med.llm.client import current_client
from r2med.llm.judge import unwavering
from r2med.llm.parsing import read_object
from r2med.llm.stage import settings as sampling_settings
from r2med.llm.types import Failed, Model, Reply, Request
from r2med.models.templates import Template, bundled, delimited
from r2med.pipeline.executor.local import Executor
from r2med.reviews.rows import GRADED, MODEL, DraftDecision, ProofSpan, ReviewItem, ReviewQuestion
from r2med.reviews.scale import GradeScale
from r2med.reviews.store import ReviewStore


@dataclass(frozen=True)
class ModelJudging:
    """Result of judging by a model."""

    reviewer: str
    items: int
    graded: int
    written: int
    """Decisions that were not there before."""
    unread: int
    """Replies without a grade of the scale, which count as nothing and which the same command asks for again."""
    failed: int
    """Requests without a reply, which the same command asks again."""
    invented: int
    """Quotes that the passage does not have; the grade stands, and nothing is marked."""
    first_unread: str
    """What the first of these said."""
    cost: float | None
    """US dollars; None where a price is not known."""

    def as_dict(self) -> dict[str, Any]:
        """Return the result in the shape of `--json`."""
        return asdict(self)


class ModelReviewer:
    """A model that is ready to label a project."""

    def __init__(self, store: ReviewStore, model: Model, name: str = "") -> None:
        self.store, self.model, self.name = store, unwavering(model), name or model.name
        self._template = bundled("grade", "r2med.reviews")
        self._items = store.items()

    def requests(self) -> list[Request]:
        """Return the requests, one per item, in order."""
        questions = {each.number: each for each in self.store.questions()}
        project = self.store.project
        rules = (project.guideline.strip(), _scale_text(project.scale))
        texts = (_prompt(self._template, rules, questions[item.question], item) for item in self._items)
        return [self.model.request(text) for text in texts]

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
        failed = [reply for reply in replies if isinstance(reply, Failed)]
        unread = [r for r, draft in zip(replies, read, strict=True) if draft is None and isinstance(r, Reply)]
        current_client().reject(unread)
        invented = sum(draft.span is None and _QUOTE in draft.note for _, draft in drafts)
        said = " ".join((unread[0].incomplete or unread[0].text).split())[:200] if unread else ""
        counts = (len(self._items), len(drafts), written, len(unread), len(failed), invented)
        return ModelJudging(reviewer.name, *counts, said, account(replies).cost)

    @property
    def _settings(self) -> dict[str, Any]:
        """Return the settings that the model's labels depend on."""
        return {
            "model": self.model.id,
            "server": self.model.server,
            "sampling": sampling_settings(self.model.sampling),
            "prompt": self._template.hash,
        }

    def refuse_another(self) -> None:
        """Refuse a name that another reviewer has, before anything is asked."""
        for each in self.store.reviewers():
            if each.name == self.name and (each.kind, dict(each.settings)) != (MODEL, self._settings):
                raise R2medError(
                    f"{self.name} is somebody else here, another model or asked in other words;"
                    " give this one a name: --as NAME"
                )


def _scale_text(scale: GradeScale) -> str:
    return "\n".join(f"{grade.value}: {grade.name}. {grade.meaning}" for grade in scale.grades)


def _prompt(template: Template, rules: tuple[str, str], question: ReviewQuestion, item: ReviewItem) -> str:
    """Return the prompt about one item; each text stands between tags that it cannot close."""
    return template.fill(
        {
            "guideline": rules[0],
            "scale": rules[1],
            "question": delimited("question", question.text),
            "answer": delimited("correct_answer", question.answer or "(not known)"),
            "passage": delimited("source", item.text),
        }
    )


_QUOTE = "\nquote: "
"""What stands before a quote in a note, where the passage does not have it."""


def _read(reply: Reply | Failed, item: ReviewItem, scale: GradeScale) -> DraftDecision | None:
    """Read a decision; None if there is no reply, or no grade of the scale in it."""
    if isinstance(reply, Failed) or reply.incomplete:
        return None
    value = read_object(reply.text)
    grade = _grade(value.get("grade"), scale.values) if value else None
    if value is None or grade is None:
        return None
    reason, quote = (" ".join(str(value.get(name) or "").split()) for name in ("reason", "quote"))
    span = find_quote(quote, item.text)
    note = reason if span or not quote else f"{reason}{_QUOTE}{quote}"
    return DraftDecision(GRADED, grade, span, note)


def _grade(value: object, grades: Sequence[int]) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"\s*\d+\s*", value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and value in grades else None


def find_quote(quote: str, text: str) -> ProofSpan | None:
    """Find a quote in a text, ignoring case and spaces; None if it is not there or empty.

    >>> find_quote("gums BLEED", "The gums\\n bleed."), find_quote("", "The gums bleed.")
    (ProofSpan(start=4, end=15), None)
    """
    words = [re.escape(word) for word in quote.split()]
    match = re.search(r"\s+".join(words), text, re.IGNORECASE) if words else None
    return ProofSpan(*match.span()) if match else None
