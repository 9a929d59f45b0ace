"""Labels leave a review and come back: nothing that a format can say is changed on the way, whatever the scale."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

import polars
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import r2med
from r2med.cli.main import app
from r2med.data.qrels import read_label_sets
from r2med.errors import DataError, R2medError
from r2med.reviews.agreement import review_agreement
from r2med.reviews.imports import ImportSettings, import_labels
from r2med.reviews.labels import ExportSettings, export_labels
from r2med.reviews.rows import DraftDecision, Revealed, ReviewItem, ReviewProject, ReviewQuestion
from r2med.reviews.scale import DEFAULT_SCALE, Grade, GradeScale
from r2med.reviews.store import ReviewStore, create_review

NUMBERS = count()
SLOW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
IDS = st.text(st.sampled_from("aZ09é漢_-.:,;'\"=+@#\u00a0\u2028 "), min_size=1, max_size=6)
PLAIN_IDS = st.text(st.sampled_from("aZ09é漢_-.:,;'\"=+@#"), min_size=1, max_size=6)
NAMES = st.text(st.sampled_from("Ab,.'\"=é"), min_size=1, max_size=5)


@st.composite
def scales(draw) -> GradeScale:
    values = sorted(draw(st.sets(st.integers(0, 9), min_size=2, max_size=6)))
    relevant = draw(st.sampled_from(values[1:]))
    return GradeScale(tuple(Grade(value, f"grade-{value}x", "means something") for value in values), relevant)


Pair = tuple[str, str]


@st.composite
def labelled(draw, ids=IDS, people: int = 3):
    """A scale, and what some reviewers say of some pairs of it."""
    scale = draw(scales())
    pairs = draw(st.lists(st.tuples(ids, ids), min_size=1, max_size=6, unique=True))
    names = draw(st.lists(NAMES, min_size=1, max_size=people, unique=True))
    said = {name: draw(st.dictionaries(st.sampled_from(pairs), st.sampled_from(scale.values), min_size=1))
            for name in names}  # fmt: skip
    return scale, pairs, said


def review(scale: GradeScale, pairs: Sequence[Pair], tasks: Mapping[str, str] | None = None) -> ReviewStore:
    data = dict(tasks or {"made-up": "x"})
    asked = [(task, query) for task in data for query in dict.fromkeys(query for query, _ in pairs)]
    questions = [ReviewQuestion(n, task, query, "Why?") for n, (task, query) in enumerate(asked, 1)]
    place = {(each.task, each.query): each.number for each in questions}
    rows = [(task, query, document) for task in data for query, document in pairs]
    items = [
        ReviewItem(n, place[task, query], document, "Some text.", "random", shared=True)
        for n, (task, query, document) in enumerate(rows, 1)
    ]
    head = (f"r{next(NUMBERS)}", "2026-01-01", tuple(data), data, "random", {"random": 100})
    made = create_review(ReviewProject(*head, scale, "Judge.", 1.0, 0.0, 0), questions, items)
    made.rows("PRAGMA synchronous = OFF")
    return made


def say(store: ReviewStore, pairs: Sequence[Pair], said: Mapping[str, Mapping[Pair, int]], kind: str = "person"):
    for name, grades in said.items():
        drafts = [(pairs.index(pair) + 1, DraftDecision("graded", grade)) for pair, grade in grades.items()]
        store.record_all(store.add_reviewer(name, kind).id, drafts)


def came_back(store: ReviewStore, path: Path, names: Sequence[str], **settings: str) -> dict[str, dict[int, int]]:
    """The labels of a file after their import, by the names that they had."""
    import_labels(store, path, ImportSettings("in", {}, **settings))
    several = len(names) > 1
    return {name: store.labels()[f"in: {name}" if several else "in"] for name in names}


@given(labelled())
@SLOW
def test_csv_brings_every_label_of_everybody_back(tmp_path: Path, drawn):
    scale, pairs, said = drawn
    path = tmp_path / "labels.csv"
    with review(scale, pairs) as before, review(scale, pairs) as after:
        say(before, pairs, said)
        for binary in (False, True):
            export_labels(before, path, ExportSettings("csv", binary=binary))
            assert came_back(after, path, list(said)) == before.labels()


def test_a_csv_brings_back_who_had_the_gold_answer_in_view(tmp_path: Path):
    pairs = [(f"q{number}", "d") for number in range(4)]
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    seen = (Revealed("answer", "2026-01-01"), Revealed("sources", "2026-01-02"))
    with review(DEFAULT_SCALE, pairs) as before, review(DEFAULT_SCALE, pairs) as after:
        drafts = [(item, DraftDecision("graded", 2, revealed=seen if item < 3 else ())) for item in range(1, 5)]
        before.record_all(before.add_reviewer("in").id, drafts)
        export_labels(before, first, ExportSettings("csv"))
        for written in (4, 0):
            assert import_labels(after, first, ImportSettings("in", {})).written == written
        kept = [[each.what for each in row.revealed] for row in after.standing()]
        assert kept == [["answer", "sources"], ["answer", "sources"], [], []]
        export_labels(after, second, ExportSettings("csv"))
        columns = [[row["revealed"] for row in csv.DictReader(path.open())] for path in (first, second)]
        assert columns[0] == columns[1] == ["answer sources", "answer sources", "", ""]
        assert "2 of 4 grades were given with the gold answer in view" in review_agreement(after).notes


@given(labelled(PLAIN_IDS, people=1), st.sampled_from(["trec", "r2med", "beir"]))
@SLOW
def test_judgements_come_back_as_the_same_judgements(tmp_path: Path, drawn, form: str):
    scale, pairs, said = drawn
    first, second = tmp_path / f"first.{form}", tmp_path / f"second.{form}"
    (name,) = said
    with review(scale, pairs) as before, review(scale, pairs) as after:
        say(before, pairs, said)
        export_labels(before, first, ExportSettings(form))
        given = came_back(after, first, [name], scale="judgements", kind="person")[name]
        export_labels(after, second, ExportSettings(form))
        assert first.read_bytes() == second.read_bytes()
        for item, grade in before.labels()[name].items():
            relevant = grade >= scale.relevant_from
            assert given[item] == (grade if relevant else scale.values[0])
        with review(scale, pairs) as unasked:
            try:
                guessed = came_back(unasked, first, [name])[name]
            except DataError as error:
                assert "--scale judgements or --scale review" in str(error)  # noqa: PT017
            else:
                # Without a word it is read only where no other reading is possible.
                assert guessed == given


def write_label_studio(path: Path, said: Mapping[str, Mapping[Pair, object]], kind: str) -> None:
    tasks = []
    for pair in dict.fromkeys(pair for grades in said.values() for pair in grades):
        annotations = [
            {"completed_by": {"id": 1, "email": name}, "was_cancelled": False, "result": [
                {"from_name": "rel", "to_name": "t", "type": kind,
                 "value": {kind: [grades[pair]] if kind == "choices" else grades[pair]}}]}
            for name, grades in said.items() if pair in grades
        ]  # fmt: skip
        tasks.append({"id": len(tasks), "data": {"query_id": pair[0], "doc_id": pair[1]}, "annotations": annotations})
    path.write_text(json.dumps(tasks))


def write_argilla(path: Path, said: Mapping[str, Mapping[Pair, object]], *, version: int) -> None:
    records = []
    for pair in dict.fromkeys(pair for grades in said.values() for pair in grades):
        heard = {name: grades[pair] for name, grades in said.items() if pair in grades}
        if version == 2:
            responses = {"rel": [{"value": value, "user_id": name} for name, value in heard.items()]}
        else:
            responses = [{"user_id": name, "status": "submitted", "values": {"rel": {"value": value}}}
                         for name, value in heard.items()]  # fmt: skip
        records.append({"fields": {}, "metadata": {"query_id": pair[0], "doc_id": pair[1]}, "responses": responses})
    path.write_text("\n".join(map(json.dumps, records)))


def write_table(path: Path, said: Mapping[str, Mapping[Pair, object]]) -> None:
    rows = [{"query_id": pair[0], "doc_id": pair[1], "grade": grade, "reviewer": name}
            for name, grades in said.items() for pair, grade in grades.items()]  # fmt: skip
    if path.suffix == ".parquet":
        polars.DataFrame(rows).write_parquet(path)
    else:
        path.write_text("\n".join(map(json.dumps, rows)))


@given(labelled(), st.sampled_from(["rating", "number", "choices", "argilla-1", "argilla-2", "jsonl", "parquet"]))
@SLOW
def test_labels_of_every_tool_are_those_that_its_people_gave(tmp_path: Path, drawn, tool: str):
    scale, pairs, said = drawn
    path = tmp_path / (f"labels.{tool}" if tool in ("jsonl", "parquet") else "labels.json")
    by_name = {who: {pair: f"grade-{grade}x" for pair, grade in grades.items()} for who, grades in said.items()}
    if tool in ("rating", "number"):
        write_label_studio(path, said, tool)
    elif tool == "choices":
        write_label_studio(path, by_name, tool)
    elif tool.startswith("argilla"):
        write_argilla(path, said if tool.endswith("1") else by_name, version=int(tool[-1]))
    else:
        write_table(path, said)
    with review(scale, pairs) as store:
        found = came_back(store, path, list(said), scale="review")
    expected = {who: {pairs.index(pair) + 1: grade for pair, grade in grades.items()} for who, grades in said.items()}
    assert found == expected


@given(st.lists(st.sampled_from(DEFAULT_SCALE.values), min_size=8, max_size=8))
@settings(SLOW, max_examples=10)
def test_a_task_that_a_review_wrote_brings_its_labels_back(tmp_path: Path, grades: list[int]):
    number = next(NUMBERS)
    folder, out = tmp_path / f"task{number}", tmp_path / f"out{number}"
    folder.mkdir()
    pairs = [(f"q{n % 2}", f"d{n}") for n in range(8)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps({"id": d, "text": f"Text {d}"}) + "\n" for _, d in pairs))
    (folder / "query.jsonl").write_text("".join(json.dumps({"id": q, "text": q}) + "\n" for q in ("q0", "q1")))
    (folder / "qrels.jsonl").write_text(
        "".join(json.dumps({"q_id": q, "p_id": d, "score": 2}) + "\n" for q, d in (("q0", "d0"), ("q1", "d1")))
    )
    data = {str(folder): r2med.load(folder).fingerprint}
    with review(DEFAULT_SCALE, pairs, data) as before, review(DEFAULT_SCALE, pairs, data) as after:
        said = {"Ada": dict(zip(pairs, grades, strict=True))}
        say(before, pairs, said)
        try:
            export_labels(before, out, ExportSettings("task"))
        except R2medError as error:
            assert "no query has" in str(error) or max(grades) < 2  # noqa: PT017
            return
        found = came_back(after, out, ["Ada"], scale="judgements")["Ada"]
    assert read_label_sets(out)[""] == {
        q: {d: max(0, said["Ada"][q, d] - 1) for other, d in pairs if other == q} for q in ("q0", "q1")
    }
    assert {item: max(0, grade - 1) for item, grade in found.items()} == {
        n: max(0, grade - 1) for n, grade in enumerate(grades, 1)
    }


@pytest.mark.parametrize("names", [("one", "two"), ("/home/me/one/task", "/home/me/two/task")])
def test_a_csv_of_two_tasks_with_the_same_ids_goes_back_to_its_tasks(tmp_path: Path, names: tuple[str, str]):
    data, pairs = dict.fromkeys(names, "x"), [("q", "a"), ("q", "b")]
    with review(DEFAULT_SCALE, pairs, data) as before, review(DEFAULT_SCALE, pairs, data) as after:
        drafts = [(number, DraftDecision("graded", number - 1)) for number in range(1, 5)]
        before.record_all(before.add_reviewer("Ada").id, drafts)
        export_labels(before, tmp_path / "a.csv", ExportSettings("csv"))
        assert "/home/me" not in (tmp_path / "a.csv").read_text()
        assert came_back(after, tmp_path / "a.csv", ["Ada"])["Ada"] == before.labels()["Ada"]


def test_an_import_says_whether_people_or_models_made_the_labels(tmp_path: Path):
    pairs = [("q", "a"), ("q", "b")]
    with review(DEFAULT_SCALE, pairs) as before, review(DEFAULT_SCALE, pairs) as after:
        say(before, pairs, {"Ada": {pairs[0]: 3}})
        say(before, pairs, {"gpt": {pairs[0]: 1, pairs[1]: 2}}, "model")
        path, name = tmp_path / "a.csv", after.project.name
        export_labels(before, path, ExportSettings("csv"))
        import_labels(after, path, ImportSettings("x", {}))
        assert {each.name: each.kind for each in after.reviewers()} == {"x: Ada": "person", "x: gpt": "model"}
        after.add_reviewer("Dr. Bo")
        with pytest.raises(R2medError, match=r"Bo judges in .* already; choose another name"):
            import_labels(after, tmp_path / "b.jsonl", _one(tmp_path / "b.jsonl", "Dr. Bo"))
    words = ("review", "import", name, str(tmp_path / "b.jsonl"), "--as", "m", "--kind", "model")
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    with ReviewStore.open(name) as store:
        assert store.reviewer("m").kind == "model"


def _one(path: Path, name: str) -> ImportSettings:
    write_table(path, {name: {("q", "a"): 3}})
    return ImportSettings(name, {})


@pytest.mark.parametrize(
    ("scores", "scale", "expected"),
    [
        ([0, 1, 2], "", None),  # either
        ([0, 1, 2], "judgements", [0, 2, 3]),
        ([0, 1, 2], "review", [0, 1, 2]),
        ([0, 1, 3], "", [0, 1, 3]),  # no judgement of this review is 3
        ([0, 0, 0], "", [0, 0, 0]),  # the same in both
    ],
)
def test_numbers_that_could_be_of_two_scales_are_never_guessed(tmp_path: Path, scores, scale, expected):
    pairs = [("q", f"d{n}") for n in range(3)]
    path = tmp_path / "a.qrels"
    path.write_text("".join(f"q 0 d{n} {score}\n" for n, score in enumerate(scores)))
    with review(DEFAULT_SCALE, pairs) as store:
        if expected is None:
            with pytest.raises(DataError, match=r"Helpful here\) or a grade of r\d+ \(Related\); say which"):
                import_labels(store, path, ImportSettings("x", {}, scale=scale))
            assert store.reviewers() == []
            return
        import_labels(store, path, ImportSettings("x", {}, scale=scale))
        assert list(store.labels()["x"].values()) == expected
