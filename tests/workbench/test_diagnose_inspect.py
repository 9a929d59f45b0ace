"""Looking at queries: the right ones, the words that match, and nothing obeyed that a document says."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from html import unescape
from html.parser import HTMLParser
from io import StringIO

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

import r2med
from r2med.data.dataset import Generation
from r2med.errors import R2medError
from r2med.formatting import harmless
from r2med.lexical.analyzer import analyze
from r2med.lexical.highlight import excerpt, kinds_of, marks, parts
from r2med.pipeline.loaded_runs import load_runs
from r2med.runs.ledger import Ledger
from r2med.workbench.cases import Case, CaseChoice, CaseDocument, Side, look
from r2med.workbench.cases_page import page, show_cases

TEXTS = st.text(max_size=80) | st.lists(
    st.sampled_from(["gums", "Gum's", "bleeding,", "(bleed)", "naïve", "東京", "the", "β-cells", "1,000", "\n"])
).map(" ".join)
KINDS = {"gum": "query", "bleed": "generated", "東": "answer", "cell": "answer", "1,000": "query"}


@given(TEXTS)
@example("\ud83d\ude00 gums \ud800")
def test_parts_put_together_are_the_text(text: str) -> None:
    assert "".join(part.text for part in parts(text, KINDS)) == text


@given(TEXTS)
def test_words_are_marked_by_their_stems(text: str) -> None:
    found = list(marks(text, KINDS))
    for mark in found:
        word = text[mark.start : mark.end]
        assert mark.kind in {KINDS.get(term) for term in analyze(word)}
    assert len(found) == sum(term in KINDS for term in analyze(text))


def test_every_form_of_a_word_is_marked_as_it_is_written() -> None:
    text = "Bleeding gums: the GUM bleeds. A gum's bleed; anti-gum."
    found = [part.text for part in parts(text, KINDS) if part.kind]
    assert found == ["Bleeding", "gums", "GUM", "bleeds", "gum's", "bleed", "gum"]


def test_a_term_has_the_first_kind_it_is_met_in() -> None:
    assert kinds_of(query=["gums"], generated=["gum cells"], answer=["cells of scurvy"]) == {
        "gum": "query",
        "cell": "generated",
        "scurvi": "answer",
    }


@given(TEXTS, st.integers(0, 12))
def test_an_excerpt_is_a_stretch_of_the_text(text: str, words: int) -> None:
    found = excerpt(text, KINDS, words)
    inner = found.removeprefix("... ").removesuffix(" ...") if found != text else text
    assert inner in text
    if words and len(text.split()) > words:
        assert len(inner.split()) == words


def test_an_excerpt_is_short_whatever_the_words_are() -> None:
    sequence = 100_000 * "ACGT"
    assert len(excerpt(sequence, KINDS, 45)) < 600
    assert excerpt(sequence, KINDS, 45).endswith("T...")
    assert len(excerpt("\n".join(500 * [20 * "ACGT"]), KINDS, 45)) < 600
    words = excerpt(100 * "hypercholesterolaemia ", KINDS, 45)
    assert len(words) < 600
    assert set(words.split()) == {"hypercholesterolaemia", "..."}


# Which queries


@pytest.fixture
def runs() -> list[str]:
    systems = ["replay >> bm25", "bm25"]
    r2med.evaluate(systems, ["sample/MedQA-Diag", "sample/Biology"])
    return systems


def cases(names: list[str], choice: CaseChoice, tasks: tuple[str, ...] = ()) -> list[Case]:
    with Ledger() as ledger:
        return look(load_runs(ledger, names, tasks), choice)


def test_all_queries_come_with_the_lowest_score_first(runs: list[str]) -> None:
    found = cases(["bm25"], CaseChoice())
    values = [case.side.value for case in found]
    assert len(found) == 18
    assert values == sorted(values)
    for case in found:
        assert [seen.rank for seen in case.side.top] == list(range(1, 11))
        scores = [seen.score for seen in case.side.top if seen.score is not None]
        assert scores == sorted(scores, reverse=True)
        assert all(seen.relevant for seen in case.side.positives)
        marked = {seen.document for seen in case.side.top if seen.relevant}
        assert marked <= {seen.document for seen in case.side.positives}


def test_failures_worst_and_sample(runs: list[str]) -> None:
    assert all(case.side.value == 0 for case in cases(["bm25"], CaseChoice(kind="failures", count=5)))
    everything = cases(["bm25"], CaseChoice())
    worst = cases(["bm25"], CaseChoice(kind="worst", count=4))
    assert [case.side.value for case in worst] == [case.side.value for case in everything[:4]]
    sample = cases(["bm25"], CaseChoice(kind="sample", count=6))
    again = cases(["replay >> bm25"], CaseChoice(kind="sample", count=6))
    assert {case.query for case in sample} == {case.query for case in again}, "the same for every system"
    assert len(sample) == 6
    smaller = cases(["bm25"], CaseChoice(kind="sample", count=3))
    assert {case.query for case in smaller} < {case.query for case in sample}


def test_against_another_run_losses_come_first_and_moves_are_shown(runs: list[str]) -> None:
    found = cases(["bm25", "replay >> bm25"], CaseChoice(kind="worst", count=3, depth=5))
    losses = [case.lost for case in found]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > 0
    case = found[0]
    assert case.other is not None
    assert case.other.generations[0].method == "hyde"
    other = {seen.document: seen.rank for seen in case.other.top}
    assert all(seen.other == other[seen.document] for seen in case.side.top if seen.document in other)
    assert {seen.document for seen in case.left} == set(other) - {seen.document for seen in case.side.top}


def test_one_query_by_its_id(runs: list[str]) -> None:
    (case,) = cases(["replay >> bm25"], CaseChoice(query="mqd-q01"))
    assert case.answer == "Acute intermittent porphyria"
    assert asdict(case)["side"]["generations"][0]["text"]
    with pytest.raises(R2medError, match="no query 'nope'"):
        cases(["bm25"], CaseChoice(query="nope"))


# Showing them


def made(text: str, **changes: object) -> Case:
    seen = CaseDocument(text, text, True, 1, 2.5, None)
    side = Side(text, 0.5, 1, [Generation(text, text, text, reasoning=text)], text, [seen], [replace(seen, rank=None)])
    return replace(Case(text, text, text, text, 7, side, replace(side, value=0.25)), **changes)  # type: ignore[arg-type]


class Reader(HTMLParser):
    """What a browser would see: the elements and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.documents: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "li":
            self.documents.append("")

    def handle_data(self, data: str) -> None:
        if self.documents:
            self.documents[-1] += data


