"""Reading a searching model's text: the same move whatever the server does at a stop string."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from r2med.expand.agents import SearchO1, SearchR1
from r2med.expand.conversation import MoveKind, Tags, read_move

R1, O1 = SearchR1.tags, SearchO1.tags
words = st.lists(st.sampled_from("scurvy vitamin C gums 5 mg in patients".split()), min_size=1, max_size=6).map(
    " ".join
)
prose = st.text(st.characters(exclude_characters="<>|", exclude_categories=["Cs"]), max_size=60)
protocols = st.sampled_from([R1, O1])


@given(protocols, prose, words, prose)
def test_a_search_reads_the_same_stripped_kept_and_ignored(tags: Tags, before: str, query: str, after: str) -> None:
    opening, closing = tags.call
    stripped = read_move(f"{before}{opening} {query} ", tags)
    kept = read_move(f"{before}{opening} {query} {closing}", tags)
    invented = f"{tags.result[0]}{after}{tags.result[1]}{tags.answer[0]}made up{tags.answer[1]}"
    ignored = read_move(f"{before}{opening} {query} {closing}{after}{invented}", tags)
    assert stripped.kind is kept.kind is ignored.kind is MoveKind.SEARCH
    assert stripped.text == kept.text == ignored.text == query
    assert kept.written == ignored.written == f"{before}{opening} {query} {closing}"
    assert stripped.written == f"{before}{opening} {query}{closing}"


@given(protocols, prose, words, prose)
def test_an_answer_reads_the_same_stripped_kept_and_ignored(tags: Tags, before: str, answer: str, after: str) -> None:
    opening, closing = tags.answer
    moves = [
        read_move(f"{before}{opening}{answer}", tags),
        read_move(f"{before}{opening}{answer}{closing}", tags),
        read_move(f"{before}{opening}{answer}{closing}{after}{tags.call[0]}more{tags.call[1]}", tags),
    ]
    assert {move.kind for move in moves} == {MoveKind.ANSWER}
    assert {move.text for move in moves} == {answer}
    assert all(move.written.endswith(closing) for move in moves)


marks = st.sampled_from([mark for tags in (R1, O1) for pair in (tags.call, tags.result, tags.answer) for mark in pair])


@given(
    protocols, st.lists(st.one_of(marks, prose, st.just("<think>"), st.just("</think>")), max_size=12), st.booleans()
)
@example(R1, ["<search>", "<answer>"], False)
def test_any_text_is_some_move(tags: Tags, parts: list[str], cut: bool) -> None:
    text = "".join(parts)
    move = read_move(text, tags, cut=cut)
    if move.kind in (MoveKind.SEARCH, MoveKind.ANSWER):
        assert any(character.isalnum() or character == "_" for character in move.text)
        assert not any(mark in move.text for mark in tags.call) or move.kind is MoveKind.ANSWER
    assert text.startswith(move.written) or move.written.startswith(text.rstrip())
    # What the model is taken to have said makes the same move again, so that a conversation can be read once more.
    if move.kind is not MoveKind.CUT:
        again = read_move(move.written, tags)
        assert (again.kind, again.text) == (move.kind, move.text)


@given(prose, words)
def test_what_stands_inside_reasoning_is_no_answer(before: str, answer: str) -> None:
    text = f"{before}<answer>{answer}</answer>"
    assert read_move(text, O1, answer_from=len(text)).kind is MoveKind.UNCLEAR
    assume(len(before) > 0)
    assert read_move(text, O1, answer_from=len(before)).text == answer


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        ("<search></search>", MoveKind.EMPTY, ""),
        ("<search> ... </search>", MoveKind.EMPTY, "..."),
        ("<search>query</search>", MoveKind.EMPTY, "query"),
        ("Put it in <search> and </search>", MoveKind.EMPTY, "and"),
        ('<search>"vitamin C"</search>', MoveKind.SEARCH, "vitamin C"),
        ("<search>one\n two</search>", MoveKind.SEARCH, "one two"),
        ("I may <search> so <search>scurvy</search>", MoveKind.SEARCH, "scurvy"),
        ("<search>scurvy</answer>", MoveKind.SEARCH, "scurvy"),
        ("scurvy</search>", MoveKind.UNCLEAR, ""),
        ("I could <search> but " + "I know enough of it " * 40, MoveKind.UNCLEAR, ""),
        ("inside <answer> and </answer>. <answer>Scurvy.</answer>", MoveKind.ANSWER, "Scurvy."),
        ("inside <answer> and </answer>", MoveKind.UNCLEAR, ""),
        ("<answer></answer>", MoveKind.UNCLEAR, ""),
        ("<answer>one <answer>two</answer>", MoveKind.ANSWER, "two"),
        ("<answer>Scurvy. <search>more", MoveKind.SEARCH, "more"),
        ("Scurvy.", MoveKind.UNCLEAR, ""),
        ("", MoveKind.UNCLEAR, ""),
    ],
)
def test_moves_of_search_r1(text: str, kind: MoveKind, found: str) -> None:
    move = read_move(text, R1)
    assert (move.kind, move.text) == (kind, found)


@pytest.mark.parametrize("text", ["Let me see", "<search>vita", "<answer>Scurvy is a", ""])
def test_a_text_cut_by_the_limit_is_no_move(text: str) -> None:
    assert read_move(text, R1, cut=True).kind is MoveKind.CUT


def test_a_move_that_was_complete_before_the_limit_counts() -> None:
    assert read_move("<search>gums</search> and so", R1, cut=True).text == "gums"
