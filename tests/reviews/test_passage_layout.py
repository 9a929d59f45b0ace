"""A passage as the desk shows it loses nothing, and every matching word is marked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from r2med.lexical.highlight import kinds_of, parts
from r2med.reviews.desk import LONGEST, lay_out

KINDS = kinds_of(query=["why do gums swell"], answer=["scurvy"])
WORDS = st.sampled_from(
    ["gums", "swollen", "scurvy", "the", "Nobody", "2.5 mg", "e.g.", "end.", "So?", "\n\n", "<b>", "é"]
)


def text_of(sentences) -> str:
    return "".join(part.text for each in sentences for part in each.parts)


@given(st.lists(WORDS, max_size=400).map(" ".join) | st.text(max_size=300))
def test_nothing_is_lost_and_every_match_is_marked(text):
    sentences = lay_out(text, KINDS)
    assert text_of(sentences) == text.lstrip()
    assert all("".join(part.text for part in each.parts) == text[each.start : each.end] for each in sentences)
    marked = [part for each in sentences for part in each.parts if part.kind]
    assert marked == [part for part in parts(text, KINDS) if part.kind]


def test_texts_that_are_no_prose_are_cut():
    for text in (". " * 100_000, "ACGT" * 250_000, "x\n " * 60_000, "a." + " " * 200_000):
        assert len(text_of(lay_out(text, KINDS))) <= LONGEST
