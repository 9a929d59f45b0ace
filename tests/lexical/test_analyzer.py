"""The analyzer gives Lucene's tokens: golden pairs, whole collections by checksum, and the promise about pieces."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import needs
from r2med.lexical.analyzer import BREAK, BREAK_PATTERN, STOP_WORDS, _lower, _words, analyze, analyze_pieces
from r2med.lexical.porter import stem
from r2med.lexical.segmentation import NO_TOKEN, classes_of, segment

HERE = Path(__file__).parent
CHECKSUMS: dict[str, Any] = json.loads((HERE / "checksums.json").read_text(encoding="ascii"))


def golden() -> list[tuple[str, list[str]]]:
    """Return texts with the tokens that Anserini's analyzer made of them."""
    lines = (HERE / "golden.jsonl").read_text(encoding="ascii").splitlines()
    return [(text, tokens) for text, tokens in map(json.loads, lines)]


def test_golden_pairs() -> None:
    wrong = [(text, tokens, analyze(text)) for text, tokens in golden() if analyze(text) != tokens]
    assert wrong == []


def test_golden_pairs_in_pieces() -> None:
    for text, tokens in golden():
        assert analyze_pieces(re.split(BREAK_PATTERN, text)).tokens == tokens


def test_golden_pairs_as_one_text() -> None:
    """Texts one after another exercise the switching between the rules for ASCII and the full ones."""
    pairs = golden()
    assert analyze(" \n ".join(text for text, _ in pairs)) == [token for _, tokens in pairs for token in tokens]


@pytest.mark.parametrize("name", CHECKSUMS["collections"])
def test_whole_collection(name: str) -> None:
    """The sum over Lucene's tokens of every text of a collection is the sum over ours."""
    path = needs.collection(name)
    digest, tokens = hashlib.sha256(), 0
    with path.open(encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            terms = analyze(f"{record.get('title') or ''} {record['text']}")
            tokens += len(terms)
            digest.update(("\n".join(terms) + "\0").encode())
    assert {"tokens": tokens, "sha256": digest.hexdigest()} == CHECKSUMS["collections"][name]


MARKS = "aAsS1_'.,:;\"#*\u2019\u00ad\u0301\u200d\ufe0f\u20e3אカ漢กΣİ👩🇩🏽𝐚\ud835\udc1a"
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=40) | st.lists(
    st.sampled_from(BREAK) | st.sampled_from([*MARKS, "ing", "the", "x" * 200])
).map("".join)


@settings(max_examples=400, deadline=None)
@given(ANY_TEXT)
def test_pieces_make_the_whole(text: str) -> None:
    pieces = re.split(f"[{re.escape(BREAK)}]", text)
    result = analyze_pieces(pieces)
    assert result.tokens == analyze(text) == [token for piece in pieces for token in analyze(piece)]
    assert result.counts == [len(analyze(piece)) for piece in pieces]


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(max_codepoint=127)), st.text(st.characters(codec="utf-8"), max_size=20))
def test_short_cuts_change_nothing(ascii_text: str, other: str) -> None:
    """The rules for ASCII and the split at spaces give what the full rules give on the whole text."""
    text = f"{ascii_text} {other}{ascii_text}\u2013{ascii_text}"
    lowered = [_lower(word) for word in segment(text)]
    assert [word for word in _words(text) if word.strip("_")] == lowered


def test_break_is_what_no_token_contains() -> None:
    assert set(classes_of(BREAK)) == {NO_TOKEN}
    assert set(" \t\n\r\x0b\x0c\x85\xa0\u2028-/()[]<>=%+\u2013\u2014\u201c\u00b1") <= set(BREAK)
    assert [c for c in map(chr, range(128)) if c not in BREAK and not c.isalnum()] == list("\"#'*,.:;_")
    assert "".join(re.findall(BREAK_PATTERN, "".join(map(chr, range(sys.maxunicode))))) == BREAK
    assert BREAK.lower() == BREAK


