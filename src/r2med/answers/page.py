"""Answers with and without passages: a study's figures, and the answers to one question side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from r2med.answers.arms import Arm
from r2med.answers.charts import rag_charts
from r2med.answers.plan import StudyCommand, plan_study, study_command
from r2med.answers.report import RagReport, kept_reports
from r2med.answers.samples import QuestionAnswers, SampledAnswer, ShownPassage
from r2med.answers.tables import rag_sections
from r2med.errors import R2medError
from r2med.llm.cards import find_model
from r2med.render.charts.chart import responsive
from r2med.render.html import address
from r2med.render.sections import wide
from r2med.web.addresses import Correction, PageContent, Pages, UnknownName, one_of, page_number, sort_links
from r2med.web.citation import Citation, citation
from r2med.web.jobs import Job, Jobs, JudgingOffer, judging_limits
from r2med.web.library import Library

if TYPE_CHECKING:
    from starlette.datastructures import QueryParams
    from starlette.requests import Request


def offer_study(report: RagReport, judge: str) -> JudgingOffer:
    """Estimate what it would take to have a study's answers judged."""
    if not judge:
        return JudgingOffer()
    try:
        command = _with_judge(report, judge)
        plan = plan_study(command.arms, command.tasks, command.options)
        return JudgingOffer(judge, estimate=plan.verdicts)
    except R2medError as error:
        return JudgingOffer(judge, problem=str(error))


def start_study(jobs: Jobs, report: RagReport, form: Mapping[str, str]) -> Job:
    """Start the judging of a study's answers; with the verdicts it is a study of its own."""
    judge = form.get("judge", "")
    command = _with_judge(report, judge)
    page = address("/rag", study=f"{command.options.key}-{report.answers[0].group}")
    words = ("r2med", *command.words, *judging_limits(form), "--json")
    return jobs.submit(("judge", "rag", report.study), f"Judging of study {report.study} by {judge}", page, words)


def _with_judge(report: RagReport, judge: str) -> StudyCommand:
    find_model(judge)
    return study_command(report).judged_by(judge)


CHANGES = ("all", "fixed", "broken", "both right", "both wrong")
"""What can have become of a question's answer when passages were shown."""
_LONGEST = 1_200
"""Letters of a passage that a page shows."""


@dataclass(frozen=True)
class PassageInView:
    """A passage that an answer could rest on."""

    number: int
    shown: ShownPassage
    text: str
    """Empty if the data is not local."""


@dataclass(frozen=True)
class AnswerColumn:
    """One arm's answers to a question."""

    arm: Arm
    answers: QuestionAnswers
    passages: Sequence[PassageInView]

    def shown(self, sample: SampledAnswer) -> list[tuple[int, bool]]:
        """Return the sources that an answer names, each with whether it was shown."""
        return [(number, 1 <= number <= len(self.passages)) for number in sample.cited]


@dataclass(frozen=True)
class StudyAnswers:
    """Arms of one study on one question."""

    report: RagReport
    columns: Sequence[AnswerColumn]


@dataclass(frozen=True)
class QuestionFates:
    """One question of a study: what became of it under every arm."""

    task: str
    query: str
    right: Mapping[str, bool | None]
    """Arm to whether its answer is right; None where that is not decided."""


def studies(library: Library) -> dict[str, RagReport]:
    """Return every study of the ledger by its name in addresses, the newest first."""
    found = library.current("rag", lambda: kept_reports(library.ledger))
    return {f"{each.study}-{each.answers[0].group}": each for each in found}


