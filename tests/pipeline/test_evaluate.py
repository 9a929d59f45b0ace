"""Evaluation: failures are missing and never zero, shared stages run once, records tell everything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import r2med
from r2med.data.dataset import Collection
from r2med.data.run import Run
from r2med.data.tasks import Task, resolve
from r2med.errors import R2medError
from r2med.measure.metrics import parse_all
from r2med.pipeline.evaluate import Options, run_key
from r2med.pipeline.registry import spec_of
from r2med.pipeline.spec import Call
from r2med.pipeline.stage import Context, Expander, Reranker, Retriever
from r2med.pipeline.system import System
from r2med.render.scores.model import View
from r2med.render.scores.report import format_report
from r2med.retrieve.bm25 import BM25
from r2med.runs.ledger import Ledger

CALLS: list[str] = []


@dataclass(frozen=True)
class Broken(Retriever):
    """Fails on one task."""

    depth: int = 100

    @property
    def spec(self) -> Call:
        return spec_of(self, "broken")

    def retrieve(self, collection: Collection, context: Context) -> Run:
        if collection.task.base == "Biology":
            raise R2medError("the server is down")
        return BM25().retrieve(collection, context)


@dataclass(frozen=True)
class Echo(Expander):
    """Adds nothing, and tells that it was called."""

    @property
    def spec(self) -> Call:
        return Call("echo")

    def expand(self, collection: Collection, context: Context) -> Collection:
        CALLS.append("echo")
        context.notes.incomplete[collection.queries.ids[0]] = "refused"
        context.notes.facts["requests"] = 9
        return collection


@dataclass(frozen=True)
class Reverse(Reranker):
    """Turns every list round."""

    @property
    def spec(self) -> Call:
        return Call("reverse")

    def rerank(self, collection: Collection, run: Run, context: Context) -> Run:
        CALLS.append("reverse")
        return Run.from_lists({q: (r.documents, -r.scores) for q, r in run})


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


def test_a_failed_system_is_missing_and_the_others_survive() -> None:
    report = r2med.evaluate([Broken(), BM25()], ["sample/Biology", "sample/MedQA-Diag"])
    assert [(f.system, f.task, f.message) for f in report.failures] == [
        ("broken", "sample/Biology", "the server is down")
    ]
    assert report.average("broken", "sample", "nDCG@10") is None
    assert report.average("bm25", "sample", "nDCG@10") is not None
    assert "broken" not in report.averages("sample")
    row = next(line for line in str(report).splitlines() if line.strip().startswith("broken"))
    assert row.split()[1] == "-"
    assert row.split()[-1] == "-"
    assert "failed: broken on sample/Biology: the server is down" in str(report)


def test_a_task_on_which_every_system_failed_stays_and_leaves_no_average() -> None:
    tasks = ["sample/MedQA-Diag", "sample/Biology", "sample/PMC-Clinical"]
    report = r2med.evaluate(Broken(), tasks)
    assert [result.task for result in report.results] == [tasks[0], tasks[2]]
    assert report.tasks("sample") == tasks
    assert report.average("broken", "sample", "nDCG@10") is None
    found = report.as_dict()
    assert found["averages"] == {}
    assert found["groups"] == {"sample": {}}
    assert found["intervals"] == {"sample": {}}
    row = next(line for line in str(report).splitlines() if line.strip().startswith("broken"))
    assert [cell == "-" for cell in row.split()[1:]] == [False, True, False, True]
    for form, cells in (("md", ["-", "-"]), ("latex", ["--", "--"]), ("csv", ["", ""])):
        text = format_report(report, form, view=View(intervals=True))
        line = next(line for line in text.splitlines() if "broken" in line and "failed" not in line)
        figures = re.split(r" *[|&,] *", line.removesuffix(r" \\").strip("| "))
        start = len(figures) - 4 if form != "csv" else 7
        assert [figures[start + 1], figures[start + 3]] == cells, line
        assert figures[start] not in ("-", "--", "")


def test_a_group_in_which_everything_failed_is_still_a_group() -> None:
    task = replace(r2med.load("sample/Biology").task, group="custom")
    data = r2med.load("sample/Biology")
    report = r2med.evaluate(
        Broken(), [replace(data, collection=replace(data.collection, task=task)), "sample/MedQA-Diag"]
    )
    assert report.groups == ["custom", "sample"]
    assert report.as_dict()["averages"] == {}


def test_a_stage_shared_by_several_systems_runs_once_and_its_notes_reach_all() -> None:
    systems = [Echo() >> BM25(), Echo() >> BM25() >> Reverse(), Echo() >> BM25(k1=1.2)]
    report = r2med.evaluate(systems, "sample/Biology")
    assert CALLS == ["echo", "reverse"]
    for result in report.results:
        assert result.incomplete == {"bio-q01": "refused"}
        assert result.record.notes["echo"] == {"requests": 9}
    assert "echo >> bm25 *" in str(report)
    assert "* echo >> bm25: 1 query incomplete (refused)" in str(report)


def test_seconds_are_those_of_a_system_alone() -> None:
    """What was taken over from another system counts for each that needed it, inside a fusion too."""

    @dataclass(frozen=True)
    class Slow(Echo):
        @property
        def spec(self) -> Call:
            return Call("slow")

        def expand(self, collection: Collection, context: Context) -> Collection:
            time.sleep(0.2)
            return collection

    alone = Slow() >> BM25()
    report = r2med.evaluate([alone, Slow() >> BM25(k1=1.2), r2med.RRF(alone, BM25())], "sample/Biology")
    assert all(result.seconds >= 0.2 for result in report.results)


def test_what_was_kept_needs_no_stage_again() -> None:
    r2med.evaluate(BM25() >> Reverse(), "sample/Biology")
    again = r2med.evaluate(BM25() >> Reverse(), "sample/Biology")
    assert CALLS == ["reverse"]
    assert again.results[0].cached


def test_a_run_that_is_not_complete_is_tried_again_until_it_is() -> None:
    r2med.evaluate(Echo() >> BM25(), "sample/Biology")
    assert r2med.evaluate(Echo() >> BM25(), "sample/Biology").results[0].incomplete
    assert CALLS == ["echo", "echo"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Echo, "expand", lambda self, collection, context: collection)
        assert not r2med.evaluate(Echo() >> BM25(), "sample/Biology").results[0].incomplete
    assert r2med.evaluate(Echo() >> BM25(), "sample/Biology").results[0].cached
    assert CALLS == ["echo", "echo"]


ENGINE = """
from r2med.data.run import Run
from r2med.data.tasks import Task, resolve
from r2med.pipeline.spec import Call
from r2med.pipeline.stage import Retriever

