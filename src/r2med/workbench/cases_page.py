"""Cases on a terminal and as a page: matching words are marked, and nothing that a document says is obeyed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from r2med.formatting import harmless
from r2med.lexical.highlight import Kinds, excerpt, parts
from r2med.render.html import inlined, render, shown_tokens
from r2med.retrieve.sparse import MatchedTerm
from r2med.workbench.cases import Case, CaseDocument, Side

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

STYLES: Mapping[str, str] = {
    "query": "bold yellow",
    "generated": "bold underline cyan",
    "answer": "bold italic magenta",
}
"""How a word is shown that is in the query, only in what was written for it, only in the gold answer."""
SIGNS: Mapping[str, str] = {"query": "*", "generated": "_", "answer": "="}
"""The same where there are no styles: what stands before and after the word."""
LEGEND: Mapping[str, str] = {
    "query": "in the query",
    "generated": "only in generated text",
    "answer": "only in the gold answer",
}


def show_cases(cases: Sequence[Case], console: Console, words: int) -> None:
    """Print cases; of a document at most so many words, of a generated text three times as many, all of them for 0."""
    pen = Pen(words, signs=not console.is_terminal)
    for case in cases:
        for block in _blocks(case, pen):
            console.print(block)
        console.print()
    console.print(pen.legend())


@dataclass(frozen=True)
class Pen:
    """Style of texts: their length, and the marks of their words."""

    words: int
    signs: bool  # whether marks are signs, for want of styles

    def marked(self, text: str, kinds: Kinds) -> Text:
        """Mark the matching words of a text."""
        line = Text()
        for part in parts(text, kinds):
            sign = SIGNS.get(part.kind, "") if self.signs else ""
            line.append(f"{sign}{harmless(part.text)}{sign}", style=STYLES.get(part.kind, ""))
        return line

    def excerpt(self, text: str, kinds: Kinds, times: int = 1) -> Text:
        """Return the part of a text that matches best, marked."""
        return self.marked(excerpt(text, kinds, times * self.words), kinds)

    def legend(self) -> Text:
        """Return the meanings of the marks."""
        line = Text("words: ", style="dim")
        for kind, meaning in LEGEND.items():
            sign = SIGNS[kind] if self.signs else ""
            line.append(f"{sign}{meaning}{sign}", style=STYLES[kind]).append(", ")
        return line.append("documents: + relevant, - not judged relevant")


def _blocks(case: Case, pen: Pen) -> Iterator[RenderableType]:
    kinds = case.kinds()
    title = Text(harmless(f"{case.task}  {case.query}  nDCG@10 {case.side.value:.4f}"), style="bold")
    if case.other is not None:
        title.append(f"  against {case.other.value:.4f}", style="not bold")
    yield Rule(title, align="left", characters="─")
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    facts.add_row("query", pen.marked(case.text, {}))
    facts.add_row("answer", pen.marked(case.answer, case.kinds_in_answer()) if case.answer else "(the task has none)")
    for name, side in (("", case.side), *([("other ", case.other)] if case.other else [])):
        for heading, text in written(side):
            facts.add_row(Text(harmless(name + heading)), pen.excerpt(text, case.kinds_in_generated(), times=3))
    yield facts
    beside = f", in brackets the place in {case.other.system}" if case.other else ""
    yield _heading(f"relevant documents{beside}")
    positives = case.side.positives[: max(len(case.side.top), 1)]
    yield _documents(positives, case, kinds, pen)
    if len(positives) < len(case.side.positives):
        yield Text(f"+{len(case.side.positives) - len(positives)} more (--docs)", style="dim")
    yield _heading(f"first {len(case.side.top)} of {case.side.length} by {case.side.system}")
    yield _documents(case.side.top, case, kinds, pen)
    if case.other and case.left:
        yield _heading(f"only in the first {len(case.other.top)} by {case.other.system}")
        yield _documents(case.left, case, kinds, pen, swapped=True)


def _heading(text: str) -> Text:
    return Text(harmless(text), style="bold")


def written(side: Side) -> Iterator[tuple[str, str]]:
    """Yield the texts generated for a query, under headings, and why something is missing."""
    for generation in side.generations:
        who = f"{generation.method} {generation.model}".strip()
        if generation.reasoning:
            yield f"{who}, reasoning", generation.reasoning
        if generation.text:
            yield who, generation.text
        if generation.incomplete:
            yield f"{who}, incomplete", generation.incomplete
    if side.incomplete and not any(generation.incomplete for generation in side.generations):
        yield "incomplete", side.incomplete


def _documents(
    documents: Sequence[CaseDocument], case: Case, kinds: Kinds, pen: Pen, *, swapped: bool = False
) -> Table:
    """Build a table of documents; `swapped` for those that are looked at from the other run."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for justify in ("right", "right", "left", "left"):
        table.add_column(justify=justify, no_wrap=True)
    table.add_column(overflow="fold")
    for seen in documents:
        rank, other = (seen.other, seen.rank) if swapped else (seen.rank, seen.other)
        place = _rank(rank) + (f" ({_rank(other)})" if case.other is not None else "")
        score = "" if seen.score is None or swapped else f"{seen.score:.4g}"
        mark = Text("+", style="bold green") if seen.relevant else "-"
        table.add_row(place, score, mark, pen.marked(seen.document, {}), pen.excerpt(seen.text, kinds))
        matches = [f"terms: {shown_terms(seen.terms)}"] if seen.terms else []
        for line in [*matches, *([f"tokens: {shown_tokens(seen.tokens)}"] if seen.tokens else [])]:
            table.add_row("", "", "", "", Text(harmless(line), style="dim"))
    return table


def shown_terms(terms: Sequence[MatchedTerm]) -> str:
    """List the heaviest terms and what each adds to the score; those that the model added say where.

    >>> shown_terms([MatchedTerm("copper", 2.5, ""), MatchedTerm("wilson", 1.25, "query")])
    'copper 2.5, wilson 1.25 (added to the query)'
    """
    heaviest = [f"{match.term} {match.share:.3g}{_ADDED[match.expanded]}" for match in terms[:TERMS]]
    return ", ".join(heaviest + [f"{len(terms) - TERMS} more"] * (len(terms) > TERMS))


_ADDED = {"": "", "query": " (added to the query)", "document": " (added to the document)", "both": " (added to both)"}
TERMS = 8  # how many of a document's terms are shown


def _rank(rank: int | None) -> str:
    return "not found" if rank is None else str(rank)


_SUMMARY = 160  # characters of a document that are shown before it is opened


def page(cases: Sequence[Case], title: str) -> str:
    """Render a whole page of cases."""
    facts = {"cases": cases, "title": title, "legend": LEGEND, "written": written, "terms": shown_terms}
    return render("workbench/cases.html", inlined({"Queries": "#main"}), letters=_SUMMARY, **facts)
