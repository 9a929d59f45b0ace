"""What is held out shares nothing with what is trained on."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from bridging import SIGNS, Brain, write_documents
from test_train_data import make, near_tasks  # noqa: F401

from r2med.construction.items import Passage, Question
from r2med.training.negatives import DEV, TRAIN, JudgedPassage, TrainingQuestion, hold_out
from r2med.training.settings import PartSettings


def _passage(name: str) -> Passage:
    return Passage(name, "", f"text of {name}", name.partition("#")[0], "", 0, 1)


def _row(name: str, text: str, source: str, positives: list[str]) -> TrainingQuestion:
    question = Question(name, "", "an answer", (), (source.partition("#")[0],), text)
    judged = [JudgedPassage(_passage(each), 1.0, 1) for each in positives]
    return TrainingQuestion(question, judged, [], written={"passage": source})


def _words(text: str) -> set[tuple[str, str]]:
    words = text.casefold().replace("?", "").split()
    return set(pairwise(words))


@pytest.mark.parametrize("seed", range(8))
def test_train_and_dev_share_no_question_no_positive_and_no_source(seed: int) -> None:
    draw = random.Random(seed)
    words = [f"word{number}" for number in range(4000)]
    rows: list[TrainingQuestion] = []
    for number in range(150):
        kind = draw.random()
        text = " ".join(draw.sample(words, 24)) + "?"
        if rows and kind < 0.15:
            text = draw.choice(rows).question.text.upper()
        elif rows and kind < 0.3:
            parts = draw.choice(rows).question.text.split()
            parts[0] = draw.choice(words)
            text = " ".join(parts)
        positives = [f"p{draw.randrange(600)}#1" for _ in range(draw.randint(1, 2))]
        rows.append(_row(f"q{number}", text, f"s{draw.randrange(400)}#1", positives))
    parted, held = hold_out(rows, PartSettings(0.2, seed))
    train, dev = ([row for row in parted if row.part == part] for part in (TRAIN, DEV))
    assert 0.1 * len(rows) <= len(dev) <= 0.3 * len(rows)
    for one in dev:
        for other in train:
            mine, theirs = _words(one.question.text), _words(other.question.text)
            assert len(mine & theirs) / len(mine | theirs) < 0.8, (one.question.text, other.question.text)
            assert {p.passage.id for p in one.positives}.isdisjoint(p.passage.id for p in other.positives)
            assert set(one.question.sources).isdisjoint(other.question.sources)
            assert one.written["passage"] not in {p.passage.id for p in other.positives}
    assert (held.questions, held.shared_questions, held.shared_positives) == (150, 0, 0)
    assert held.groups <= 150


class Repeating(Brain):
    """A writer that asks the same of several passages."""

    def _written(self, prompt: str) -> str:
        said = json.loads(super()._written(prompt))
        sign = next(sign for sign in SIGNS if f"{sign.capitalize()}son" in prompt)
        number = SIGNS.index(sign) % 4
        return json.dumps(said | {"question": f"Patient {number} has had it for weeks, like case{number}. What now?"})


def test_a_writer_that_repeats_itself_contaminates_no_dev(tmp_path: Path, near_tasks: None) -> None:  # noqa: F811
    Repeating()
    write_documents(tmp_path / "documents")
    table = tmp_path / "my.toml"
    table.write_text("[parts]\ndev = 0.3\n")
    made = json.loads(make(tmp_path, "--settings", table, "--json"))
    rows = pl.read_parquet(tmp_path / "bridge.parquet")
    train, dev = (rows.filter(pl.col("part") == part) for part in ("train", "dev"))
    assert len(dev) > 0
    assert set(train["query"]).isdisjoint(dev["query"])
    positives = [{each["id"] for each in part.explode("positives")["positives"]} for part in (train, dev)]
    assert positives[0].isdisjoint(positives[1])
    assert made["held_out"]["shared_questions"] == made["held_out"]["shared_positives"] == 0
    assert made["held_out"]["groups"] <= 4
    card = (tmp_path / "bridge.md").read_text()
    groups = made["held_out"]["groups"]
    assert f"20 questions are {groups} groups that have nothing in common; train and dev share 0 questions" in card
