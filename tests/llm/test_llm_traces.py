"""Reasoning is told from answers for every format, and never handed on as an answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.llm.reasoning import CUT, EMPTY, FORMATS, REFUSED, UNCLOSED, detect, split_trace

MARKS = [
    mark
    for rule in FORMATS.values()
    for mark in (rule.opening, rule.closing, rule.answer_opening, rule.answer_closing)
    if mark
]


def free_of_marks(text: str) -> bool:
    return not any(mark in text for mark in MARKS)


plain = st.text(max_size=60).map(str.strip).filter(free_of_marks)
answers = plain.filter(bool).map(lambda text: f"Scurvy {text}".strip())

WRITERS = {
    "think": lambda reasoning, answer: f"<think>\n{reasoning}\n</think>\n\n{answer}",
    "think, opened by the prompt": lambda reasoning, answer: f"{reasoning}\n</think>\n\n{answer}",
    "think-tags": lambda reasoning, answer: f"<think>{reasoning}</think>{answer}",
    "huatuo": lambda reasoning, answer: f"## Thinking\n\n{reasoning}\n\n## Final Response\n\n{answer}",
    "sky": lambda reasoning, answer: (
        f"<|begin_of_thought|>\n{reasoning}\n<|end_of_thought|>\n<|begin_of_solution|>\n{answer}\n<|end_of_solution|>"
    ),
    "answer": lambda reasoning, answer: f"{reasoning} <answer> {answer} </answer>",
}


@pytest.mark.parametrize("writer", WRITERS)
@given(reasoning=plain, answer=answers)
def test_every_format_splits_into_what_was_joined(writer, reasoning, answer):
    text = WRITERS[writer](reasoning, answer)
    name = writer.partition(",")[0]
    for chosen in (name, "auto"):
        trace = split_trace(text, chosen)
        assert (trace.answer, trace.reasoning, trace.incomplete) == (answer, reasoning, "")


@pytest.mark.parametrize("writer", WRITERS)
@given(reasoning=plain, answer=answers, keep=st.integers(0, 200))
def test_a_cut_text_never_yields_reasoning_as_an_answer(writer, reasoning, answer, keep):
    reasoning = f"SECRET {reasoning}"
    text = WRITERS[writer](reasoning, answer)[:keep]
    trace = split_trace(text, writer.partition(",")[0], finish="length")
    if writer != "think-tags":  # which may answer without a trace
        assert "SECRET" not in trace.answer
    assert bool(trace.answer) != bool(trace.incomplete)


@given(
    text=st.text(), field=st.text(), format=st.sampled_from(sorted(FORMATS)), finish=st.sampled_from(["stop", "length"])
)
def test_any_text_in_any_format_gives_an_answer_or_a_reason(text, field, format, finish):
    trace = split_trace(text, format, field=field, finish=finish)
    assert bool(trace.answer) != bool(trace.incomplete)
    assert trace.answer == trace.answer.strip()
    assert trace.answer in text


@given(answer=answers)
def test_plain_text_is_its_own_answer(answer):
    assert detect(answer) == "none"
    assert split_trace(answer) == (answer, "", "")
    assert split_trace(answer, "none") == (answer, "", "")
    assert split_trace(answer, "think-tags") == (answer, "", "")


@given(reasoning=plain.filter(bool), answer=answers, format=st.sampled_from(sorted(FORMATS)))
def test_a_separate_field_is_the_reasoning_whatever_the_card_says(reasoning, answer, format):
    assert split_trace(answer, format, field=reasoning) == (answer, reasoning, "")


def test_a_separate_field_and_tags_in_the_text():
    trace = split_trace("<think>more</think>Scurvy.", "think", field="first")
    assert trace == ("Scurvy.", "first\n\nmore", "")


@pytest.mark.parametrize(
    ("text", "format", "finish", "reason"),
    [
        ("<think>on and on", "think", "length", CUT),
        ("<think>on and on", "auto", "stop", UNCLOSED),
        ("on and on", "think", "stop", UNCLOSED),
        ("<think>on and on", "think-tags", "stop", UNCLOSED),
        ("## Thinking\n\non and on", "huatuo", "stop", UNCLOSED),
        ("## Thinking\n\non and on", "auto", "length", CUT),
        ("<|begin_of_thought|>on and on", "auto", "stop", UNCLOSED),
        ("I would search", "answer", "stop", UNCLOSED),
        ("<think>a</think>b<think>on again", "think", "stop", UNCLOSED),
        ("<think>done</think>\n", "think", "stop", EMPTY),
        ("<think>done</think>\n", "think", "length", CUT),
        ("", "auto", "stop", EMPTY),
        ("  \n", "none", "stop", EMPTY),
        ("why <answer></answer>", "answer", "stop", EMPTY),
        ("I'm sorry, but I can't help with that request.", "auto", "stop", REFUSED),
        ("<think>hm</think>I cannot provide medical advice.", "think", "stop", REFUSED),
        ("As an AI language model, I am unable to diagnose.", "none", "stop", REFUSED),
        ("anything", "auto", "content_filter", REFUSED),
    ],
)
def test_what_is_incomplete_says_why(text, format, finish, reason):
    trace = split_trace(text, format, finish=finish)
    assert trace.answer == ""
    assert trace.incomplete == reason


def test_the_refusal_field_counts_whatever_the_text_says():
    assert split_trace("Sure.", refusal="No.").incomplete == REFUSED


@pytest.mark.parametrize(
    "text",
    [
        "The patient was sorry that he could not come.",
        "I cannot exclude scurvy. " + "The gums bleed and the hair is coiled. " * 12,
        "Sorry is what the patient said; scurvy is what he had.",
    ],
)
def test_a_passage_that_only_sounds_like_a_refusal_is_an_answer(text):
    assert split_trace(text).answer == text.strip()


def test_an_answer_tag_that_a_stop_string_took_away_still_counts():
    assert split_trace("I know. <answer> Scurvy", "answer") == ("Scurvy", "I know.", "")


def test_the_last_closing_tag_counts():
    assert split_trace("a </think> b </think> c", "think") == ("c", "a </think> b", "")
