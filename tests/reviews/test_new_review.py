"""New projects: what is drawn from where, by which queue, with which scale; and the verbs that say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import r2med
from r2med.cli.main import app
from r2med.construction.builder import Builder, init
from r2med.errors import R2medError
from r2med.reviews.rows import DraftDecision
from r2med.reviews.sampling import ReviewSettings, draw, new_review, read_pools
from r2med.reviews.scale import DEFAULT_SCALE, read_scale
from r2med.reviews.store import ReviewStore
from r2med.runs.ledger import Ledger
from r2med.store.typed import convert, plain

TASK = "sample/MedQA-Diag"
SCALE = """
relevant_from = 1
[[grade]]
value = 0
name = "No"
meaning = "Does not help."
[[grade]]
value = 1
name = "Yes"
meaning = "Helps."
"""


@pytest.fixture
def ledger():
    r2med.evaluate(["bm25", "bm25-classic"], TASK)
    with Ledger() as opened:
        yield opened


def call(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["review", *words])
    assert done.exit_code == code, done.output + repr(done.exception)
    return done.stdout if code == 0 else str(done.exception) + done.output


def items(name: str):
    with ReviewStore.open(name) as store:
        return store.items()


def test_each_queue_draws_what_it_says(ledger):
    dataset = r2med.load(TASK)
    runs = {entry.system: ledger.run(entry) for entry in ledger.entries()}
    pools = read_pools(ledger, [TASK, "bm25", "bm25-classic"])

    def ranks(each):
        lists = {name: list(run[each.query].documents) for name, run in runs.items()}
        return {name: found.index(each.document) + 1 for name, found in lists.items() if each.document in found[:15]}

    for queue in ("random", "holes", "near-cut", "disagreements"):
        sample, _ = draw(pools, queue, 12, seed=3)
        pairs = sample[queue].pairs
        assert 0 < len(pairs) <= 12
        for each in pairs:
            assert each.ranks == ranks(each)
            label = dataset.gold.qrels.get(each.query, {}).get(each.document)
            assert each.label == label
            mean = sum(each.ranks.values()) / len(each.ranks) if each.ranks else None
            assert {
                "random": label is not None or min(each.ranks.values(), default=99) <= 10,
                "holes": label is None and min(each.ranks.values()) <= 10,
                "near-cut": mean is not None and 5 <= mean <= 16,
                "disagreements": True if label is None else (label > 0) == (mean is None or mean > 5),
            }[queue]
    assert draw(pools, "random", 12, 3) == draw(pools, "random", 12, 3)
    assert draw(pools, "random", 12, 3) != draw(pools, "random", 12, 4)


def test_the_random_part_is_drawn_evenly_from_its_frame(ledger):
    pools = read_pools(ledger, [TASK, "bm25"])
    frame = draw(pools, "random", 10**6, 0)[0]["random"].pairs
    size = len(frame)
    counts = dict.fromkeys(((each.query, each.document) for each in frame), 0)
    for seed in range(400):
        for pair in draw(pools, "random", size // 4, seed)[0]["random"].pairs:
            counts[pair.query, pair.document] += 1
    assert draw(pools, "random", 5, 0)[0]["random"].frame == size
    # 400 draws with a chance of a quarter: six standard deviations about 100.
    assert 48 < min(counts.values()) <= max(counts.values()) < 152


def test_a_mixed_project_keeps_how_each_item_was_drawn_and_can_be_made_again(ledger):
    settings = ReviewSettings(queue="mixed", items=24, overlap=0.5, seed=1)
    with new_review(ledger, "one", [TASK, "bm25", "bm25-classic"], settings)[0] as one:
        drawn = [item.drawn for item in one.items()]
        assert drawn.count("random") == 12
        assert {"holes", "near-cut", "disagreements"} <= set(drawn)
        assert sum(item.shared for item in one.items()) == 12
        pools = read_pools(ledger, [TASK, "bm25", "bm25-classic"])
        assert one.project.frames["random"] == len(draw(pools, "random", 10**6, 0)[0]["random"].pairs)
        dataset = r2med.load(TASK)
        for item in one.items():
            question = one.question(item.question)
            assert question.text == dataset.collection.queries.text(question.query)
            assert question.answer == dataset.gold.answers[question.query]
            assert item.text == dataset.collection.documents.text(item.document)
        with new_review(ledger, "two", [TASK, "bm25", "bm25-classic"], settings)[0] as two:
            assert one.items() == two.items()


def test_a_build_is_drawn_from_its_judgements(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    verdict = {"answers": 2, "supports": 2, "reason": "It says so.", "quote": ""}
    init(Path("built"))
    Path("built/judge.jsonl").write_text(json.dumps({"reply": json.dumps(verdict)}) + "\n")
    plan = Path("built/plan.toml")
    plan.write_text(plan.read_text().replace("[judge]\nmodels = []", "[judge]\nmodels = ['scripted:judge.jsonl']"))
    Builder(Path("built")).run()
    call("new", "built", "--from", "built", "--queue", "near-cut", "--items", "3")
    for item in items("built"):
        assert (item.facts["answers"], item.facts["supports"], item.drawn) == (2.0, 2.0, "near-cut")
    with ReviewStore.open("built") as store:
        guideline = store.project.guideline
        assert guideline.startswith("# What relevant means here")
        assert "Not relevant, whatever the words:" in guideline
        # People grade by the scale of the review, not by the two axes of the judges.
        assert "axes" not in guideline
        assert "states it outright" not in guideline


def test_gold_items_are_dealt_to_everybody_and_counted_for_the_owner(ledger, tmp_path):
    dataset = r2med.load(TASK)
    query, judged = next(iter(dataset.gold.qrels.items()))
    other = dataset.collection.documents.ids[-1]
    gold = tmp_path / "gold.tsv"
    gold.write_text(f"query-id\tcorpus-id\tscore\n{query}\t{next(iter(judged))}\t3\n{query}\t{other}\t0\n")
    call("new", "gold", "--from", TASK, "bm25", "--items", "10", "--gold", str(gold), "--overlap", "0")
    with ReviewStore.open("gold") as store:
        known = {item.document: item for item in store.items() if item.gold is not None}
        assert {item.gold for item in known.values()} == {0, 3}
        assert all(item.shared for item in known.values())
        assert sum(item.shared for item in store.items()) == 2
        model = store.add_reviewer("m", "model")
        store.record_all(model.id, [(item.number, DraftDecision("graded", 3)) for item in store.items()])
    assert json.loads(call("show", "gold", "--json"))["people"][0]["gold"] == {"count": 1, "total": 2}
    gold.write_text(f"query-id\tcorpus-id\tscore\n{query}\tabsent\t3\n")
    assert "'absent'" in call("new", "bad", "--from", TASK, "--gold", str(gold), code=1)


def test_a_scale_of_ones_own(tmp_path):
    file = tmp_path / "scale.toml"
    file.write_text(SCALE)
    scale = read_scale(file)
    assert (scale.values, scale.relevant_from, scale.grade(1).meaning) == ((0, 1), 1, "Helps.")
    assert convert(plain(scale), type(scale)) == scale
    for wrong, why in {
        SCALE.replace("value = 1", "value = 0"): "two grades of the same value",
        SCALE.replace("relevant_from = 1", "relevant_from = 5"): "relevant_from must be",
        SCALE.replace('name = "No"', ""): "name is missing",
        SCALE.replace("value = 1", "value = 10"): "value must be",
        SCALE.replace("value = 1", "value = true"): "value must be",
        SCALE.replace('"Helps."', '"  "'): "without text",
        "relevant_from = 1": "grade is missing",
        SCALE + "color = 1": "color is not a known key",
        "[[grade]": "not readable as TOML",
    }.items():
        file.write_text(wrong)
        with pytest.raises(R2medError, match=why):
            read_scale(file)
    assert [grade.value for grade in DEFAULT_SCALE.grades] == [0, 1, 2, 3]


def test_wrong_input_is_one_line(ledger):
    assert "no run of 'absent'" in call("new", "a", "--from", "absent", code=1)
    assert "needs runs or a build" in call("new", "a", "--from", TASK, "--queue", "holes", code=1)
    assert "is not a name for a review" in call("new", "a b", "--from", TASK, code=1)
    assert "not a share" in call("new", "a", "--from", TASK, "--overlap", "120%", code=2)
    assert "no review a" in call("show", "a", code=1)
    call("new", "a", "--from", TASK, "--items", "5")
    assert "already" in call("new", "a", "--from", TASK, code=1)
    assert "no reviewer 'Ben'" in call("withdraw", "a", "Ben", code=1)
    call("invite", "a", "Ben")
    assert call("withdraw", "a", "Ben").startswith("1 link of Ben withdrawn")
    assert "no link that holds" in call("withdraw", "a", "Ben", code=1)
    assert "needs a name" in call("invite", "a", "\x1b[2J", code=1)


def test_a_task_of_positives_says_so_and_the_list_shows_all(ledger, tmp_path):
    done = CliRunner().invoke(app, ["review", "new", "only", "--from", TASK, "--items", "500"])
    assert "labelled relevant" in done.stderr
    assert "could be drawn" in done.stderr
    call("new", "both", "--from", TASK, "bm25", "--items", "5")
    assert [each["project"]["name"] for each in json.loads(call("list", "--json"))] == ["both", "only"]
    broken = tmp_path / "home" / "reviews" / "broken.sqlite"
    broken.write_text("no database, but a text of some length")
    done = CliRunner().invoke(app, ["review", "list"])
    assert "only" in done.stdout
    assert "broken.sqlite: damaged, or not a review" in done.stderr
