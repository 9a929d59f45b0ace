"""Answer accuracy: the judge's words are read strictly, what has no verdict is counted, and answers meet retrieval."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from r2med.answers.accuracy import Accuracy, AnswerReport, JudgedAnswer, judge_answers, judge_runs
from r2med.answers.cli import answers_command
from r2med.data.dataset import Generation, Gold
from r2med.data.loader import load
from r2med.data.tasks import SAMPLE
from r2med.errors import R2medError
from r2med.llm.budget import Limits
from r2med.llm.cards import add_model
from r2med.llm.client import session
from r2med.llm.parsing import read_verdict
from r2med.llm.scripted import scripted
from r2med.measure.answers import matches, normalise_answer
from r2med.models.http import AttemptError
from r2med.pipeline.evaluate import evaluate

TASK = "sample/MedQA-Diag"


@pytest.fixture(autouse=True)
def _client(own_home):
    with session(Limits(retries=0)):
        yield


def judge(answer, name="judge", **changes):
    model = add_model(replace(scripted(answer, name), **changes))
    return model.name


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("Verdict: yes", True),
        ("verdict: NO.", False),
        ("**Verdict:** yes", True),
        ("> Verdict - no", False),
        ("Both name the same disease.\n\nVerdict: yes\n", True),
        ("yes", True),
        ("No.", False),
        ("Verdict: yes\nVerdict: yes", True),
        ("Verdict: yes\nVerdict: no", None),
        ("Verdict: yes or no", None),
        ("Verdict: maybe", None),
        ("The verdict: yes, it matches", None),
        ("yes\nno", None),
        ("Yes, because", None),
        ("not sure", None),
        ("", None),
    ],
)
def test_a_verdict_is_read_strictly(text, verdict):
    assert read_verdict(text) is verdict


@given(st.text())
def test_any_text_is_a_verdict_or_none(text):
    assert read_verdict(text) in (True, False, None)
    assert read_verdict(f"{text}\nVerdict: yes") in (True, None)


@pytest.mark.parametrize(
    ("answer", "gold", "found"),
    [
        ("Kawasaki disease", "Kawasaki disease", (True, True)),
        ("the KAWASAKI disease.", "Kawasaki disease", (True, True)),
        ("It is Kawasaki disease, I think.", "Kawasaki disease", (False, True)),
        ("Wilson disease", "Wilson disease (hepatolenticular degeneration)", (True, True)),
        ("Wilsons disease", "Wilson disease", (False, False)),
        ("disease of Kawasaki", "Kawasaki disease", (False, False)),
        ("", "Kawasaki disease", (False, False)),
        ("Café", "Cafe\u0301", (True, True)),
    ],
)
def test_words_are_compared_for_free(answer, gold, found):
    assert matches(answer, gold) == found


@given(st.text(), st.text())
def test_what_is_exact_is_contained(answer, gold):
    exact, contained = matches(answer, gold)
    assert contained or not exact
    assert matches(gold, gold) == (bool(normalise_answer(gold)),) * 2


def generations(dataset, text=lambda gold: gold):
    return {query: [Generation(text(gold), "answer")] for query, gold in dataset.gold.answers.items()}


def test_the_judge_reads_question_gold_and_response_and_is_not_left_to_chance():
    dataset = load(TASK)
    seen = []

    def answer(request):
        seen.append(request)
        return "Verdict: yes"

    name = judge(answer)
    judge(answer, sampling=replace(scripted(answer).sampling, temperature=0.7))
    found = judge_answers(dataset, generations(dataset, lambda gold: f"I say {{gold}} {gold}!"), name, "answer(x)")
    assert found.accuracy == 1.0
    assert found.queries == len(found.right) == len(dataset.gold.answers)
    assert found.share("contained") == 1.0
    assert found.share("exact") == 0.0
    assert found.account.requests == len(seen) == found.queries
    query, gold = next(iter(dataset.gold.answers.items()))
    prompt = next(r.messages[-1].content for r in seen if gold in r.messages[-1].content)
    assert dataset.collection.queries.text(query) in prompt
    assert f"I say {{gold}} {gold}!" in prompt
    assert all(request.sampling.temperature == 0.0 for request in seen)


def test_a_judge_that_takes_no_temperature_is_given_none():
    dataset = load(TASK)
    seen = []
    name = judge(
        lambda request: seen.append(request) or "no", sampling=replace(scripted(str).sampling, temperature=None)
    )
    assert judge_answers(dataset, generations(dataset), name).accuracy == 0.0
    assert {request.sampling.temperature for request in seen} == {None}


def test_what_has_no_verdict_is_neither_right_nor_wrong():
    dataset = load(TASK)
    ids = list(dataset.gold.answers)
    made = generations(dataset)
    made[ids[0]] = [Generation("", "answer", reasoning="so", incomplete="the reasoning never ended")]
    del made[ids[1]]
    said = {ids[2]: "Perhaps.", ids[3]: "<think>hm", ids[4]: "Verdict: no"}

    def answer(request):
        query = next(q for q in ids if dataset.gold.answers[q] in request.messages[-1].content)
        if query == ids[5]:
            raise AttemptError("the judge fell over", retry=False)
        return said.get(query, "Verdict: yes")

    found = judge_answers(dataset, made, judge(answer))
    assert found.missing == {ids[0]: "the reasoning never ended", ids[1]: "nothing was generated"}
    assert found.unparsable == 3
    problems = {each.query: each.problem for each in found.judged if each.problem}
    assert problems == {ids[2]: "Perhaps.", ids[3]: "the reasoning never ended", ids[5]: "the judge fell over"}
    rest = len(ids) - 5
    assert found.accuracy == pytest.approx((rest - 1) / rest)
    assert found.queries == len(ids)
    assert found.share("exact") == pytest.approx((len(ids) - 2) / len(ids))
    shape = found.as_dict()
    assert (shape["judged"], shape["unparsable"], len(shape["missing"])) == (rest, 3, 2)


def test_several_samples_of_a_query_share_its_one_vote():
    dataset = load(TASK)
    query, gold = next(iter(dataset.gold.answers.items()))
    few = replace(dataset, gold=Gold(dataset.gold.qrels, {query: gold}))
    made = {query: [Generation(text, "answer") for text in ("right", "wrong", "right", "")]}
    found = judge_answers(few, made, judge(lambda r: "yes" if "<response>\nright" in r.messages[-1].content else "no"))
    assert found.right == {query: pytest.approx(2 / 3)}
    assert found.queries == 1


def test_without_a_judge_nothing_is_asked():
    dataset = load(TASK)
    found = judge_answers(dataset, generations(dataset))
    assert found.accuracy is None
    assert found.share("exact") == 1.0
    assert found.account.requests == 0
    assert found.correlation.pearson is None


def test_what_cannot_be_judged_is_one_line():
    dataset = load(TASK)
    with pytest.raises(R2medError, match=f"{TASK} has no gold answers"):
        judge_answers(replace(dataset, gold=Gold(dataset.gold.qrels)), generations(dataset))
    with pytest.raises(R2medError, match=f"nothing was generated in bm25 for {TASK}"):
        judge_answers(dataset, {}, system="bm25")


def accuracy(system, task, rights, scores):
    judged = [JudgedAnswer(f"q{n}", "a", "g", False, False, verdict) for n, verdict in enumerate(rights)]
    return Accuracy(system, task, judged, retrieval={f"q{n}": score for n, score in enumerate(scores)})


def test_answers_meet_retrieval_over_queries_and_over_systems():
    results = [
        accuracy("a", "t1", [True, True, False, False], [0.9, 0.8, 0.2, 0.1]),
        accuracy("a", "t2", [True, False], [0.9, 0.2]),
        accuracy("b", "t1", [False, False, False, True], [0.2, 0.1, 0.1, 0.7]),
        accuracy("b", "t2", [False, False], [0.3, 0.1]),
        accuracy("c", "t1", [True, True, True, True], [1.0, 0.9, 0.8, 0.9]),
        accuracy("c", "t2", [True, True], [0.9, 1.0]),
        accuracy("d", "t1", [True, True, True, True], [0.1, 0.1, 0.1, 0.1]),
    ]
    report = AnswerReport(results, "nDCG@10")
    # d lacks a task and would be compared on others' terms.
    assert list(report.systems) == ["a", "b", "c"]
    assert report.systems["a"] == (0.5, pytest.approx((0.5 + 0.55) / 2))
    assert report.over_systems.spearman.value == 1.0
    assert report.over_queries.points == 22
    rights = [right for result in results for right in result.right.values()]
    scores = [score for result in results for score in result.retrieval.values()]
    assert report.over_queries.pearson.value == pytest.approx(np.corrcoef(rights, scores)[0, 1])
    assert results[0].correlation.pearson.value == pytest.approx(np.corrcoef([1, 1, 0, 0], [0.9, 0.8, 0.2, 0.1])[0, 1])
    shape = report.as_dict()
    assert shape["over_systems"]["points"] == 3
    assert [result["system"] for result in shape["results"]] == [*"aabbccd"]


def test_runs_of_the_ledger_are_judged_by_id_or_by_system():
    dataset = load(TASK)
    answers = dataset.gold.answers
    ids = list(answers)

    def write(request):
        text = request.messages[-1].content
        query = next(q for q in ids if dataset.collection.queries.text(q) in text)
        # A right answer finds its documents; a wrong one finds another's.
        right = ids.index(query) % 2 == 0
        return answers[query] if right else f"It is {answers[ids[(ids.index(query) + 1) % len(ids)]]}."

    add_model(scripted(write, "writer"))
    judge(lambda r: "yes" if r.messages[-1].content.count(_gold(r)) > 1 else "no")
    report = evaluate(["answer(writer) >> bm25", "bm25"], TASK)
    run = report.results[0]
    by_id, by_system = judge_runs([run.id[:6]], "judge"), judge_runs(["answer(writer) >> bm25"], "judge")
    assert by_id.as_dict()["results"][0]["accuracy"] == by_system.results[0].accuracy == pytest.approx(5 / 9)
    assert by_id.results[0].retrieval == dict(zip(run.queries, run.scores["nDCG@10"].tolist(), strict=True))
    assert by_id.over_queries.pearson.value > 0.8
    assert by_id.over_queries.pearson.low > 0.5
    assert judge_runs([run.id], "judge", "Recall@100").measure == "Recall@100"
    assert set(judge_runs([run.id], "judge", "P@7").results[0].retrieval) == set(run.queries)
    with pytest.raises(R2medError, match="bm25 generates no text, so there is no answer to judge"):
        judge_runs(["bm25"], "judge")
    with pytest.raises(R2medError, match="no run of 'zzz'"):
        judge_runs(["zzz"], "judge")


def _gold(request):
    return request.messages[-1].content.partition("<correct_answer>\n")[2].partition("\n")[0]


def test_data_that_changed_since_the_run_is_not_judged(tmp_path):
    folder = tmp_path / "MedQA-Diag"
    shutil.copytree(SAMPLE / "MedQA-Diag", folder)
    add_model(scripted(lambda request: "Scurvy.", "writer"))
    run = evaluate("answer(writer) >> bm25", folder).results[0]
    assert judge_runs([run.id]).results[0].share("exact") == 0.0
    with (folder / "corpus.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"id": "another", "text": "One more document."}\n')
    with pytest.raises(R2medError, match=f"MedQA-Diag has changed since run {run.id} of .*; run it again"):
        judge_runs([run.id])


def test_tasks_without_gold_answers_are_left_out_with_a_note(tmp_path):
    folder = tmp_path / "own"
    shutil.copytree(SAMPLE / "MedQA-Diag", folder)
    (folder / "query.jsonl").write_text(
        "".join(f'{{"id": "{query}", "text": "{query} fever"}}\n' for query in load(TASK).gold.qrels)
    )
    add_model(scripted(lambda request: "Scurvy.", "writer"))
    systems = ["answer(writer) >> bm25", "hyde(writer) >> bm25"]
    evaluate(systems[0], folder)
    evaluate(systems[1], "sample/Biology")
    evaluate(systems, TASK)
    found = judge_runs([systems[1], systems[0]])
    # In the order given, then of the tasks.
    assert [(each.system, each.task) for each in found.results] == [
        (systems[1], "sample/Biology"), (systems[1], TASK), (systems[0], TASK)
    ]  # fmt: skip
    assert found.notes == (f"{folder} is left out: it has no gold answers to compare with",)
    assert found.as_dict()["notes"] == list(found.notes)
    assert [each.task for each in judge_runs(systems, tasks=[TASK]).results] == [TASK, TASK]
    with pytest.raises(R2medError, match=r"no answer can be judged: .*own is left out"):
        judge_runs(systems[:1], tasks=[str(folder)])
    report = CliRunner().invoke(answers_command, [*systems, "--tasks", TASK, "sample/Biology"])
    assert f"note: {systems[0]} has no run on sample/Biology" in report.stderr
    assert "over systems: not defined on 0 points: only a --judge says which answers are right" in report.stdout


def test_it_is_said_why_systems_cannot_be_correlated():
    results = [
        accuracy(*row, [True, False], [0.9, 0.1]) for row in (("a", "t1"), ("a", "t2"), ("b", "t1"), ("c", "t1"))
    ]
    found = AnswerReport(results, "nDCG@10")
    assert found.too_few == "1 of 3 systems have all 2 tasks; choose tasks with --tasks"
    assert AnswerReport([results[0], *results[2:]], "nDCG@10").too_few == ""