def test_break_pattern_in_polars() -> None:
    pl = pytest.importorskip("polars")
    text = f"a{BREAK}b[c]d^e\\f-g\u2212h"
    assert pl.Series([text]).str.replace_all(BREAK_PATTERN, " ").to_list() == ["a b c d e f g h"]


def test_character_tables() -> None:
    """Classes and lower case of all code points are those of the Java analyzer, whatever Python's Unicode version."""
    # A table of its own, which does not keep a million entries when the test is over.
    classes = classes_of("".join(map(chr, range(sys.maxunicode + 1))))
    lowered = "".join(_lower(chr(code)) if cls != NO_TOKEN else "" for code, cls in enumerate(classes))
    digest = hashlib.sha256((classes + lowered).encode()).hexdigest()
    assert digest == CHECKSUMS["characters"]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        ("the", []),
        ("The THIS it's", []),
        ("patient's PATIENT\u2019S patient\uff07s patients'", ["patient"] * 4),
        ("s's S", ["s", "s"]),
        ("U.S.A. e.g. a.b.c.", ["u.s.a", "e.g", "a.b.c"]),
        ("1,000.5 1,a 1;2 1:2 a:b a,b", ["1,000.5", "1", "1;2", "1", "2", "a:b", "b"]),
        ("_ __ a_b __init__ 1_000", ["a_b", "__init__", "1_000"]),
        ("İΣΣ ẞ", ["iσσ", "ß"]),
        ("漢字カタひら 한글", ["漢", "字", "カタ", "ひ", "ら", "한글"]),
        ("soft\u00adhyphen", ["soft\u00adhyphen"]),
        ("10\u202fmg 5µg 37°C", ["10\u202fmg", "5µg", "37", "c"]),
        ("🇩🇪🇫 👍🏽 1\ufe0f\u20e3 #\u20e3 # *", ["🇩🇪", "👍🏽", "1\ufe0f\u20e3", "#\u20e3"]),
    ],
)
def test_edge_cases(text: str, tokens: list[str]) -> None:
    assert analyze(text) == tokens


def test_long_tokens_are_cut_at_255_utf16_units() -> None:
    assert [len(token) for token in analyze("x" * 600)] == [255, 255, 90]
    assert [len(token) for token in analyze("𝐚" * 200)] == [127, 73]
    assert [len(token) for token in analyze("x" + "𝐚" * 127 + "x")] == [128, 1]
    assert analyze_pieces(["x" * 256]).counts == [2]
    # The cut may fall before a mark that then belongs to no token.
    assert analyze("x" * 255 + "\u0301y") == ["x" * 255, "y"]
    assert analyze("x" * 254 + "." + "y") == ["x" * 254, "y"]


def test_surrogates() -> None:
    assert analyze("a\ud83d b\ude00c \udc00") == ["b", "c"]
    assert analyze("ab\ud83d\ude00cd") == ["ab", "\U0001f600", "cd"]
    assert analyze("abc \ud83d") == ["abc"]


def test_long_run_of_connectors() -> None:
    """Of a run that alone would be no token, as much as fits is kept before the letter."""
    assert analyze("_" * 2_000 + "é") == ["_" * 254 + "é"]


def test_stop_words() -> None:
    assert len(STOP_WORDS) == 33
    assert analyze(" ".join(STOP_WORDS).upper()) == []


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("cardiology", "cardiolog"),  # Snowball: cardiologi
        ("assembly", "assembl"),  # Snowball: assembli
        ("checkking", "check"),  # Snowball: checkk
        ("byying", "by"),
        ("ayying", "ayi"),
        ("abilities", "abil"),
        ("ies", "i"),
        ("eed", "eed"),
        ("ion", "ion"),
        ("yes", "ye"),
        ("as", "as"),
        ("a11ing", "a1"),
        ("𝐚s", "𝐚"),  # three UTF-16 units, long enough to be stemmed
        ("βs", "βs"),
    ],
)
def test_stems(word: str, expected: str) -> None:
    assert stem(word) == expected
