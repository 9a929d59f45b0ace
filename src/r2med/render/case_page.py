"""Cases as one HTML page that needs nothing else: no script, no other file, every text escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

import r2med
from r2med.diagnose.cases import Case, Seen
from r2med.render.case_screen import LEGEND, harmless, written
from r2med.text.highlight import Kinds, parts

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
  color: #1a1a1a; background: #fff; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin: 0; } h3 { font-size: .9rem; margin: 1rem 0 .25rem; }
article { border-top: 3px solid #444; padding: 1rem 0 2rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; margin: .75rem 0; }
dt { color: #555; } dd { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; vertical-align: top;
  padding: .25rem .5rem; border-bottom: 1px solid #ddd; }
td.n { text-align: right; white-space: nowrap; } td.id { overflow-wrap: anywhere; min-width: 11rem; }
tr.relevant td { background: #eef6ee; } tr.relevant td:first-child { border-left: 4px solid #2a7a2a; }
summary { cursor: pointer; overflow-wrap: anywhere; } details > div { white-space: pre-wrap; overflow-wrap: anywhere;
  max-height: 28rem; overflow: auto; }
details[open] > summary .start, details:not([open]) > summary .less { display: none; }
td { overflow-wrap: anywhere; } td:last-child { min-width: 12rem; }
mark.query { background: #ffe680; } mark.generated { background: #bfe6f7; text-decoration: underline; }
mark.answer { background: #f3c6e4; border: 1px dashed #7a2a5f; } small { color: #555; }
@media (max-width: 44rem) { table { display: block; overflow-x: auto; } td.id { min-width: 6rem; } }
nav a { margin-right: .75rem; white-space: nowrap; }
"""
_SUMMARY = 160
"""Characters of a document that are shown before it is opened."""


def page(cases: Sequence[Case], title: str) -> str:
    """A whole page of cases."""
    legend = " ".join(f'<mark class="{kind}">{escape(meaning)}</mark>' for kind, meaning in LEGEND.items())
    contents = " ".join(
        f'<a href="#case-{number}">{_text(case.query)} ({case.side.value:.2f})</a>'
        for number, case in enumerate(cases, 1)
    )
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_text(title)}</title><style>{_STYLE}</style></head><body><main>
<h1>{_text(title)}</h1>
<p>{len(cases)} queries, by nDCG@10. Matching words: {legend}. Green rows are relevant.
<small>Made by r2med {escape(r2med.__version__)}. A research instrument, not a clinical decision system.</small></p>
<nav>{contents}</nav>
{"".join(_article(number, case) for number, case in enumerate(cases, 1))}
</main></body></html>
"""


def _text(text: str) -> str:
    """A text as it may stand anywhere in the page."""
    return escape(harmless(text), quote=True)


def _marked(text: str, kinds: Kinds) -> str:
    pieces = []
    for part in parts(text, kinds):
        inner = _text(part.text)
        pieces.append(f'<mark class="{part.kind}">{inner}</mark>' if part.kind else inner)
    return "".join(pieces)


def _article(number: int, case: Case) -> str:
    kinds = case.kinds()
    value = f"nDCG@10 {case.side.value:.4f}"
    if case.other is not None:
        value += f", against {case.other.value:.4f}"
    answer = _marked(case.answer, case.kinds_in_answer()) or "(the task has none)"
    facts = [("query", _marked(case.text, {})), ("answer", answer)]
    for prefix, side in (("", case.side), *([("other: ", case.other)] if case.other else [])):
        facts += [(prefix + heading, _folded(text, case.kinds_in_generated())) for heading, text in written(side)]
    rows = "".join(f"<dt>{_text(heading)}</dt><dd>{body}</dd>" for heading, body in facts)
    tables = [("relevant documents", case.side.positives, False)]
    tables.append((f"first {len(case.side.top)} of {case.side.system}", case.side.top, False))
    if case.other is not None and case.left:
        tables.append((f"only in the first {len(case.other.top)} of {case.other.system}", case.left, True))
    lists = "".join(
        f"<h3>{_text(heading)}</h3>{_table(found, case, kinds, swapped=swapped)}" for heading, found, swapped in tables
    )
    heading = f"{_text(case.task)} &middot; {_text(case.query)} &middot; {value}"
    return f'<article id="case-{number}"><h2>{heading}</h2><dl>{rows}</dl>{lists}</article>'


def _table(found: Iterable[Seen], case: Case, kinds: Kinds, *, swapped: bool) -> str:
    other = "<th>other</th>" if case.other is not None else ""
    rows = "".join(_row(seen, kinds, compared=case.other is not None, swapped=swapped) for seen in found)
    return f"<table><tr><th>rank</th>{other}<th>score</th><th>document</th><th>text</th></tr>{rows}</table>"


def _row(seen: Seen, kinds: Kinds, *, compared: bool, swapped: bool) -> str:
    here, there = (seen.other, seen.rank) if swapped else (seen.rank, seen.other)
    other = f'<td class="n">{there or "none"}</td>' if compared else ""
    score = "" if seen.score is None or swapped else f"{seen.score:.4g}"
    style = ' class="relevant"' if seen.relevant else ""
    mark = "relevant: " if seen.relevant else ""
    return (
        f'<tr{style}><td class="n">{here or "none"}</td>{other}<td class="n">{score}</td>'
        f'<td class="id">{mark}{_text(seen.document)}</td><td>{_folded(seen.text, kinds)}</td></tr>'
    )


def _folded(text: str, kinds: Kinds) -> str:
    """A text that is opened by a click when it is long."""
    if len(text) <= 2 * _SUMMARY:
        return _marked(text, kinds)
    start = re.sub(r"\s+\S{0,40}$", "", text[:_SUMMARY])
    shut = f'<span class="start">{_marked(start, kinds)} …</span><span class="less">close</span>'
    return f'<details><summary>{shut}</summary><div dir="auto">{_marked(text, kinds)}</div></details>'
