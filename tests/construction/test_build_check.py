"""`r2med build check`: the same figures in every output, planted faults found, noise measured as it was planted."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from building import brain, judgement, part, sample, write_plan, write_rows
from r2med.cli.main import app
from r2med.construction.builder import Builder
from r2med.construction.health import (
    BASE,
    DOUBTFUL,
    GOOD,
    MEASURE,
    POOR,
    PoolCoverage,
    QuestionLeakage,
    TaskHealth,
    health_rules,
)
from r2med.construction.health_report import health_sections
from r2med.construction.pool import read_built_task
from r2med.data.loader import load
from r2med.errors import R2medError
from r2med.llm.cards import add_model
from r2med.llm.scripted import scripted
from r2med.llm.types import Request
from r2med.measure.population import CaughtShare, PopulationEstimate
from r2med.measure.score import score
from r2med.pipeline.executor.local import quiet
from r2med.pipeline.stage import Context
from r2med.pipeline.system import System
from r2med.store.cache import Cache

OFF = {
    "intent": {"model": ""},
    "difficulty": {"models": [], "judge": ""},
    "rewrite": {"model": "", "checker": ""},
}
COMMITTEE = ["bm25", "wordllama", "bm25-classic"]
MEMBERS = {"systems": COMMITTEE, "depth": 2}


def chance(text: str) -> float:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") / 2**32


class Judge:
    """Answers as the sample's judgements say; asked again, it says the opposite of pairs that chance picks."""

    def __init__(self, noise: float = 0.0) -> None:
        self.say, self.noise, self.asked = brain(), noise, []
        add_model(scripted(self._answer, "thinker"))

    def turns(self, answer: str, passage: str) -> bool:
        return chance(answer + passage) < self.noise

    def _answer(self, request: Request) -> str:
        prompt = request.messages[-1].content
        self.asked.append(request.sample)
        said = self.say(prompt)
        if not request.sample or not prompt.startswith("You judge whether"):
            return said
        turned = self.turns(part(prompt, "Correct answer:"), part(prompt, "Passage:"))
        return said if not turned else judgement(0, 0) if '"answers": 3' in said else judgement(3, 3)


def build(folder: Path, **tables) -> Path:
    write_plan(folder, "thinker", **OFF | {"mine": MEMBERS} | tables)
    Builder(folder).run()
    return folder


def call(*arguments, code: int = 0, columns: int = 200):
    found = CliRunner().invoke(app, ["build", "check", *map(str, arguments)], env={"COLUMNS": str(columns)})
    assert found.exit_code == code, found.output
    return found


def refused(*arguments) -> str:
    """The one line that an error is."""
    error = call(*arguments, code=1).exception
    assert isinstance(error, R2medError)
    assert "\n" not in str(error)
    return str(error)


def checked(*arguments) -> dict:
    return json.loads(call(*arguments, "--json").stdout)


def finding(health: dict, name: str) -> dict:
    return next(each for each in health["findings"] if each["name"] == name)


def test_one_check_says_the_same_on_a_terminal_as_markdown_as_json_and_in_the_card(tmp_path):
    Judge()
    folder = build(tmp_path / "b")
    card = folder / "task" / "README.md"
    before = card.read_text("utf-8")
    assert "## Health" in before
    assert "r2med build check" in before
    health = checked(folder)
    missed = health["coverage"]["missed"]
    sentence = f"are about {missed['total']:,.0f} in all (95% interval {missed['low']:,} to {missed['high']:,})"
    baseline = next(each for each in health["baselines"] if each["system"] == BASE)
    figures = [
        sentence,
        f"{100 * baseline['score']['mean']:.2f}",
        f"{100 * finding(health, 'completeness')['value']:.1f}%",
    ]
    shown, written, after = call(folder).stdout, call(folder, "--format", "md").stdout, card.read_text("utf-8")
    for figure in figures:
        assert all(figure in " ".join(text.split()) for text in (shown, written, after)), figure
    assert before.split("## Health")[0] == after.split("## Health")[0]
    assert before.split("## Settings")[1] == after.split("## Settings")[1]
    assert sentence in " ".join(before.split())  # what labels alone say was in the card already
    for width in (80, 60):
        assert max(map(len, call(folder, columns=width).stdout.splitlines())) <= width
    # The finished task alone is enough; a later run of the same build leaves the card with its report, and a new
    # package has the same bytes again.
    shutil.copytree(folder / "task", tmp_path / "alone")
    assert checked(tmp_path / "alone")["coverage"] == health["coverage"]
    Builder(folder).run()
    assert card.read_text("utf-8") == after
    shutil.rmtree(folder / "task")
    Builder(folder).run()
    assert card.read_text("utf-8") == before


