"""`r2med audit`: planted errors are found at their rate, and systems are scored under both label sets."""

from __future__ import annotations

import csv
import json
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from cli.test_cli import complaint
from data.folders import Content, write_r2med
from r2med.audit.noise import ErrorModel, JudgedLists, simulate
from r2med.cli.main import app
from r2med.data.loader import load
from r2med.data.qrels import read_label_sets
from r2med.data.run import Run
from r2med.measure.agreement import Ratings
from r2med.measure.metrics import Measure
from r2med.measure.score import score
from r2med.measure.significance import difference
from r2med.runs.ledger import Ledger

ROOT = Path(__file__).parents[2]
PLANTED = runpy.run_path(str(ROOT / "benchmarks" / "planted_labels.py"))
TASK = "sample/Biology"
Labels = Mapping[str, Mapping[str, int]]


def output(*args: str) -> str:
    """What a command prints, in this process."""
    done = CliRunner().invoke(app, args, catch_exceptions=False, env={"NO_COLOR": "1"})
    assert done.exit_code == 0, done.output
    return done.stdout


def audited(task: str, *args: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output("audit", task, *args, "--json"))
    return found


def plant(task: str, folder: Path) -> tuple[str, str, Labels, Labels, int]:
    """The pool of a task's runs, with 5% of it flipped by a seed."""
    errors = PLANTED["main"](task, str(folder))
    names = [str(folder / name) for name in ("pool.tsv", "planted.tsv")]
    pool, planted = (read_label_sets(name)[""] for name in names)
    return names[0], names[1], pool, planted, errors


def check_against_scores(found: dict[str, Any], task: str, pool: Labels, planted: Labels) -> None:
    """Every figure of the systems is what scoring their lists by each label set gives."""
    change, measure = found["changes"][0], Measure("nDCG", 10)
    relevant = [
        {q for q, judged in labels.items() if any(g > 0 for g in judged.values())} for labels in (pool, planted)
    ]
    queries = [query for query in pool if query in relevant[0] & relevant[1]]
    assert change["queries"] == len(queries)
    assert change["only_a"] == len(relevant[0]) - len(queries)
    name = load(task).name
    values: dict[str, list[np.ndarray]] = {}
    with Ledger() as ledger:
        for entry in ledger.entries():
            sides = ({query: labels[query] for query in queries} for labels in (pool, planted))
            if entry.task == name:
                values[entry.system] = [score(ledger.run(entry), side, [measure]).values(measure) for side in sides]
    assert {row["system"] for row in change["systems"]} == set(values)
    for row in change["systems"]:
        one, two = values[row["system"]]
        assert (row["a"], row["b"]) == pytest.approx((one.mean(), two.mean()))
        assert row["change"]["mean"] == pytest.approx((two - one).mean())
        assert (row["holes_a"], row["holes_b"]) == (0, 0)
    assert [row["a"] for row in change["systems"]] == sorted((row["a"] for row in change["systems"]), reverse=True)
    for pair in change["conclusions"]:
        for place, side in enumerate("ab"):
            gain = values[pair["second"]][place] - values[pair["first"]][place]
            assert pair[side]["randomisation"] == pytest.approx(difference([gain]).randomisation)