class Engine(Retriever):
    depth = 100

    @property
    def spec(self):
        return Call("engine")

    def fingerprint(self):
        return {"mine": 1}

    def retrieve(self, collection, context):
        ids = sorted(collection.documents.ids, reverse=BACKWARDS)
        scores = [float(-place) for place in range(len(ids))]
        return Run.from_lists({query: (ids, scores) for query in collection.queries.ids})
"""


def test_a_retriever_of_ones_own_never_meets_the_result_of_its_old_code(tmp_path: Path) -> None:
    """With a fingerprint of its own too, in a file, in a base class's file, and without any file."""
    code = "import r2med\n{}\nprint(r2med.evaluate({}(), 'sample/Biology').results[0].{})"

    def run(source: str, name: str, shown: str = "cached") -> str:
        command = [sys.executable, "-B", "-c", code.format(source, name, shown)]
        environment = {**os.environ, "PYTHONPATH": str(Path(r2med.__file__).resolve().parents[1])}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    derived = "from engine import Engine\nclass Derived(Engine):\n    pass"
    values = set()
    for backwards in ("False", "True"):
        (tmp_path / "engine.py").write_text(ENGINE.replace("BACKWARDS", backwards))
        typed = ENGINE.replace("BACKWARDS", backwards).replace('"engine"', '"typed"')
        for source, name in (("from engine import Engine", "Engine"), (derived, "Derived"), (typed, "Engine")):
            assert run(source, name) == "False"
            assert run(source, name) == "True"
        values.add(run("from engine import Engine", "Engine", "metrics['nDCG@10']"))
    assert len(values) == 2


def test_per_query_scores_are_a_frame_aligned_by_id() -> None:
    report = r2med.evaluate(["bm25", "bm25-classic"], "sample/Biology")
    frame = report.per_query()
    assert frame.columns[:3] == ["system", "task", "query"]
    assert frame.height == 18
    mean = frame.filter(frame["system"] == "bm25")["nDCG@10"].mean()
    assert mean == pytest.approx(report.average("bm25", "sample", "nDCG@10"))