def test_members_views_bias_and_gap_are_what_counting_by_hand_gives(tmp_path):
    Judge()
    folder = build(tmp_path / "b")
    health = checked(folder)
    rows = pl.read_parquet(folder / "task" / "judgements.parquet").filter(pl.col("verdict") == "positive")
    ways = [
        (row["query_id"], row["passage_id"], set(row["system"]), set(row["view"])) for row in rows.iter_rows(named=True)
    ]
    for side, place in (("members", 2), ("views", 3)):
        for each in health["coverage"][side]:
            assert each["part"] == sum(each["name"] in way[place] for way in ways)
            assert each["alone"] == sum(way[place] == {each["name"]} for way in ways)
    assert (
        sum(each["positives"] for each in health["coverage"]["overlaps"])
        == len(ways)
        == health["coverage"]["positives"]
    )
    dataset = load(folder / "task")
    assert {each["system"] for each in health["bias"]} == set(COMMITTEE)
    for each in health["bias"]:
        own = {(query, passage) for query, passage, systems, _ in ways if systems == {each["system"]}}
        left = {q: {d: g for d, g in judged.items() if (q, d) not in own} for q, judged in dataset.gold.qrels.items()}
        left = {query: judged for query, judged in left.items() if judged}
        run = System.parse(each["system"]).run(dataset.collection, Context(Cache.default(), quiet()))
        assert each["left_out"] == pytest.approx(score(run, left, [MEASURE]).mean(MEASURE))
        assert (each["lost"], each["questions"]) == (len(own), len(left))
    assert any(each["lost"] for each in health["bias"])
    gap = health["gap"]["overlap"]
    assert finding(health, "reasoning gap")["value"] == gap["answer-positive"]["mean"] - gap["query-positive"]["mean"]


def test_noise_of_labels_comes_out_as_it_was_planted_and_is_paid_for_once(tmp_path):
    judge = Judge(noise=0.3)
    folder = build(tmp_path / "b")
    asked = len(judge.asked)
    foreseen = json.loads(call(folder, "--reask", "100%", "--dry-run", "--json").stdout)
    assert len(judge.asked) == asked
    health = checked(folder, "--reask", "100%")
    again = judge.asked[asked:]
    assert len(again) == foreseen[0]["requests"]
    assert min(again) > 5000
    dataset = sample()
    pool = read_built_task(folder).pool
    documents = dict(load(folder / "task").collection.documents)
    turned = [
        judge.turns(dataset.gold.answers[each.question], documents[each.passage].strip()) for each in pool.positives
    ]
    second = health["second"]
    assert (second["stays"]["whole"], second["stays"]["part"]) == (len(turned), len(turned) - sum(turned))
    assert 0 < sum(turned) < len(turned)
    assert (
        second["pairs"] == sum(pool.verdicts.values()) == sum(sum(row.values()) for row in second["confusion"].values())
    )
    assert second["confusion"]["positive"]["positive"] == second["stays"]["part"]
    # A smaller share is a part of it, and no reply is asked for twice.
    asked = len(judge.asked)
    assert checked(folder, "--reask", "0.2")["second"]["pairs"] < second["pairs"]
    assert checked(folder, "--reask", "100%")["second"] == second
    assert len(judge.asked) == asked
    assert "positive again" in (folder / "task" / "README.md").read_text("utf-8")


def test_questions_that_leak_into_each_other_are_named(tmp_path):
    Judge()
    folder = tmp_path / "b"
    write_plan(folder, "thinker", **OFF | {"select": {"dev": 0.4}})
    rows = [json.loads(line) for line in (folder / "questions.jsonl").read_text("utf-8").splitlines()]
    write_rows(folder / "questions.jsonl", [*rows, rows[0] | {"id": "copy"}])
    Builder(folder).run()
    health = checked(folder)
    first = rows[0]["id"]
    assert health["leakage"]["repeated"] == [{"question": "copy", "repeats": first, "how": "same words"}]
    assert finding(health, "splits")["verdict"] == GOOD
    assert not health["leakage"]["across"]
    # Somebody moves the copy by hand.
    qrels = {split: folder / "task" / "qrels" / f"{split}.tsv" for split in ("dev", "test")}
    home = next(split for split, file in qrels.items() if f"\n{first}\t" in file.read_text())
    lines = qrels[home].read_text().splitlines(keepends=True)
    qrels[home].write_text("".join(line for line in lines if not line.startswith("copy\t")))
    other = qrels["dev" if home == "test" else "test"]
    other.write_text(other.read_text() + "".join(line for line in lines if line.startswith("copy\t")))
    health = checked(folder)
    assert (finding(health, "splits")["verdict"], health["verdict"]) == (POOR, "not ready")
    assert {each["shared"] for each in health["leakage"]["across"]} == {"text", "positive"}
    assert "lie in different splits" in call(folder).stdout


