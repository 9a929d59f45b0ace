"""Slices share out the queries; labels are read strictly, from tables and from models."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import r2med
from r2med.data.dataset import Texts
from r2med.data.labels import Labels, read_labels, write_labels
from r2med.diagnosis.labelling import label_queries, scheme
from r2med.diagnosis.slices import NO_LABEL, SliceRow, cut, rows
from r2med.errors import DataError, R2medError
from r2med.llm.budget import Limits
from r2med.llm.client import session
from r2med.llm.parsing import read_class
from r2med.llm.scripted import scripted
from r2med.llm.types import Request
from r2med.models.http import AttemptError
from r2med.pipeline.loaded_runs import load_runs
from r2med.runs.ledger import Ledger

CLASSES = (
    "skeletal reproductive cardiovascular muscular lymphatic nervous digestive urinary respiratory endocrine"
    " integumentary other"
).split()

ROWS = st.lists(
    st.builds(
        SliceRow,
        st.sampled_from(["t1", "t2", "t3"]),
        st.uuids().map(str),
        st.sampled_from(["f1", "f2"]),
        st.integers(1, 300),
        st.integers(1, 8),
        st.floats(0, 1),
        st.sampled_from(["nervous", "other", NO_LABEL]),
        st.tuples(st.floats(0, 1), st.floats(0, 1)),
    ),
    min_size=1,
    max_size=15,
)


@given(ROWS)
def test_every_way_of_slicing_has_every_query_once(found: list[SliceRow]) -> None:
    ways = cut(found, labelled=True)
    assert set(ways) >= {"family", "task", "query length", "relevant documents", "label"}
    whole = np.mean([row.values for row in found], axis=0)
    for way, slices in ways.items():
        assert sum(each.queries for each in slices) == len(found)
        assert len({each.name for each in slices}) == len(slices)
        for each in slices:
            assert each.difference is not None
            assert each.difference.value == pytest.approx(each.means[1].value - each.means[0].value)
        if way != "family":
            means = [sum(each.queries * each.means[place].value for each in slices) for place in (0, 1)]
            assert np.array(means) / len(found) == pytest.approx(whole)


def test_slices_of_real_runs() -> None:
    report = r2med.evaluate(["bm25", "bm25-classic"], "sample")
    labels = Labels({("sample/Biology", "bio-q01"): "nervous", ("", "mqd-q01"): "digestive"})
    with Ledger() as ledger:
        found = [row for opened in load_runs(ledger, ["bm25", "bm25-classic"]) for row in rows(opened, labels)]
    assert len(found) == 72
    ways = cut(found, labelled=True)
    assert [each.name for each in ways["task"]][:2] == ["sample/Biology", "sample/Bioinformatics"]
    biology = ways["task"][0].means
    for place, system in enumerate(["bm25", "bm25-classic"]):
        result = report.result(system, "sample/Biology")
        assert result is not None
        assert biology[place].value == pytest.approx(result.metrics["nDCG@10"])
    assert {each.name: each.queries for each in ways["label"]} == {"nervous": 1, "digestive": 1, NO_LABEL: 70}
    assert ways["label"][-1].name == NO_LABEL
    families = {each.name: each for each in ways["family"]}
    tasks = {each.name: each for each in ways["task"]}
    cases = [tasks[f"sample/{name}"].means[0].value for name in ("PMC-Clinical", "IIYi-Clinical")]
    assert families["clinical case"].means[0].value == pytest.approx(np.mean(cases))


def test_a_family_is_averaged_over_its_tasks() -> None:
    small = [SliceRow("t1", "q0", "f", 10, 1, 0.5, NO_LABEL, (1.0,))]
    large = [SliceRow("t2", f"q{n}", "f", 10, 1, 0.5, NO_LABEL, (0.0,)) for n in range(3)]
    ways = cut([*small, *large])
    assert ways["family"][0].means[0].value == 0.5
    assert ways["query length"][0].means[0].value == 0.25, "other slices are averaged over queries"


def test_one_query_has_no_interval() -> None:
    """A resample of one query is that query: its interval would be a point, as if nothing were surer."""

    def row(task: str, query: str, words: int, value: float) -> SliceRow:
        return SliceRow(task, query, "f", words, 1, 0.5, NO_LABEL, (value, 0.5))

    found = [row("t1", "q1", 10, 0.2), row("t2", "q2", 10, 0.4), row("t2", "q3", 10, 0.8)]
    ways = {way: {each.name: each.as_dict() for each in several} for way, several in cut(found).items()}
    alone, pair, family = ways["task"]["t1"], ways["task"]["t2"], ways["family"]["f"]
    for each in (alone, family):
        assert [mean["low"] for mean in each["means"]] == [None, None]
        assert each["difference"]["high"] is None
    assert pair["means"][0]["low"] < 0.6 < pair["means"][0]["high"]
    assert pair["difference"]["low"] is not None


def test_one_run_has_no_difference() -> None:
    row = SliceRow("t", "q", "f", 10, 1, 0.5, NO_LABEL, (0.5,))
    assert "label" not in cut([row])
    assert cut([row])["task"][0].difference is None
    assert "difference" not in cut([row])["task"][0].as_dict()


# Tables of labels

CELLS = st.text(st.characters(exclude_characters="\t\r\n", exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(st.tuples(CELLS, CELLS), CELLS, min_size=1, max_size=5))
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, found: dict) -> None:
    file = tmp_path_factory.mktemp("labels") / "labels.tsv"
    write_labels(file, [(task, query, label) for (task, query), label in found.items()])
    assert read_labels(file).found == found


def test_two_columns_are_for_any_task(tmp_path: Path) -> None:
    file = tmp_path / "labels.tsv"
    file.write_bytes(b"\xef\xbb\xbfid\tbody_system\r\nq1\tnervous\r\nq2\tother\r\n\r\n")
    found = read_labels(file)
    assert found.of("anything", "q1") == "nervous"
    assert found.of("anything", "q3") == ""


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("q1 nervous\n", r":1: expected task, query and label"),
        ("t\tq1\tnervous\tmore\n", r":1: expected task, query and label"),
        ("q1\t\n", r":1: expected task, query and label"),
        ("q1\tnervous\nq1\tother\n", r":2: query 'q1' has the label 'nervous' above"),
        ("query\tlabel\n", "holds no labels"),
        ("", "holds no labels"),
    ],
)
def test_a_table_that_cannot_be_used_is_one_line(tmp_path: Path, content: str, complaint: str) -> None:
    file = tmp_path / "labels.tsv"
    file.write_text(content)
    with pytest.raises(DataError, match=complaint):
        read_labels(file)


def test_unreadable_files_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"q1\t\xe9\n")
    with pytest.raises(DataError, match="not UTF-8"):
        read_labels(tmp_path / "latin")
    with pytest.raises(DataError, match="no such file"):
        read_labels(tmp_path / "none")
    with pytest.raises(DataError, match="a tab or a line break"):
        write_labels(tmp_path / "out", [("t", "q\t1", "nervous")])
    with pytest.raises(R2medError, match="cannot be written"):
        write_labels(tmp_path / "latin" / "out", [("t", "q", "nervous")])


# Labels by a model


@pytest.mark.parametrize(
    ("reply", "label"),
    [
        ("nervous", "nervous"),
        (" Nervous. ", "nervous"),
        ("**Class: Urinary**", "urinary"),
        ("The kidneys fail.\n\nClass:  urinary.\n", "urinary"),
        ("class: nervous\nclass: nervous", "nervous"),
        ("class: nervous\nclass: other", None),
        ("nervous, urinary", None),
        ("The nervous system", "nervous"),
        ("Class: Nervous system", "nervous"),
        ("Not nervous", None),
        ("neuromuscular", None),
        ("nervous\nurinary", None),
        ("Class: brain", None),
        ("Class: nervous or urinary", None),
        ("", None),
    ],
)
def test_a_reply_counts_only_when_it_names_one_class(reply: str, label: str | None) -> None:
    assert read_class(reply, scheme("body-system").classes) == label


def test_the_twelve_classes_are_in_the_prompt() -> None:
    found = scheme("body-system")
    assert list(found.classes) == CLASSES
    prompt = found.prompt.fill({"query": "{classes}", "classes": "- x"})
    assert "{classes}" in prompt, "what a query says is never filled in"
    with pytest.raises(R2medError, match="did you mean body-system"):
        scheme("body-sistem")


def test_classes_of_ones_own_are_asked_for_in_ones_own_words(tmp_path: Path) -> None:
    file = tmp_path / "urgency.toml"
    file.write_text('classes = ["now", "within days"]')
    plain = scheme(str(file))
    assert plain.fill("chest pain").count("- within days") == 1
    assert "chest pain" in plain.fill("chest pain")
    assert read_class("Class: Within days.", plain.classes) == "within days"
    file.write_text('classes = ["now", "later"]\nprompt = "When? {classes} Text: {query}"')
    assert scheme(str(file)).fill("pain {classes}") == "When? - now\n- later Text: pain {classes}"
    asked: list[str] = []
    model = scripted(lambda request: asked.append(request.messages[-1].content) or "now", "judge")
    with session(Limits(retries=0)):
        found = label_queries(Texts(("q1",), ("pain",)), scheme(str(file)), model)
    assert asked == ["When? - now\n- later Text: pain"]
    assert found.labels == {"q1": "now"}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "must have classes"),
        ('classes = "now"', "must have classes"),
        ('classes = ["now", 3]', "must have classes"),
        ('classes = ["now", " "]', "must have classes"),
        ('classes = ["now"]', "two classes or more"),
        ('classes = ["now", "Now"]', "each of them once"),
        ('classes = ["now", "a\\tb"]', "no tab or line break"),
        ('classes = ["a", "b"]\nprompt = "{query}"', "with {classes} in it"),
        ('classes = ["a", "b"]\nprompt = 3', "with {query} and {classes} in it"),
        ('class = ["a", "b"]', "unknown key 'class'; did you mean classes"),
        ("classes = [", "not readable as TOML"),
    ],
)
def test_classes_that_cannot_be_used_are_one_line(tmp_path: Path, content: str, complaint: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(content)
    with pytest.raises(R2medError, match=re.escape(complaint)) as raised:
        scheme(str(file))
    assert str(raised.value).startswith(str(file))
    with pytest.raises(R2medError, match="no such file"):
        scheme(str(tmp_path / "none.toml"))


def test_a_model_is_asked_for_every_query_and_never_guessed_for() -> None:
    asked: list[str] = []

    def answer(request: Request) -> str:
        text = request.messages[-1].content
        asked.append(text)
        if "silent" in text:
            raise AttemptError("nobody is there", retry=False)
        return "I am not sure" if "odd" in text else "Class: urinary"

    queries = Texts(["q1", "q2", "q3"], ["a kidney stone", "an odd case", "a silent one"])
    with session(Limits(retries=0, backoff=0.0)):
        found = label_queries(queries, scheme("body-system"), scripted(answer))
    assert found.labels == {"q1": "urinary"}
    assert found.unparsable == {"q2": "I am not sure"}
    assert list(found.failed) == ["q3"]
    assert found.account.requests == 3
    assert all(f"- {name}\n" in text for text in asked for name in CLASSES)
    assert list(found.labels.values()).count("urinary") == 1