def test_planted_errors_of_scifact_are_found(collections: Path, tmp_path: Path):
    task = str(collections / "scifact")
    systems = ("bm25", "bm25-classic", "wordllama", "rrf(bm25, wordllama)")
    output("run", *systems, "--tasks", task)
    first, second, pool, planted, errors = plant(task, tmp_path)
    found = audited(task, "--labels", first, second)
    raw = found["agreement"]["raw"]
    assert found["pairs"] == sum(map(len, pool.values()))
    assert 1 - raw["value"] == pytest.approx(errors / found["pairs"])
    assert 1 - raw["high"] <= 0.05 <= 1 - raw["low"]
    assert raw["high"] - raw["low"] < 0.02
    [[right, up], [down, stays]] = found["set_pairs"][0]["confusion"]
    assert (up + down, right + stays) == (errors, found["pairs"] - errors)
    check_against_scores(found, task, pool, planted)
    change = found["changes"][0]
    assert [row["system"] for row in change["systems"]] == ["bm25-classic", "bm25", "rrf(bm25, wordllama)", "wordllama"]
    assert sorted(change["systems"], key=lambda row: -row["b"])[-1]["system"] == "wordllama"
    assert 0 < change["kendall"] <= 1
    shares = {(pair["first"], pair["second"]): pair["stability"] for pair in change["conclusions"]}
    assert shares["bm25", "wordllama"] == 1
    assert 0.5 < shares["bm25-classic", "bm25"] < 1


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with three systems on a sample task."""
    folder = tmp_path_factory.mktemp("audit")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(folder))
        output("run", "bm25", "bm25-classic(k1=0.1)", "wordllama", "oracle-answer >> bm25", "--tasks", TASK)
    return folder


@pytest.fixture
def runs(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("R2MED_HOME", str(home))
    return home


def own_labels() -> dict[str, dict[str, int]]:
    return {query: dict(judged) for query, judged in load(TASK).gold.qrels.items()}


def write_trec(path: Path, labels: Labels) -> str:
    rows = [f"{q} 0 {document} {grade}\n" for q, judged in labels.items() for document, grade in judged.items()]
    path.write_text("".join(rows), "utf-8")
    return str(path)


def test_labels_that_agree_change_nothing(runs: Path, tmp_path: Path):
    again = write_trec(tmp_path / "again.qrels", own_labels())
    found = audited(TASK, "--labels", "task", again)
    assert found["agreement"]["raw"]["value"] == 1
    assert found["agreement"]["kappa"]["value"] is None, "one grade is all there is"
    change = found["changes"][0]
    assert [row["system"] for row in change["systems"]].count("oracle-answer >> bm25") == 0
    with Ledger() as ledger:
        means = {entry.system: ledger.means()[entry.id]["nDCG@10"] for entry in ledger.entries()}
    for row in change["systems"]:
        assert row["a"] == row["b"] == pytest.approx(means[row["system"]])
        assert row["change"] == {"mean": 0, "low": 0, "high": 0}
        assert row["holes_a"] == row["holes_b"] > 0
    assert (change["kendall"], change["stability"]["kendall"]) == (1, 1)
    assert {pair["stability"] for pair in change["conclusions"]} == {1}
    assert not {pair["verdict"] for pair in change["conclusions"]} & {"reversed", "lost", "gained"}


def test_planted_errors_of_the_sample(runs: Path, tmp_path: Path):
    first, second, pool, planted, errors = plant(TASK, tmp_path)
    found = audited(
        TASK,
        "--labels",
        first,
        second,
        "--systems",
        "bm25",
        "wordllama",
        "bm25-classic(k1=0.1)",
        "oracle-answer >> bm25",
    )
    check_against_scores(found, TASK, pool, planted)
    assert 1 - found["agreement"]["raw"]["value"] == pytest.approx(errors / found["pairs"])
    for slices in found["set_pairs"][0]["slices"].values():
        assert sum(each["pairs"] for each in slices) == found["pairs"]
        equal = sum(each["pairs"] * each["value"] for each in slices)
        assert equal == pytest.approx(found["pairs"] - errors)


def test_every_form_of_labels_gives_the_same_figures(runs: Path, tmp_path: Path):
    first, second, pool, planted, _ = plant(TASK, tmp_path)
    sides = {"pool.tsv": pool, "planted.tsv": planted}
    rows = [
        (name, q, d, g) for name, labels in sides.items() for q, judged in labels.items() for d, g in judged.items()
    ]
    with (tmp_path / "both.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("Annotator", "query_id", "doc_id", "label"), *rows])
    lines = [json.dumps({"q_id": q, "p_id": d, "score": g, "reviewer": name}) + "\n" for name, q, d, g in rows]
    (tmp_path / "both.jsonl").write_text("".join(lines), "utf-8")
    trec = [write_trec(tmp_path / f"{name}.qrels", labels) for name, labels in sides.items()]
    expected = audited(TASK, "--labels", first, second)
    assert audited(TASK, "--labels", str(tmp_path / "both.csv")) == expected
    assert audited(TASK, "--labels", str(tmp_path / "both.jsonl")) == expected
    renamed = json.dumps(audited(TASK, "--labels", *trec)).replace(".tsv.qrels", ".tsv")
    assert json.loads(renamed) == expected


def test_what_a_set_does_not_list_can_count_as_0(runs: Path, tmp_path: Path):
    _, second, pool, _, errors = plant(TASK, tmp_path)
    plain = audited(TASK, "--labels", "task", second)
    assert plain["pairs"] == sum(map(len, own_labels().values()))
    for row in plain["changes"][0]["systems"]:
        assert row["holes_a"] > 0.5, "the task judges relevant documents only"
        assert row["holes_b"] == 0, "the pool holds the first ten of every run"
    found = audited(TASK, "--labels", "task", second, "--fill")
    assert found["pairs"] == sum(map(len, pool.values()))
    assert 1 - found["agreement"]["raw"]["value"] == pytest.approx(errors / found["pairs"])


def test_a_review_of_some_pairs_corrects_the_rest(runs: Path, tmp_path: Path):
    own = own_labels()
    query, judged = next(iter(own.items()))
    document = next(iter(judged))
    review = write_trec(tmp_path / "review.qrels", {query: {document: 0}})
    found = audited(TASK, "--labels", "task", review, "--overlay")
    own[query][document] = 0
    with Ledger() as ledger:
        runs_by_system = {entry.system: ledger.run(entry) for entry in ledger.entries()}
    for row in found["changes"][0]["systems"]:
        expected = score(runs_by_system[row["system"]], own, [Measure("nDCG", 10)]).mean(Measure("nDCG", 10))
        assert row["b"] == pytest.approx(expected)
    assert found["changes"][0]["queries"] == len(own)


def test_grades_of_another_scale_can_count_as_relevant_or_not(runs: Path, tmp_path: Path):
    twice = {
        query: {document: 2 * grade for document, grade in judged.items()} for query, judged in own_labels().items()
    }
    other = write_trec(tmp_path / "twice.qrels", twice)
    apart = audited(TASK, "--labels", "task", other)
    assert apart["agreement"]["raw"]["value"] == 0
    assert "--binary" in " ".join(apart["notes"])
    assert audited(TASK, "--labels", "task", other, "--binary")["agreement"]["raw"]["value"] == 1


def test_a_conclusion_that_the_other_labels_reverse_is_named(tmp_path: Path):
    words = "iron zinc copper lupus fever cough spleen liver kidney marrow gout asthma".split()
    short = [(f"a-{word}", "", f"{word} alone") for word in words]
    long = [(f"b-{word}", "", f"{word} {word} {word} " + "and much else besides it " * 4) for word in words]
    asked = [(f"q-{word}", word) for word in words]
    write_r2med(tmp_path / "mine", Content([*short, *long], asked, [(f"q-{word}", f"a-{word}", 1) for word in words]))
    other = write_trec(tmp_path / "other.qrels", {f"q-{w}": {f"a-{w}": 0, f"b-{w}": 1} for w in words})
    task, systems = str(tmp_path / "mine"), ("bm25-classic(b=1)", "bm25-classic(k1=9, b=0)")
    output("run", *systems, "--tasks", task)
    change = audited(task, "--labels", "task", other, "--fill")["changes"][0]
    assert [row["system"] for row in change["systems"]] == list(systems)
    assert change["kendall"] == -1
    assert [pair["verdict"] for pair in change["conclusions"]] == ["reversed"]
    assert change["conclusions"][0]["stability"] == 0, "labels that are always wrong turn the order round"
    text = output("audit", task, "--labels", "task", other, "--fill")
    assert "1 of 1 conclusions change, 1 of them into their opposite" in text
    assert "Who changes places: bm25-classic(b=1) and bm25-classic(k1=9, b=0)." in text


def test_without_runs_the_labels_are_compared_all_the_same(tmp_path: Path):
    again = write_trec(tmp_path / "again.qrels", own_labels())
    found = audited(TASK, "--labels", "task", again)
    assert found["changes"] == []
    assert f"r2med run bm25 --tasks {TASK}" in " ".join(found["notes"])


def test_the_text_says_why_kappa_is_low(runs: Path, tmp_path: Path):
    first, second, *_ = plant(TASK, tmp_path)
    found = audited(TASK, "--labels", first, second)
    for form in ((), ("--format", "md"), ("--format", "latex")):
        text = " ".join(output("audit", TASK, "--labels", first, second, *form).split())
        assert "Kappa and alpha count only what goes beyond that" in text
        assert "Krippendorff's alpha: as kappa" in text
        for name in ("raw", "kappa", "alpha-ordinal", "ac1"):
            assert f"{found['agreement'][name]['value']:.3f}" in text
        for row in found["changes"][0]["systems"]:
            assert f"{100 * row['b']:.2f}" in text


def test_a_set_of_relevant_documents_only_has_no_kappa_to_speak_of(runs: Path, tmp_path: Path):
    _, second, *_ = plant(TASK, tmp_path)
    text = " ".join(output("audit", TASK, "--labels", "task", second).split())
    assert "task gives one grade only to the pairs that both judged, so that kappa and alpha cannot tell" in text
    assert "task gives one grade only" not in output("audit", TASK, "--labels", "task", second, "--fill")


def test_the_figure_shows_every_pair_of_systems(runs: Path, tmp_path: Path):
    first, second, *_ = plant(TASK, tmp_path)
    figure = tmp_path / "order.svg"
    output("audit", TASK, "--labels", first, second, "--plot", str(figure))
    text = figure.read_text("utf-8")
    for pair in audited(TASK, "--labels", first, second)["changes"][0]["conclusions"]:
        assert f"{pair['first']} over {pair['second']}" in text


def test_drawn_labels_are_wrong_at_the_measured_rate():
    table = np.array([[0, 0]] * 90 + [[0, 1]] * 10 + [[1, 1]] * 6 + [[1, 0]] * 4, dtype=np.float64)
    errors = ErrorModel.of(Ratings.of(table))
    drawn = errors.draw(np.repeat([0.0, 1.0, 7.0], 20_000), np.random.default_rng(0)).reshape(3, -1)
    assert drawn[0].mean() == pytest.approx(0.1, abs=0.01)
    assert drawn[1].mean() == pytest.approx(0.6, abs=0.015)
    assert set(drawn[2]) == {7.0}, "a grade that was never seen stays"


def test_lists_are_scored_under_other_grades_as_by_score():
    run = Run.from_lists({"q1": (["d1", "d2", "d9"], [3, 2, 1]), "q2": (["d3"], [1])})
    qrels = {"q1": {"d2": 2, "d4": 1, "d1": 0}, "q2": {"d3": 1}, "q3": {"d5": 1}}
    for name in ("nDCG@10", "Recall@2", "MAP", "MRR"):
        measure = Measure.parse(name)
        lists = JudgedLists.of(qrels, {"mine": run}, measure)
        assert lists.means(lists.grades, measure)[0] == pytest.approx(score(run, qrels, [measure]).mean(measure))
    # A query that has lost its relevant documents is left out.
    fewer = lists.means(np.where(lists.grades == 2, 2.0, 0.0), Measure("MRR"))
    assert fewer.tolist() == [0.5]
    same = ErrorModel.of(Ratings.of([[0, 0], [1, 1], [2, 2]]))
    assert simulate(lists, same, measure, 3).kendall is None, "one system has no order"


BAD = {
    "other documents": (
        "bio-q01 0 elsewhere 1\n",
        "bad.qrels: judges the document 'elsewhere' for query 'bio-q01', which",
    ),
    "other queries": ("q77 0 bio-d016 1\n", "bad.qrels: judges no query of sample/Biology; its first is 'q77'"),
    "no overlap": ("bio-q01 0 bio-d001 0\n", "task and bad.qrels have no judged pair in common"),
    "no number": (
        "bio-q01 0 bio-d016 high\n",
        "bad.qrels:1: the grade (score) must be an integer, not the text 'high'",
    ),
    "two grades": ("bio-q01 0 bio-d016 1\nbio-q01 0 bio-d016 0\n", "bad.qrels:2: judges bio-q01 bio-d016 as 0"),
    "nothing": ("", "bad.qrels: holds no rows"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_labels_are_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    content, message = BAD[name]
    (tmp_path / "bad.qrels").write_text(content, "utf-8")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["audit", TASK, "--labels", "task", "--labels", "bad.qrels"])
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)


def test_one_label_set_is_one_line():
    assert complaint("audit", TASK, "--labels", "task").startswith("r2med: an audit compares two label sets at least")
    assert "given twice" in complaint("audit", TASK, "--labels", "task", "task")


def test_reviewers_do_not_contradict_each_other_but_themselves(tmp_path: Path):
    file = tmp_path / "labels.csv"
    file.write_text("query_id,doc_id,label,rater\nq,d,1,ann\nq,d,0,ben\n", "utf-8")
    assert read_label_sets(file) == {"ann": {"q": {"d": 1}}, "ben": {"q": {"d": 0}}}
    file.write_text("query_id,doc_id,label,rater\nq,d,1,ann\nq,d,0,ann\n", "utf-8")
    with pytest.raises(Exception, match=r"labels.csv:3: judges q d as 0, .*labels.csv:2 as 1"):
        read_label_sets(file)


def with_copies(folder: Path) -> dict[str, str]:
    """A task whose documents that BM25 finds first have unjudged copies that it finds before them."""
    documents = [(f"d{n}", "", f"iron {'blood ' * n}liver spleen marrow {n}") for n in range(12)]
    queries = [(f"q{n}", f"iron liver {n}") for n in range(12)]
    copies = {f"d{n}": f"z{n}" for n in range(0, 12, 2)}
    documents += [(copy, "", documents[int(one[1:])][2].upper()) for one, copy in copies.items()]
    write_r2med(folder, Content(documents, queries, [(f"q{n}", f"d{n}", 1 + n % 3) for n in range(12)]))
    return copies


def test_copies_of_relevant_documents_can_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    copies = with_copies(tmp_path / "task")
    task = str(tmp_path / "task")
    output("run", "bm25", "bm25-classic", "--tasks", task)
    found = audited(task, "--labels", "task", "duplicates", "--holes")
    counts = [(row["kind"], row["positives"], row["queries"], row["copies"]) for row in found["flaws"]]
    assert counts == [("unlabelled-copy", 6, 6, 6)]
    qrels = {f"q{n}": {f"d{n}": 1 + n % 3} for n in range(12)}
    more = {q: judged | {copies[d]: grade for d, grade in judged.items() if d in copies} for q, judged in qrels.items()}
    with Ledger() as ledger:
        runs = {entry.system: ledger.run(entry) for entry in ledger.entries()}
    for row in found["changes"][0]["systems"]:
        for side, labels in (("a", qrels), ("b", more)):
            assert row[side] == pytest.approx(
                score(runs[row["system"]], labels, [Measure("nDCG", 10)]).mean(Measure("nDCG", 10))
            )
        assert row["change"]["mean"] > 0
    text = output("audit", task, "--labels", "task", "duplicates", "--holes")
    assert "Relevant documents of task that look wrong" in text.replace(task, "task")
    assert "kappa" not in text
    assert complaint("audit", TASK, "--labels", "task", "duplicates").endswith(
        "duplicates: no relevant document of sample/Biology is repeated by one without a judgement"
    )


def test_an_audit_by_aspects_is_one_line():
    message = complaint("audit", TASK, "--labels", "task", "task", "--measure", "alpha-nDCG@10")
    assert "an audit compares grades, which say nothing of aspects" in message
