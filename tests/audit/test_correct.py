"""`r2med correct`: scores equal those of other code, intervals hold a planted truth, bad input is one line."""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import binom

from r2med.audit.corrected_scores import check_pool
from r2med.audit.correction import HolePool, correct
from r2med.cli.main import app
from r2med.data.run import Run
from r2med.errors import R2medError
from r2med.measure.metrics import Measure
from r2med.measure.score import score
from r2med.reviews.store import ReviewStore
from r2med.web.library import Library
from web.webparts import entered

TASK = "sample/Biology"
SYSTEMS = ("bm25", "wordllama")


def planted(queries: int = 60, seed: int = 1) -> tuple[HolePool, dict[str, Run], np.ndarray]:
    """Three systems on made-up lists, with true labels of the holes: more relevant ones at high ranks."""
    chance = np.random.default_rng(seed)
    runs = {
        name: Run.from_lists(
            {
                f"q{q}": ([f"d{d}" for d in chance.permutation(30)[:12]], np.linspace(1, 0, 12).tolist())
                for q in range(queries)
            }
        )
        for name in ("one", "two", "three")
    }
    qrels = {f"q{q}": {f"d{d}": 1 for d in chance.permutation(30)[:2]} for q in range(queries)}
    pool = HolePool.of(qrels, runs, Measure("nDCG", 10))
    truth = (chance.random(len(pool.holes)) < 1 / (1 + np.exp(2 - 0.8 * pool.votes))).astype(float)
    return pool, runs, truth


def rescored(pool: HolePool, runs: dict[str, Run], labels: np.ndarray, measure: Measure) -> np.ndarray:
    """The scores by the code that scores every run, under judgements in which the holes have labels."""
    qrels: dict[str, dict[str, int]] = {query: {} for query in pool.queries}
    for (query, document), grade in zip(pool.pairs, pool.published, strict=True):
        qrels[query][document] = int(grade)
    for place, grade in zip(pool.holes, labels, strict=True):
        qrels[pool.pairs[place][0]][pool.pairs[place][1]] = int(grade)
    return np.stack([score(run, qrels, [measure]).values(measure) for run in runs.values()])


@pytest.mark.parametrize("name", ["nDCG@10", "MAP@10", "Recall@5", "P@5", "MRR@10"])
def test_a_pool_scores_as_every_run_is_scored(name: str) -> None:
    measure = Measure.parse(name)
    made, runs, _ = planted(12)
    qrels = {
        q: {d: 1 for (query, d), g in zip(made.pairs, made.published, strict=True) if query == q and g > 0}
        for q in made.queries
    }
    pool = HolePool.of(qrels, runs, measure)
    labels = np.random.default_rng(3).integers(0, 3, len(pool.holes)).astype(float)
    assert pool.values(labels) == pytest.approx(rescored(pool, runs, labels, measure))
    hole = 7
    changed = labels.copy()
    changed[hole] = 2.0
    row = pool.asked[pool.holes[hole]]
    effects = pool.effects(labels[None], np.array([hole]), 2.0)
    assert effects[:, 0] == pytest.approx(rescored(pool, runs, changed, measure)[:, row])


def test_a_whole_sample_gives_the_truth_without_an_interval() -> None:
    pool, runs, truth = planted(20)
    result = correct(pool, np.zeros(len(truth)), np.arange(len(truth)), truth)
    expected = rescored(pool, runs, truth, pool.measure).mean(axis=1)
    assert result.means == pytest.approx(expected)
    assert result.figure(0).ends == pytest.approx((expected[0], expected[0]))


@pytest.mark.parametrize("humans", [30, 100])
def test_intervals_hold_a_planted_truth_whatever_the_judge(humans: int) -> None:
    pool, runs, truth = planted()
    target = rescored(pool, runs, truth, pool.measure).mean(axis=1)
    chance = np.random.default_rng(humans)
    rounds, held, errors = 150, np.zeros(3), []
    for number in range(rounds):
        wrong = chance.random(len(truth)) < np.where(truth > 0, 0.1, 0.25)
        sample = chance.choice(len(truth), humans, replace=False)
        result = correct(pool, np.where(wrong, 1 - truth, truth), sample, truth[sample], 8, 500, number)
        ends = [result.figure(system).ends for system in range(3)]
        held += [low <= value <= high for (low, high), value in zip(ends, target, strict=True)]
        errors.append(result.means - target)
    # Each count is what an interval of 95% gives, or of a little more for few labels; the estimate has little bias.
    assert binom.cdf(held.min(), rounds, 0.95) > 0.001
    assert np.abs(np.mean(errors, axis=0)).max() < 4 * np.std(errors, axis=0).max() / rounds**0.5


# ------------------------------------------------------------------------------------------------ the command


