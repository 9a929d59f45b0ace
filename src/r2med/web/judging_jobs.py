"""Judging by a model, begun on a page: first what it would take, then a job as any other, with a limit on its cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from r2med.errors import R2medError
from r2med.llm import Estimate, find_model, model_names
from r2med.rag.pricing import plan_study
from r2med.rag.rag_report import RagReport
from r2med.rag.study_command import StudyCommand, study_command
from r2med.render.html import address
from r2med.review.model_reviewer import ModelReviewer
from r2med.review.review_store import ReviewStore
from r2med.web.forms import whole_number
from r2med.web.jobs import Job, Jobs

_LEAST = 0.5
"""US dollars that are offered as a limit at least: one long reply must fit in."""


@dataclass(frozen=True)
class JudgingOffer:
    """A model that may judge, and what that would take; nothing has been asked yet."""

    llm: str = ""
    name: str = ""
    """What it is called among the reviewers; empty for the model's own name."""
    estimate: Estimate | None = None
    """None where no model was named yet, or none that can be asked."""
    problem: str = ""

    @property
    def known(self) -> Sequence[str]:
        """Models to choose from."""
        return model_names()

    @property
    def limit(self) -> float | None:
        """US dollars that are offered as a limit; None where no price is known, so that none could be kept.

        >>> JudgingOffer(estimate=Estimate(10, 0, 5000, 4000, 0.4, 2.0)).limit
        0.8
        """
        if self.estimate is None or self.estimate.cost is None:
            return None
        return math.ceil(100 * max(_LEAST, 2 * self.estimate.cost)) / 100


def offer_review(store: ReviewStore, llm: str, name: str) -> JudgingOffer:
    """What it would take to have a model judge the items of a review."""
    if not llm:
        return JudgingOffer()
    try:
        return JudgingOffer(llm, name, ModelReviewer(store, find_model(llm), name).estimate())
    except R2medError as error:
        return JudgingOffer(llm, name, problem=str(error))


def start_review(jobs: Jobs, store: ReviewStore, form: Mapping[str, str]) -> Job:
    """Have a model judge the items of a review."""
    llm, name, review = form.get("llm", ""), form.get("as", ""), store.project.name
    ModelReviewer(store, find_model(llm), name).refuse_another()
    named = [f"--as={name}"] if name else []
    command = ("r2med", "review", "judge", review, f"--llm={llm}", *named, *_limits(form), "--json")
    page = address(f"/review/{review}/progress", llm=llm, **{"as": name}) + "#judge"
    return jobs.submit(("judge", "review", review), f"Judging of {review} by {name or llm}", page, command)


def offer_study(report: RagReport, judge: str) -> JudgingOffer:
    """What it would take to have a study's answers judged."""
    if not judge:
        return JudgingOffer()
    try:
        command = _with_judge(report, judge)
        plan = plan_study(command.arms, command.tasks, command.options)
        return JudgingOffer(judge, estimate=plan.verdicts)
    except R2medError as error:
        return JudgingOffer(judge, problem=str(error))


def start_study(jobs: Jobs, report: RagReport, form: Mapping[str, str]) -> Job:
    """Have the answers of a study judged; with the verdicts it is a study of its own."""
    judge = form.get("judge", "")
    command = _with_judge(report, judge)
    page = address("/rag", study=f"{command.options.key}-{report.answers[0].group}")
    words = ("r2med", *command.words, *_limits(form), "--json")
    return jobs.submit(("judge", "rag", report.study), f"Judging of study {report.study} by {judge}", page, words)


def _with_judge(report: RagReport, judge: str) -> StudyCommand:
    find_model(judge)
    return study_command(report).judged_by(judge)


def _limits(form: Mapping[str, str]) -> list[str]:
    """What may be spent, as a command is told it."""
    dollars, tokens = form.get("max_cost", "").strip(), form.get("max_tokens", "").strip()
    if dollars:
        try:
            found = float(dollars)
        except ValueError:
            found = math.nan
        if not (math.isfinite(found) and found >= 0):
            raise R2medError(f"{dollars!r} is no limit: write dollars as in 2.50")
        return [f"--max-cost={found:.6f}"]
    if tokens and not whole_number(tokens):
        raise R2medError(f"{tokens!r} is no limit: write a number of tokens")
    return [f"--max-tokens={tokens}"] if tokens else []