OWN_TAGS = set(
    "html head meta title link style body header main footer h1 h2 h3 p mark nav a article".split()
    + "dl dt dd ol li b details summary div span".split()
)
EVIL = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style></title><iframe>",
    "&lt;b&gt; <!-- ' -->",
    "]]><svg onload=x>",
]


@given(st.text(max_size=60) | st.sampled_from(EVIL) | st.lists(st.sampled_from(EVIL)).map(" gums ".join))
def test_nothing_that_a_text_says_becomes_part_of_the_page(text: str) -> None:
    reader = Reader()
    reader.feed(page([made(text)], text))
    assert reader.tags <= OWN_TAGS
    allowed = "lang charset http-equiv content name class href id dir title tabindex aria-label rel type".split()
    assert reader.attributes <= set(allowed)
    plain = re.sub(r"\s", "", harmless(text))
    assert plain in re.sub(r"\s", "", reader.documents[0])


def test_the_page_is_whole_and_alone(runs: list[str]) -> None:
    found = cases(["bm25", "replay >> bm25"], CaseChoice())
    text = page(found, "bm25")
    assert text.count("<article") == text.count("</article>") == 18
    assert not re.search(r"(src|href)=[\"'](?!#|data:image)", text), "nothing is fetched"
    assert "<script" not in text
    policy = unescape(text.partition('Content-Security-Policy" content="')[2].partition('"')[0])
    assert re.fullmatch(r"default-src 'none'; style-src 'sha256-[\w+/=]+'; img-src data:; base-uri 'none'", policy)
    assert '<mark class="generated">' in text
    assert '<mark class="answer">' in text


@given(st.text())
def test_a_terminal_is_never_steered(text: str) -> None:
    found = harmless(text)
    assert len(found) == len(text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", found)
    found.encode("utf-8")
    assert harmless(found) == found


@pytest.mark.parametrize("terminal", [True, False])
def test_the_terminal_shows_text_marks_and_moves(runs: list[str], terminal: bool) -> None:
    found = cases(["bm25", "replay >> bm25"], CaseChoice(query="mqd-q01"))
    buffer = StringIO()
    colors = "standard" if terminal else None
    show_cases(found, Console(file=buffer, force_terminal=terminal, width=120, color_system=colors), 30)
    text = buffer.getvalue()
    assert ("\x1b[" in text) == terminal
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    for piece in ("mqd-q01", "nDCG@10", "Acute", "porphyria", "other hyde", "relevant documents", "first 10"):
        assert piece in plain
    assert ("=porphyria=" in plain or "_porphyria_" in plain) == (not terminal)


def test_a_document_cannot_write_markup_or_escape_codes_to_the_terminal() -> None:
    buffer = StringIO()
    case = made("[bold]x[/bold] \x1b[31mred\x1b[0m \u202eevil")
    show_cases([case], Console(file=buffer, force_terminal=False, width=200), 0)
    text = buffer.getvalue()
    assert "[bold]x[/bold]" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
