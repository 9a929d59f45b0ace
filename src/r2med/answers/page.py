"""Answers with and without passages: a study's figures, and the answers to one question side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from r2med.answers.arms import Arm, ShownPassage
from r2med.answers.plan import plan_study, study_command
from r2med.answers.report import RagReport, kept_reports
from r2med.answers.samples import QuestionAnswers
from r2med.answers.tables import rag_charts, rag_sections
from r2med.errors import R2medError
from r2med.llm.budget import Estimate
from r2med.llm.cards import find_model
from r2med.render.charts.chart import responsive
from r2med.render.html import address
from r2med.render.table import plain
from r2med.web.addresses import Correction, PageContent, Pages, UnknownName, one_of, page_number, sort_links
from r2med.web.citation import Citation, citation
from r2med.web.jobs import JudgingOffer, judging_limits
from r2med.web.library import Library

if TYPE_CHECKING:
    from starlette.datastructures import QueryParams
    from starlette.requests import Request


_FATES: Mapping[tuple[bool | None, bool | None], str] = {
    (False, True): "fixed",
    (True, False): "broken",
    (True, True): "both right",
    (False, False): "both wrong",
}
"""What becomes of a question's answer when passages are shown, by whether it is right without and with them."""
CHANGES = ("all", *_FATES.values())
_LONGEST = 1_200  # letters of a passage that a page shows


class AnswerColumn(NamedTuple):
    """One arm's answers to a question."""

    arm: Arm
    answers: QuestionAnswers
    passages: Sequence[tuple[ShownPassage, str]]  # in view, with their texts, which are empty if the data is not local


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
    name = _select(query, "study", list(reports), wrong)
    report = reports[name]
    labels = [arm.arm.label for arm in report.arms if arm.arm.kind != "closed"] or [report.arms[0].arm.label]
    label = _select(query, "arm", labels, wrong)
    change = _select(query, "change", CHANGES, wrong)
    fates = _fates(report, label, change)
    pages = Pages.of(len(fates), page_number(query, "page"))
    fates = fates[pages.cut()]
    judge = query.get("judge", "")

    def price_verdicts() -> Estimate | None:
        find_model(judge)
        command = study_command(report, judge)
        return plan_study(command.arms, command.tasks, command.options).verdicts

    values: dict[str, Any] = {
        "report": report, "studies": reports, "name": name, "arms": labels, "arm": label, "changes": CHANGES,
        "change": change, "fates": fates, "pages": pages, "links": sort_links(request, ""), "wide": plain,
        "sections": rag_sections(report),
        "charts": [(chart, responsive(chart)) for chart in rag_charts(report).values()],
        "offer": None if report.judged else JudgingOffer.of(price_verdicts, judge),
        "job": library.jobs.newest("judge", "rag", report.study),
        "cite": _citation(report), "wrong": wrong, "status": 404 if wrong else 200,
        "texts": {(task, query): library.query_text(task, query) for task, query, _ in fates},
    }  # fmt: skip
    return "answers/rag.html", values


def _select(query: QueryParams, name: str, values: Sequence[str], wrong: list[Correction]) -> str:
    """Return a value of an address, or the first if there is none; an unknown one is reported."""
    value = query.get(name, "") or values[0]
    if value in values:
        return value
    error = UnknownName(name, value, values)
    wrong.append(Correction.of(error, "/rag", dict(query), name))
    return error.nearest or values[0]


def _citation(report: RagReport) -> Citation:
    title = f"Answers of {report.settings['llm']['name']} on {', '.join(report.tasks)}, study {report.study}"
    try:
        return citation(title, *study_command(report).words)
    except R2medError:
        # A model or a prompt that is no longer what it was: nothing that is typed makes the same figures.
        return Citation(title)


def judge_study(library: Library, form: Mapping[str, str]) -> str:
    """Start the judging of a study's answers; return the address that shows it. The verdicts make another study."""
    reports, name, judge = studies(library), form.get("study", ""), form.get("judge", "")
    report = reports[one_of(name, list(reports), "study")]
    find_model(judge)
    command = study_command(report, judge)
    page = address("/rag", study=f"{command.options.key}-{report.answers[0].group}")
    words = ("r2med", *command.words, *judging_limits(form), "--json")
    library.jobs.submit(("judge", "rag", report.study), f"Judging of study {report.study} by {judge}", page, words)
    return address("/rag", study=name, judge=judge) + "#judge"


def _fates(report: RagReport, label: str, change: str) -> list[tuple[str, str, dict[str, bool | None]]]:
    """Return the questions whose answers changed in a certain way, by task and id, and whether each arm is right.

    That is None if it is not decided.
    """
    fates = []
    for task, answers in report.by_arm[label].items():
        for query in answers:
            given = {name: tasks.get(task, {}).get(query) for name, tasks in report.by_arm.items()}
            right = {name: row.right if row and row.value is not None else None for name, row in given.items()}
            if change in ("all", _FATES.get((right.get("closed"), right[label]))):
                fates.append((task, query, right))
    return fates


def answers_to(library: Library, task: str, query: str) -> list[tuple[RagReport, list[AnswerColumn]]]:
    """Return what every study's arms answered to a question."""
    dataset = library.dataset(task)

    def column(arm: Arm, answers: QuestionAnswers) -> AnswerColumn:
        names = [passage.document for passage in answers.shown]
        documents = None if dataset is None else dataset.collection.documents
        texts = [documents.text(name)[:_LONGEST] if documents and name in documents.position else "" for name in names]
        return AnswerColumn(arm, answers, list(zip(answers.shown, texts, strict=True)))

    answers = []
    for report in studies(library).values():
        arms = {part.arm.label: part.arm for part in report.answers}
        rows = {label: tasks.get(task, {}).get(query) for label, tasks in report.by_arm.items()}
        if columns := [column(arms[label], row) for label, row in rows.items() if row]:
            answers.append((report, columns))
    return answers