@pytest.mark.parametrize(
    ("total", "lower_bound", "sources", "value", "verdict"),
    [
        (881.0, 990.0, None, 855 / 990, DOUBTFUL),  # overlap alone, however nearly complete it looks
        (855.0, None, None, 1.0, DOUBTFUL),
        (881.0, 990.0, CaughtShare(19, 20), 855 / 990, GOOD),
        (881.0, 990.0, CaughtShare(4, 20), 855 / 990, DOUBTFUL),
        (1900.0, 3574.0, None, 855 / 3574, POOR),
    ],
)
def test_completeness_is_good_only_where_known_sources_were_found(total, lower_bound, sources, value, verdict):
    missed = PopulationEstimate(3, 855, 279, 300, total, 860, 2000, lower_bound)
    coverage = PoolCoverage(855, (), (), (), 0, sources, "members", missed)
    leakage = QuestionLeakage(130, (), 0, ())
    cuts = dict.fromkeys(("answers", "supports", "band_answers", "band_supports"), 2.0)
    verdicts = {"positive": 855, "negative": 5914}
    health = TaskHealth("t", 130, 3000, coverage, leakage, False, verdicts, (), cuts, {})
    found = finding(health.as_dict(), "completeness")
    assert (found["value"], found["low"], found["high"]) == (pytest.approx(value), None, None)
    assert found["verdict"] == verdict
    (row,) = [row for row in health_sections(health)[0].rows if row[0] == "completeness"]
    assert row[1] == f"at most {100 * value:.1f}%"


def test_every_rule_can_be_met_and_missed():
    for rule in health_rules():
        assert rule.poor >= rule.good if rule.less else rule.poor <= rule.good
        assert rule.why
        assert rule.asks.endswith("?")
    names = [rule.name for rule in health_rules()]
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "build.md").read_text("utf-8")
    for rule in health_rules():
        row = re.search(rf"(?m)^\| {rule.name} \| {re.escape(rule.asks)} \|.*$", page)
        assert row is not None, rule.name
        for limit in (rule.good, rule.poor):
            assert (f"{limit:g}" if rule.unit == "count" else f"{100 * limit:g}") in row[0], row[0]
    assert len(set(names)) == len(names)


def test_figures_are_drawn_as_svg_without_matplotlib_and_by_it(tmp_path):
    Judge()
    folder = build(tmp_path / "b")
    call(folder, "--plot", tmp_path / "drawn")
    call(folder, "--plot", tmp_path / "paper.png")
    health = checked(folder)
    for name in ("funnel", "members", "scores"):
        assert (tmp_path / f"paper-{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / "drawn" / f"{name}.svg").read_text("utf-8").startswith("<svg xmlns")
    members = (tmp_path / "drawn" / "members.svg").read_text("utf-8")
    assert all(f">{each['positives']}<" in members for each in health["coverage"]["overlaps"])
    scores = (tmp_path / "drawn" / "scores.svg").read_text("utf-8")
    assert all(f">{each['pairs']}<" in scores for each in health["scores"])
    assert "no positive" in (tmp_path / "drawn" / "funnel.svg").read_text("utf-8") or health["questions"] == 9


def test_a_judge_that_cannot_say_no_is_found_out(tmp_path):
    add_model(scripted(lambda request: judgement(3, 2), "thinker"))
    found = finding(checked(build(tmp_path / "b", reason={"model": ""})), "refusing")
    assert (found["value"], found["verdict"]) == (1.0, POOR)
    Judge()
    health = checked(build(tmp_path / "fair"))
    found = finding(health, "refusing")
    assert found["value"] == health["verdicts"]["positive"] / sum(health["verdicts"].values()) < 0.5


def test_what_cannot_be_checked_is_one_line(tmp_path):
    Judge()
    folder = build(tmp_path / "b", mine={"systems": ["bm25"], "depth": 5})
    health = checked(folder)
    assert finding(health, "committee")["verdict"] == POOR
    assert health["coverage"]["by"] == "views"
    assert finding(health, "label noise")["verdict"] == "unknown"
    assert not health["bias"]
    shutil.copytree(folder / "task", tmp_path / "alone")
    for arguments, words in (
        ((tmp_path / "nothing",), "no finished task"),
        ((folder, "--plot", tmp_path / "x.jpg"), "figures end in"),
        ((tmp_path / "alone", "--reask", "5%"), "only in the folder of their build"),
    ):
        assert words in refused(*arguments)
    for share in ("5 of them", "120%", "-1%", "nan"):
        assert "is not a share such as" in call(folder, "--reask", share, code=2).stderr
    assert "--dry-run goes with --reask" in call(folder, "--dry-run", code=2).stderr
    (folder / "guideline.md").write_text("Something else.", "utf-8")
    assert "guideline changed since the task was made" in refused(folder, "--reask", "5%")
    manifest = folder / "task" / "build.json"
    stated = manifest.read_text("utf-8")
    manifest.write_text(json.dumps(json.loads(stated) | {"format": 99}), "utf-8")
    assert "made by another version of r2med (format 99, this version has 1); make it again" in refused(folder)
    manifest.write_text(stated, "utf-8")
    (folder / "task" / "judgements.parquet").write_bytes(b"broken")
    assert "not a whole task" in refused(folder)
