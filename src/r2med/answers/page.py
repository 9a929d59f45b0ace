"""Answers with and without passages: a study's figures, and the answers to one question side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from r2med.answers.arms import Arm
from r2med.answers.plan import StudyCommand, plan_study, study_command
from r2med.answers.report import RagReport, kept_reports
from r2med.answers.samples import QuestionAnswers, SampledAnswer
from r2med.answers.sources import ShownPassage
from r2med.answers.tables import rag_charts, rag_sections
from r2med.errors import R2medError
from r2med.llm.budget import Estimate
from r2med.llm.cards import find_model
from r2med.render.charts.chart import responsive
from r2med.render.html import address
from r2med.render.sections import wide
from r2med.web.addresses import Correction, PageContent, Pages, UnknownName, one_of, page_number, sort_links
from r2med.web.citation import Citation, citation
from r2med.web.jobs import JudgingOffer, judging_limits
from r2med.web.library import Library

if TYPE_CHECKING:
    from starlette.datastructures import QueryParams
    from starlette.requests import Request


CHANGES = ("all", "fixed", "broken", "both right", "both wrong")
"""What can become of a question's answer when passages are shown."""
_LONGEST = 1_200
"""Letters of a passage that a page shows."""


class PassageInView(NamedTuple):
    """A passage that an answer could rest on; its text is empty if the data is not local."""

    number: int
    shown: ShownPassage
    text: str


class AnswerColumn(NamedTuple):
    """One arm's answers to a question."""

    arm: Arm
    answers: QuestionAnswers
    passages: Sequence[PassageInView]

    def shown(self, sample: SampledAnswer) -> list[tuple[int, bool]]:
        """Return the sources that an answer names, each with whether it was shown."""
        return [(number, 1 <= number <= len(self.passages)) for number in sample.cited]


class StudyAnswers(NamedTuple):
    """Arms of one study on one question."""

    report: RagReport
    columns: Sequence[AnswerColumn]


class QuestionFates(NamedTuple):
    """One question of a study: whether its answer is right under every arm; None if that is not decided."""

    task: str
    query: str
    right: Mapping[str, bool | None]


def studies(library: Library) -> dict[str, RagReport]:
    """Return every study of the ledger by its name in addresses, the newest first."""
    reports = library.current("rag", lambda: kept_reports(library.ledger))
    return {f"{report.study}-{report.answers[0].group}": report for report in reports}


def rag_page(library: Library, request: Request) -> PageContent:
    """Show a study: its tables, its charts, and its questions."""
    query, reports = request.query_params, studies(library)
    if not reports:
        return "answers/rag.html", {"report": None, "studies": reports}
    wrong: list[Correction] = []
    name = _chosen(query, "study", list(reports), wrong)
    report = reports[name]
    labels = [arm.arm.label for arm in report.arms if arm.arm.kind != "closed"] or [report.arms[0].arm.label]
    label = _chosen(query, "arm", labels, wrong)
    change = _chosen(query, "change", CHANGES, wrong)
    fates = _fates(report, label, change)
    pages = Pages.of(len(fates), page_number(query, "page"))
    fates = fates[pages.cut()]
    judge = query.get("judge", "")
    values: dict[str, Any] = {
        "report": report, "studies": reports, "name": name, "arms": labels, "arm": label, "changes": CHANGES,
        "change": change, "fates": fates, "pages": pages, "links": sort_links(request, ""), "wide": wide,
        "sections": rag_sections(report),
        "charts": [(chart, responsive(chart)) for chart in rag_charts(report).values()],
        "offer": None if report.judged else JudgingOffer.of(lambda: _price_verdicts(report, judge), judge),
        "job": library.jobs.newest("judge", "rag", report.study),
        "cite": _citation(report), "wrong": wrong, "status": 404 if wrong else 200,
        "texts": {(fate.task, fate.query): library.query_text(fate.task, fate.query) for fate in fates},
    }  # fmt: skip
    return "answers/rag.html", values


def _chosen(query: QueryParams, name: str, known: Sequence[str], wrong: list[Correction]) -> str:
    """Return a value of an address, or the first if there is none; an unknown one is reported."""
    value = query.get(name, "") or known[0]
    if value in known:
        return value
    error = UnknownName(name, value, known)
    wrong.append(Correction.of(error, "/rag", dict(query), name))
    return error.nearest or known[0]


def _with_judge(report: RagReport, judge: str) -> StudyCommand:
    find_model(judge)
    return study_command(report).judged_by(judge)


def _price_verdicts(report: RagReport, judge: str) -> Estimate | None:
    command = _with_judge(report, judge)
    return plan_study(command.arms, command.tasks, command.options).verdicts


def _citation(report: RagReport) -> Citation:
    title = f"Answers of {report.settings['llm']['name']} on {', '.join(report.tasks)}, study {report.study}"
    try:
        return citation(title, *study_command(report).words)
    except R2medError:
        # A model or a prompt that is no longer what it was: nothing that is typed makes the same figures.
        return Citation(title)


def judge_study(library: Library, form: Mapping[str, str]) -> str:
    """Start the judging of a study's answers; return the address that shows it. The verdicts make another study."""
    known, name, judge = studies(library), form.get("study", ""), form.get("judge", "")
    report = known[one_of(name, list(known), "study")]
    command = _with_judge(report, judge)
    page = address("/rag", study=f"{command.options.key}-{report.answers[0].group}")
    words = ("r2med", *command.words, *judging_limits(form), "--json")
    library.jobs.submit(("judge", "rag", report.study), f"Judging of study {report.study} by {judge}", page, words)
    return address("/rag", study=name, judge=judge) + "#judge"


def _fates(report: RagReport, label: str, change: str) -> list[QuestionFates]:
    """Return the questions of an arm whose answers changed in a certain way, in the order of the data."""
    fates = []
    for task, answers in report.by_arm[label].items():
        for query in answers:
            right = {name: _right(tasks.get(task, {}).get(query)) for name, tasks in report.by_arm.items()}
            if change == "all" or _change(right.get("closed"), right[label]) == change:
                fates.append(QuestionFates(task, query, right))
    return fates


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
    dataset = library.dataset(task)
    documents = None if dataset is None else dataset.collection.documents

    def text(document: str) -> str:
        is_present = documents is not None and document in documents.position
        return documents.text(document)[:_LONGEST] if documents is not None and is_present else ""

    answers = []
    for report in studies(library).values():
        arms = {part.arm.label: part.arm for part in report.answers}
        columns = []
        for label, tasks in report.by_arm.items():
            if own := tasks.get(task, {}).get(query):
                passages = [PassageInView(n, passage, text(passage.document)) for n, passage in enumerate(own.shown, 1)]
                columns.append(AnswerColumn(arms[label], own, passages))
        if columns:
            answers.append(StudyAnswers(report, columns))
    return answers