def rag_page(library: Library, request: Request) -> PageContent:
    """Show a study: its tables, its charts, and its questions."""
    asked, known = request.query_params, studies(library)
    if not known:
        return "answers/rag.html", {"report": None, "studies": known}
    wrong: list[Correction] = []
    name = _chosen(asked, "study", list(known), wrong)
    report = known[name]
    labels = [arm.arm.label for arm in report.arms if arm.arm.kind != "closed"] or [report.arms[0].arm.label]
    label, change = _chosen(asked, "arm", labels, wrong), _chosen(asked, "change", CHANGES, wrong)
    fates = _fates(report, label, change)
    pages = Pages.of(len(fates), page_number(asked, "page"))
    shown = fates[pages.cut()]
    values: dict[str, Any] = {
        "report": report, "studies": known, "name": name, "arms": labels, "arm": label, "changes": CHANGES,
        "change": change, "fates": shown, "pages": pages, "links": sort_links(request, ""), "wide": wide,
        "sections": rag_sections(report),
        "charts": [(chart, responsive(chart)) for chart in rag_charts(report).values()],
        "offer": offer_study(report, asked.get("judge", "")) if not report.judged else None,
        "job": library.jobs.newest("judge", "rag", report.study),
        "cite": _citation(report), "wrong": wrong, "status": 404 if wrong else 200,
        "texts": {(each.task, each.query): library.query_text(each.task, each.query) for each in shown},
    }  # fmt: skip
    return "answers/rag.html", values


def _chosen(asked: QueryParams, name: str, known: Sequence[str], wrong: list[Correction]) -> str:
    """Return a value of an address, or the first if there is none; an unknown one is reported."""
    value = asked.get(name, "") or known[0]
    if value in known:
        return value
    error = UnknownName(name, value, known)
    wrong.append(Correction.of(error, "/rag", dict(asked), name))
    return error.nearest or known[0]


def _citation(report: RagReport) -> Citation:
    title = f"Answers of {report.settings['llm']['name']} on {', '.join(report.tasks)}, study {report.study}"
    try:
        return citation(title, *study_command(report).words)
    except R2medError:
        # A model or a prompt that is no longer what it was: nothing that is typed makes the same figures.
        return Citation(title)


def judge_study(library: Library, form: Mapping[str, str]) -> str:
    """Start the judging of a study's answers; return the address that shows it."""
    known, name = studies(library), form.get("study", "")
    report = known[one_of(name, list(known), "study")]
    start_study(library.jobs, report, form)
    return address("/rag", study=name, judge=form.get("judge", "")) + "#judge"


def _fates(report: RagReport, label: str, change: str) -> list[QuestionFates]:
    """Return the questions of an arm whose answers changed in a certain way, in the order of the data."""
    found = []
    for task, answers in report.by_arm[label].items():
        for query in answers:
            right = {name: _right(tasks.get(task, {}).get(query)) for name, tasks in report.by_arm.items()}
            if change == "all" or _change(right.get("closed"), right[label]) == change:
                found.append(QuestionFates(task, query, right))
    return found


def _right(answers: QuestionAnswers | None) -> bool | None:
    return None if answers is None or answers.value is None else answers.right


def _change(before: bool | None, after: bool | None) -> str:
    """Return how an answer changed; nothing if one side is not decided."""
    if before is None or after is None:
        return ""
    if before == after:
        return "both right" if after else "both wrong"
    return "fixed" if after else "broken"


def answers_to(library: Library, task: str, query: str) -> list[StudyAnswers]:
    """Return what every study's arms answered to a question."""
    found = []
    for report in studies(library).values():
        arms = {each.arm.label: each.arm for each in report.answers}
        there = {label: tasks[task][query] for label, tasks in report.by_arm.items() if query in tasks.get(task, {})}
        if there:
            columns = [_column(library, task, arms[label], answers) for label, answers in there.items()]
            found.append(StudyAnswers(report, columns))
    return found


def _column(library: Library, task: str, arm: Arm, answers: QuestionAnswers) -> AnswerColumn:
    dataset = library.dataset(task)
    documents = None if dataset is None else dataset.collection.documents
    passages = []
    for number, each in enumerate(answers.shown, 1):
        there = documents is not None and each.document in documents.position
        text = documents.text(each.document)[:_LONGEST] if documents is not None and there else ""
        passages.append(PassageInView(number, each, text))
    return AnswerColumn(arm, answers, passages)
