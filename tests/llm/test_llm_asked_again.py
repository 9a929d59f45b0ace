"""Replies of no use: every command that asks a model asks for them again, says so, and pays for nothing else."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
from click.testing import CliRunner

from building import brain, files_of, write_plan
from r2med.answers.arms import make_arms
from r2med.answers.report import make_report
from r2med.answers.study import StudyOptions, run_study
from r2med.cli.main import app
from r2med.construction.builder import Builder
from r2med.errors import R2medError, StoreWarning
from r2med.llm.cards import add_model
from r2med.llm.client import session
from r2med.llm.reply_cache import ReplyCache
from r2med.llm.scripted import scripted
from r2med.llm.types import RawAnswer
from r2med.pipeline.executor.local import quiet
from r2med.reviews.model import ModelReviewer
from r2med.usage import Usage
from ragging import asked, share, write_task
from reviewing import make_project

ONE_TOKEN = Usage(prompt_tokens=1, completion_tokens=1)
FAULTS = {
    "content filter": RawAnswer("", finish="content_filter", usage=ONE_TOKEN),
    "refusal": RawAnswer("", refusal="I cannot help with that.", usage=ONE_TOKEN),
    "empty": RawAnswer("", usage=ONE_TOKEN),
    "cut inside the reasoning": RawAnswer("<think>hm", finish="length", usage=ONE_TOKEN),
    "unreadable": RawAnswer("I would\nrather not say.", usage=ONE_TOKEN),
}


@dataclass
class Faulty:
    """A model that meets some prompts with a fault, until it is mended; it counts what it is asked."""

    say: object
    fault: RawAnswer
    hit: object = lambda prompt: True
    broken: bool = True
    prompts: list[str] = field(default_factory=list)

    def answer(self, request):
        prompt = request.messages[-1].content
        self.prompts.append(prompt)
        return self.fault if self.broken and self.hit(prompt) else self.say(request)

    def asked(self) -> int:
        """How often it was asked since the last look."""
        count, self.prompts = len(self.prompts), []
        return count


@pytest.mark.parametrize("kind", FAULTS)
def test_a_study_asks_again_for_what_could_not_be_used_and_is_whole_then(kind, tmp_path):
    task = write_task(tmp_path / "task", 12)
    hit = [f"q{number} is" for number in (2, 5, 7)]
    model = Faulty(
        lambda request: f"Answer: disease {asked(request)[1:]}",
        FAULTS[kind],
        lambda prompt: any(text in prompt for text in hit),
    )
    add_model(scripted(model.answer, "faulty"))

    def study():
        with session():
            return make_report(*run_study(make_arms([], ["closed", "gold"]), [str(task)], StudyOptions("faulty")))

    study()
    assert model.asked() == 24
    model.broken = False
    with pytest.warns(StoreWarning, match="6 kept answers of faulty are empty, refused, cut or unreadable"):
        mended = study()
    assert model.asked() == 6
    for arm in mended.arms:
        assert (arm.counts.right, arm.accuracy.value) == (12, 1.0)
    assert study().as_dict()["arms"] == mended.as_dict()["arms"]
    assert model.asked() == 0


def test_a_verdict_of_a_judge_that_could_not_be_read_is_asked_for_again(tmp_path):
    task = write_task(tmp_path / "task", 8)
    add_model(scripted(lambda request: "Answer: some other words", "wordy"))
    judge = Faulty(lambda request: "Verdict: yes", FAULTS["unreadable"], lambda prompt: "disease 3" in prompt)
    add_model(scripted(judge.answer, "judge"))

    def study():
        with session():
            options = StudyOptions("wordy", judge="judge")
            return make_report(*run_study(make_arms([], ["closed"]), [str(task)], options)).arms[0]

    assert study().counts.right == 7
    assert judge.asked() == 8
    judge.broken = False
    assert study().counts.right == 8
    assert judge.asked() == 1


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        ("Sort a medical question", "content filter"),
        ("Sort a medical question", "unreadable"),
        ("Answer the question below", "refusal"),
        ("The exam question below", "empty"),
        ("Passage:", "content filter"),
        ("Passage:", "unreadable"),
    ],
)
def test_a_build_with_a_mended_model_is_what_it_would_have_been(step, kind, tmp_path):
    say = brain()
    model = Faulty(
        lambda request: say(request.messages[-1].content),
        FAULTS[kind],
        lambda prompt: step in prompt and (step.startswith("The exam") or share("fault", prompt) < 0.3),
        broken=False,
    )
    add_model(scripted(model.answer, "faulty"))

    def build(folder):
        with session():
            return Builder(folder).run()

    whole = write_plan(tmp_path / "whole", "faulty")
    build(whole)
    ordinary = model.asked()
    build(whole)
    assert model.asked() == 0, "a finished build asks nothing"

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(tmp_path / "other-home"))
        late = write_plan(tmp_path / "late", "faulty")
        model.broken = True
        assert sum(count.left for count in build(late).counts) > 0
        model.asked()
        model.broken = False
        assert sum(count.left for count in build(late).counts) == 0
        assert 0 < model.asked() <= ordinary
        task = {name: text for name, text in files_of(late / "task").items() if name.endswith((".jsonl", ".tsv"))}
        assert task == {name: text for name, text in files_of(whole / "task").items() if name in task}
        build(late)
        assert model.asked() == 0


@pytest.mark.parametrize("kind", ["content filter", "unreadable"])
def test_a_review_by_a_model_asks_again_for_grades_that_could_not_be_read(kind):
    store = make_project(questions=2, passages=4)
    grade = json.dumps({"grade": 2, "reason": "so", "quote": ""})
    model = Faulty(lambda request: grade, FAULTS[kind], lambda prompt: "Passage 3 says" in prompt)
    found = scripted(model.answer, "faulty")

    def judge():
        with session():
            return ModelReviewer(store, found).judge(quiet())

    assert (judge().unread, model.asked()) == (1, 8)
    assert (judge().unread, model.asked()) == (1, 1)
    model.broken = False
    done = judge()
    assert (done.unread, done.graded, model.asked()) == (0, 8, 1)
    assert (judge().graded, model.asked()) == (8, 0)


def test_labels_and_estimates_follow_the_same_rule_and_so_does_clearing(tmp_path):
    from r2med.data.loader import load
    from r2med.diagnosis.labelling import label_queries, scheme
    from r2med.llm.client import current_client

    queries = load("sample/Biology").collection.queries
    body = scheme("body-system")
    right = f"Class: {body.classes[0]}"
    model = Faulty(lambda request: right, FAULTS["unreadable"], lambda prompt: queries.texts[0] in prompt)
    found = scripted(model.answer, "faulty")
    with session():
        assert len(label_queries(queries, body, found).unparsable) == 1
    count = len(queries.ids)
    assert model.asked() == count
    with session():
        guess = current_client().estimate([found.request(body.fill(text)) for text in queries.texts])
    assert (guess.requests, guess.cached) == (count, count - 1)
    said = CliRunner().invoke(app, ["cache", "clear", "answers", "--unusable"]).output
    assert said == "removed 1 unusable answer\n"
    model.broken = False
    with session():
        assert not label_queries(queries, body, found).unparsable
    assert model.asked() == 1


def test_a_list_without_a_ranking_is_asked_for_again(tmp_path):
    import r2med

    model = Faulty(lambda request: "[2] > [1]", FAULTS["unreadable"])
    add_model(scripted(model.answer, "faulty"))
    spec = "bm25 >> listwise(faulty, depth=2, window=2, step=1)"

    def run():
        with session():
            return r2med.evaluate(spec, "sample/Biology").results[0]

    first = run()
    asked_first = model.asked()
    assert len(first.incomplete) == asked_first
    model.broken = False
    assert not run().incomplete
    assert model.asked() == asked_first


def test_answers_cut_by_the_limit_on_their_length_are_cleared_as_unusable():
    cut = RawAnswer("The gums bleed because", finish="length", usage=Usage(prompt_tokens=1, completion_tokens=9))
    found = scripted(lambda request: cut if "1" in request.messages[-1].content else "Scurvy.", "cutter")
    with session() as client:
        client.ask_all([found.request("1"), found.request("2")])
    kept = ReplyCache()
    (holding,) = kept.holdings()
    assert (holding.answers, holding.unusable) == (2, 1)
    kept.close()
    said = CliRunner().invoke(app, ["cache", "clear", "answers", "--unusable"]).output
    assert said == "removed 1 unusable answer\n"


def test_paid_answers_go_only_after_a_question_and_models_are_named_by_their_cards(monkeypatch, tmp_path):
    from dataclasses import replace

    add_model(replace(scripted(lambda request: "Scurvy.", "my-card"), id="id-of-the-server"))
    from r2med.llm.cards import find_model

    with session() as client:
        client.ask_all([find_model("my-card").request("Why?")])
    kept = CliRunner().invoke(app, ["cache", "clear", "answers"], input="n\n")
    assert kept.exit_code == 1
    assert "remove 1 answer of all models, to be paid for again?" in kept.output
    unasked = CliRunner().invoke(app, ["cache", "clear", "answers", "--unusable"])
    assert (unasked.exit_code, unasked.output) == (0, "removed 0 unusable answers\n")
    agreed = CliRunner().invoke(app, ["cache", "clear", "answers", "--model", "my-card"], input="y\n")
    assert "removed 1 answer of id-of-the-server" in agreed.output
    assert CliRunner().invoke(app, ["cache", "clear", "answers", "--yes"]).output == "removed 0 answers\n"


def test_a_figure_that_lacks_answers_has_a_star_and_the_share_that_was_decided(tmp_path):
    from r2med.answers.tables import rag_sections
    from r2med.render.sections import latex_sections, markdown_sections

    task = write_task(tmp_path / "task", 12)
    lost = [f"q{number} is" for number in (2, 5, 7)]
    model = Faulty(
        lambda request: f"Answer: disease {asked(request)[1:]}",
        FAULTS["unreadable"],
        lambda prompt: any(text in prompt for text in lost),
    )
    add_model(scripted(model.answer, "faulty"))
    with session():
        report = make_report(*run_study(make_arms([], ["closed", "gold"]), [str(task)], StudyOptions("faulty")))
    first, _, paired, *_ = sections = rag_sections(report)
    assert first.headings[:3] == ["arm", "right", "decided"]
    assert [(row[1].wide, row[2].wide) for row in first.rows] == [("100.00*", "75.00")] * 2
    assert any(sentence.startswith("*: not all answers could be decided") for sentence in first.sentences)
    assert paired.rows[0][5].wide == "+0.00*"
    for text in (markdown_sections("Study", sections), latex_sections(sections)):
        assert any("100.00" in line and "*" in line for line in text.splitlines())


def test_a_build_that_lost_every_question_to_a_faulty_model_says_that_it_asks_again(tmp_path):
    model = Faulty(lambda request: "", FAULTS["content filter"])
    add_model(scripted(model.answer, "faulty"))
    with session(), pytest.raises(R2medError, match=r"\d+ items without a usable answer: the same command asks again"):
        Builder(write_plan(tmp_path / "build", "faulty")).run()