def invoke(*args: str) -> str:
    done = CliRunner().invoke(app, args, catch_exceptions=False, env={"NO_COLOR": "1"})
    assert done.exit_code == 0, done.output
    return done.stdout


def corrected(*args: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(invoke("correct", *SYSTEMS, "--task", TASK, *args, "--json"))
    return value


def complain(*args: str) -> str:
    """The one line that a wrong call ends in; nothing is printed besides."""
    done = CliRunner().invoke(app, ["correct", *args])
    assert done.exit_code != 0
    assert done.stdout == ""
    line = str(done.exception) if isinstance(done.exception, R2medError) else done.stderr.splitlines()[-1]
    assert "\n" not in line
    return line


def is_relevant(document: str) -> bool:
    return hashlib.sha256(document.encode()).digest()[0] % 4 == 0


def judge_as_person(name: str, folder: Path, least: int = 0) -> None:
    """Bring in grades of a person for all items of a review, or for the first ones."""
    file = folder / f"{name}.csv"
    with ReviewStore.open(name) as store, file.open("w", newline="") as stream:
        questions = {question.number: question.query for question in store.questions()}
        rows = csv.writer(stream)
        rows.writerow(("reviewer", "query_id", "doc_id", "score"))
        for item in store.items()[: least or None]:
            rows.writerow(("Ada", questions[item.question], item.document, int(is_relevant(item.document))))
    invoke("review", "import", name, str(file), "--as", "Ada", "--kind", "person", "--scale", "judgements")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("correct")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(folder / "home"))
        invoke("run", *SYSTEMS, "bm25-classic", "--tasks", TASK)
        for name, count in (("whole", "500"), ("some", "60"), ("few", "12"), ("open", "60")):
            invoke("review", "new", name, "--from", TASK, *SYSTEMS, "--items", count, "--queue", "random")
            judge_as_person(name, folder, 45 if name == "open" else 0)
        invoke("review", "new", "gaps", "--from", TASK, *SYSTEMS, "--items", "60", "--queue", "holes")
        judge_as_person("gaps", folder)
        for file, rules in {
            "judge.jsonl": [{"match": "source>[^<]*(?:cell|brain)", "reply": ['{"grade": 3}', '{"grade": 2}']},
                            {"match": "source>[^<]*blood", "reply": ['{"grade": 3}', '{"grade": 0}']},
                            {"reply": '{"grade": 0}'}],
            "yes.jsonl": [{"reply": '{"grade": 3}'}],
            "mute.jsonl": [{"reply": "I cannot say."}],
        }.items():  # fmt: skip
            (folder / file).write_text("".join(json.dumps(rule) + "\n" for rule in rules), "utf-8")
    return folder


@pytest.fixture(autouse=True)
def _home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MED_HOME", str(folder / "home"))
    monkeypatch.chdir(folder)


def test_the_command_gives_three_scores_and_the_places_that_are_tied(folder: Path) -> None:
    found = corrected("--people", "review:some", "--judge", "scripted:judge.jsonl", "--repeat", "2")
    assert found["sampled"] < found["holes"] < found["pool"]
    for system in found["systems"]:
        for name in ("published", "filled", "corrected", "labels"):
            assert system[name]["low"] <= system[name]["mean"] <= system[name]["high"]
        assert (
            system["corrected"]["high"] - system["corrected"]["low"]
            > system["labels"]["high"] - system["labels"]["low"]
        )
        assert system["places"] == {"published": [1, 2], "filled": [1, 2], "corrected": [1, 2]}
    (judge,) = found["judges"]
    assert judge["repeats"] == 2
    assert judge["changes"] > 0  # the script changes its mind about blood
    assert judge["both"] + judge["people_alone"] == found["relevant"]
    text = invoke("correct", *SYSTEMS, "--task", TASK, "--people", "review:some", "--judge", "scripted:judge.jsonl")
    assert "The order" in text


def test_a_review_of_everything_gives_the_scores_of_its_labels(folder: Path) -> None:
    found = corrected("--people", "review:whole")
    assert found["sampled"] == found["holes"]
    for system in found["systems"]:
        assert system["labels"]["low"] == pytest.approx(system["labels"]["high"])
    # What the audit says after filling holes by the same people, an independent way to the same figure.
    audit = json.loads(
        invoke(
            "audit", TASK, "--labels", "task", "review:whole", "--holes", "--binary", "--systems", *SYSTEMS, "--json"
        )
    )
    filled = {system["system"]: system["b"] for system in audit["changes"][0]["systems"]}
    assert {s["system"]: s["corrected"]["mean"] for s in found["systems"]} == pytest.approx(filled)