def test_the_ledger_remembers_all_that_could_change_a_result() -> None:
    r2med.evaluate("bm25(k1=1.2)", "sample/Biology")
    with Ledger() as ledger:
        entry = ledger.entries()[0]
    record = entry.record
    assert entry.system == "bm25(k1=1.2)"
    assert entry.group == "sample"
    assert record.stages[0].settings["k1"] == 1.2
    assert record.stages[0].settings["analyzer"] == "lucene-english"
    assert record.data.fingerprint == r2med.load("sample/Biology").fingerprint
    assert record.provenance.machine.cores
    assert record.oracle is False


@pytest.mark.parametrize(
    ("system", "said"),
    [
        (System((Reverse(), BM25())), "cannot come before the retriever"),
        (System((BM25(), Echo())), "cannot come after the retriever"),
        (System((Echo(),)), "no retriever"),
        (System((BM25(), BM25())), "2 retrievers"),
    ],
)
def test_an_impossible_order_is_refused_before_anything_runs(system: System, said: str) -> None:
    with pytest.raises(R2medError, match=said):
        r2med.evaluate(system, "sample/Biology")
    assert CALLS == []


@pytest.mark.parametrize("measures", ["nDCG@10", "Recall@100 nDCG@10", "MAP", "nDCG MRR"])
def test_a_measure_deeper_than_the_lists_is_said_for_what_is_asked_and_from_the_ledger_too(measures: str) -> None:
    """Once computed, once from the ledger, once with measures that were not asked for before."""
    shallow = Options(measures=parse_all(["nDCG@3", "Recall@5"]))
    deep = Options(measures=parse_all(measures.split()))
    said = f"{', '.join(measures.split())} measured on lists of 5 documents; give the retriever depth=..."
    for options, warnings in ((deep, (said,)), (deep, (said,)), (shallow, ()), (deep, (said,))):
        (result,) = r2med.evaluate("bm25(depth=5)", "sample/Biology", options).results
        assert result.warnings == warnings
        assert not any("lists of" in sentence for sentence in result.record.warnings)
    (result,) = r2med.evaluate("bm25(depth=64)", "sample/Biology", deep).results
    assert result.warnings == (), "a list of all documents is as deep as can be"


def test_the_sample_is_reasoning_driven() -> None:
    """BM25 on the question finds little; on the gold answer nearly all."""
    from r2med.data.dataset import Texts
    from r2med.data.tasks import groups
    from r2med.measure.metrics import Measure
    from r2med.measure.score import score
    from r2med.pipeline.executor.local import quiet
    from r2med.store.cache import Cache

    plain, told = [], []
    for task in groups()["sample"]:
        dataset = r2med.load(task)
        ids = dataset.collection.queries.ids
        answers = Texts(ids, [dataset.gold.answers[query] for query in ids])
        for queries, into in ((dataset.collection.queries, plain), (answers, told)):
            collection = Collection(task, dataset.collection.documents, queries)
            run = BM25().retrieve(collection, Context(Cache.default(), quiet()))
            into.append(score(run, dataset.gold.qrels).mean(Measure.parse("nDCG@10")))
        assert set(dataset.gold.reasoning) == set(ids)
    assert sum(plain) / len(plain) < 0.40
    assert sum(told) / len(told) > 0.70


def test_measures_are_strings_and_a_repr_is_one_line() -> None:
    report = r2med.evaluate("bm25", "sample/Biology", measures=["ndcg@3", "Recall@20"])
    assert report.measures[:2] == ["nDCG@3", "Recall@20"]
    assert "nDCG@10" in report.measures
    assert r2med.evaluate("bm25", "sample/Biology", r2med.Options(fresh=True), measures="R@5").measures[0] == "Recall@5"
    assert repr(report) == "Report(1 system on 1 task)"
    assert repr(r2med.load("sample/Biology")) == "Dataset('sample/Biology', 9 queries, 64 documents)"


@pytest.mark.parametrize("word", r2med.load("sample/Biology").task.words)
def test_every_word_that_a_prompt_may_have_is_part_of_the_key(word: str) -> None:
    dataset = r2med.load("sample/Biology")
    parts = [word] if word in Task.WORDS else ["noun", "target", "purpose"]
    for part in parts:
        task = replace(dataset.task, **{part: "another word"})
        assert task.words[word] != dataset.task.words[word]
        other = replace(dataset, collection=replace(dataset.collection, task=task))
        assert run_key(System.parse("bm25"), other) != run_key(System.parse("bm25"), dataset)


def test_a_folder_states_every_word_of_its_task(tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_text("".join(f'{name} = "my {name}"\n' for name in Task.WORDS))
    (task,) = resolve([tmp_path])
    assert {name: task.words[name] for name in Task.WORDS} == {name: f"my {name}" for name in Task.WORDS}