def test_two_judges_are_compared_and_a_family_is_named(folder: Path) -> None:
    (folder / "said.tsv").write_text("query-id\tcorpus-id\tscore\n", "utf-8")
    with ReviewStore.open("whole") as store, (folder / "wordllama-judge.tsv").open("w") as stream:
        questions = {question.number: question.query for question in store.questions()}
        stream.write("query-id\tcorpus-id\tscore\n")
        for item in store.items():
            stream.write(f"{questions[item.question]}\t{item.document}\t{int(is_relevant(item.document))}\n")
    found = corrected("--judge", "wordllama-judge.tsv", "scripted:judge.jsonl")
    assert sum(system["interaction"]["mean"] for system in found["systems"]) == pytest.approx(0, abs=1e-9)
    assert {system["system"]: system["family"] for system in found["systems"]} == {"bm25": "", "wordllama": "Llama"}
    assert all(system["corrected"]["mean"] is None for system in found["systems"])


def test_a_plan_promises_narrower_intervals_for_more_labels(folder: Path) -> None:
    for words in ((), ("--people", "review:some"), ("--judge", "scripted:judge.jsonl")):
        widths = json.loads(invoke("correct", *SYSTEMS, "--task", TASK, "--plan", *words, "--json"))
        judges = {row["judge"] for row in widths}
        assert judges
        for judge in judges:
            column = [row["score"] for row in widths if row["judge"] == judge]
            assert column == sorted(column, reverse=True)


def test_a_dry_run_prices_every_hole_and_asks_nothing(folder: Path) -> None:
    holes = corrected()["holes"]
    text = invoke("correct", *SYSTEMS, "--task", TASK, "--judge", "gpt-4o", "--repeat", "3", "--dry-run")
    assert text.startswith(f"{3 * holes} requests")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--people", "review:few"), "too few for an interval"),
        (("--people", "review:open"), "finish the review"),
        (("--people", "review:gaps"), "drew no pair at random"),
        (("--people", "labels.csv"), "review:NAME"),
        (("--people", "review:some", "--measure", "nDCG@20"), "cutoff of at most 10"),
        (("--measure", "MAP"), "MAP@10"),
        (("--judge", "scripted:yes.jsonl"), "calls all"),
        (("--judge", "scripted:mute.jsonl"), "labels 0 of"),
        (("--judge", "few.csv"), "needs a label of each"),
        (("--dry-run",), "--judge"),
    ],
)
def test_bad_input_is_one_line_and_no_number(words: tuple[str, ...], expected: str) -> None:
    assert expected in complain(*SYSTEMS, "--task", TASK, *words)


def test_a_system_that_the_review_did_not_draw_from_is_refused() -> None:
    line = complain("bm25", "bm25-classic", "--task", TASK, "--people", "review:some")
    assert "did not draw from what bm25-classic finds" in line


def test_labels_of_another_version_of_the_task_are_refused(folder: Path) -> None:
    invoke("review", "export", "whole", "--to", "task", "--out", "second")
    invoke("run", *SYSTEMS, "--tasks", "second")
    invoke("review", "new", "versions", "--from", "second", *SYSTEMS, "--items", "60", "--queue", "random")
    judge_as_person("versions", folder)
    lines = (folder / "second" / "qrels.jsonl").read_text("utf-8").splitlines(keepends=True)
    (folder / "second" / "qrels.jsonl").write_text("".join(lines[:-1]), "utf-8")
    invoke("run", *SYSTEMS, "--tasks", "second")
    assert "changed since the review" in complain(*SYSTEMS, "--task", "second", "--people", "review:versions")


def test_systems_that_share_no_hole_are_refused(folder: Path) -> None:
    one = Run.from_lists({"q1": (["a", "b"], [1.0, 0.5])})
    other = Run.from_lists({"q1": (["c", "d"], [1.0, 0.5])})
    with pytest.raises(R2medError, match="share no hole"):
        check_pool(HolePool.of({"q1": {"x": 1}}, {"one": one, "other": other}, Measure("nDCG", 10)))
    with pytest.raises(R2medError, match="nothing to correct"):
        check_pool(HolePool.of({"q1": {"a": 1, "b": 0}}, {"one": one}, Measure("nDCG", 10)))


def test_the_page_shows_the_three_scores_side_by_side(folder: Path) -> None:
    found = corrected("--people", "review:some", "--judge", "scripted:judge.jsonl")
    (folder / "home" / "corrections" / "damaged.json").write_text("{", "utf-8")
    with entered(Library()) as client:
        page = client.get("/correct").text
        missing = client.get("/correct?task=nothing")
    for system in found["systems"]:
        for name in ("published", "filled", "corrected"):
            assert f"{100 * system[name]['mean']:.2f}" in page
    assert "--judge scripted:judge.jsonl" in page  # the command, to be repeated
    assert missing.status_code == 404
