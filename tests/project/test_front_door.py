"""What `import r2med` offers: verbs that take strings, errors and reprs of one line, tables in a notebook."""

from __future__ import annotations

import doctest
import inspect
import json
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import r2med
from r2med.leaderboard.board import board as ranked_board
from r2med.render.scores.model import View
from r2med.runs.ledger import Ledger

TASK = "sample/Biology"


class Letters:
    """An encoder whose state can be told."""

    def __init__(self, columns: int = 8):
        self.columns = columns

    def encode_queries(self, texts):
        return np.array([[text.count(chr(97 + place)) + 1 for place in range(self.columns)] for text in texts])

    encode_documents = encode_queries


class WithModel(Letters):
    """An encoder that holds what no key can be made of."""

    def __init__(self):
        super().__init__()
        self.model = object()


@dataclass
class Versioned(Letters):
    columns: int = 8
    version: str = "1"

    def __post_init__(self):
        self.model = object()


def after(code: str) -> list[str]:
    """The modules that a new process has loaded after some code."""
    tail = "\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code + tail], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_importing_the_package_loads_nothing_else():
    loaded = [name for name in after("import r2med; dir(r2med)") if name.startswith("r2med.")]
    assert loaded == []


def test_threads_of_numpy_do_not_spin_in_a_command_and_importing_the_package_sets_no_variable(monkeypatch):
    tell = (
        "import os, sys, polars; before = dict(os.environ); import r2med, r2med.api"
        "\nassert before == dict(os.environ)\nfrom r2med.cli import main, tasks; sys.argv = ['r2med', 'tasks']"
        "\ntasks.tasks_command.callback = lambda **_: print(os.environ['OPENBLAS_THREAD_TIMEOUT'])\nmain.main()"
    )
    for own, told in ((None, "22"), ("26", "26")):
        monkeypatch.delenv("OPENBLAS_THREAD_TIMEOUT", raising=False)
        if own:
            monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", own)
        done = subprocess.run([sys.executable, "-c", tell], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == told


def test_recognising_an_encoder_loads_no_reranker():
    loaded = after("from r2med import System; System.parse('bge'); System.parse('hf:BAAI/bge-m3')")
    assert "r2med.retrieve.dense" in loaded
    assert [name for name in loaded if name.startswith("r2med.rerank.")] == ["r2med.rerank.cards"]


def test_no_package_has_the_name_of_a_verb():
    packages = {path.parent.name for path in Path(r2med.__file__).parent.glob("*/__init__.py")}
    assert packages & set(r2med.PUBLIC) == set()


def test_every_public_name_has_an_example():
    finder = doctest.DocTestFinder(recurse=False)
    without = []
    for name in sorted(set(r2med.__all__) - {"__version__"}):
        value = getattr(r2med, name)
        # A verb with a folder of its name is that folder, which can be called.
        verb = getattr(value, "__wrapped__", value)
        if not any(test.examples for test in finder.find(verb, name, module=False)):
            without.append(name)
    assert without == []


def test_help_starts_with_an_example():
    assert inspect.getdoc(r2med).split("\n\n")[1].strip() == "import r2med"


def test_the_example_of_the_package_runs():
    code = textwrap.dedent(inspect.getdoc(r2med).split("\n\n", 1)[1].rsplit("\n\n", 1)[0])
    names: dict = {}
    exec(code, names)
    assert names["report"].systems == ["bm25", "bm25-classic"]


def test_a_search_gives_a_ranked_list_with_texts():
    hits = r2med.search("bm25", r2med.load("sample/MedQA-Diag"), "fatigue, golden-brown corneal rings", k=3)
    assert [hit.rank for hit in hits] == [1, 2, 3]
    assert hits[0].score > hits[1].score > hits[2].score
    assert "Wilson disease" in hits[0].text
    assert str(hits).splitlines()[0].split()[2] == hits[0].document
    assert r2med.search(r2med.BM25(), "sample/MedQA-Diag", "zzz qqq") == r2med.search(
        "bm25", "sample/MedQA-Diag", "zzz qqq"
    )


def test_strings_and_stages_are_the_same_systems_and_measures():
    assert r2med.BM25() >> "listwise(gpt-4o)" == r2med.System.parse("bm25 >> listwise(gpt-4o)")
    assert "hyde(gpt-4o)" >> r2med.BM25() == r2med.HyDE("gpt-4o") >> "bm25"
    assert r2med.Measure("nDCG@10") == r2med.Measure("ndcg_cut_10") == r2med.Measure("nDCG", 10)
    by_measures = r2med.evaluate("bm25", TASK, measures=["Recall@5"])
    by_text = r2med.evaluate(r2med.BM25(), r2med.load(TASK), measures="Recall@5")
    assert by_measures.measures[0] == by_text.measures[0] == "Recall@5"
    assert by_measures.results[0].metrics == by_text.results[0].metrics


def test_verbs_agree_with_what_lies_below_them():
    r2med.evaluate(["bm25", "bm25-classic"], TASK)
    [pair] = r2med.compare("bm25", r2med.BM25Classic(), tasks=TASK)
    assert (pair.a, pair.b) == ("bm25", "bm25-classic")
    [causes] = r2med.diagnose(r2med.BM25(), TASK)
    assert (causes.system, causes.task) == ("bm25", TASK)
    own = r2med.board("sample", tasks=TASK, measure="ndcg@10")
    with Ledger() as ledger:
        assert own.as_dict() == ranked_board(ledger, View("sample", (TASK,))).as_dict()


def test_an_object_that_encodes_is_a_system_and_its_state_is_in_its_key():
    report = r2med.evaluate([Letters(8), Letters(26)], TASK)
    assert report.systems == [f"{__name__}:Letters(columns=8)", f"{__name__}:Letters(columns=26)"]
    first, second = (report.result(system, TASK) for system in report.systems)
    assert first.id != second.id
    assert first.metrics != second.metrics
    assert r2med.evaluate(Letters(8), TASK).results[0].cached
    named = r2med.System((r2med.Dense(f"{__name__}:Letters", columns=8),))
    assert named.spec == report.systems[0]
    one, two = Versioned(version="1"), Versioned(version="2")
    ids = {r2med.evaluate(each, TASK).results[0].id for each in (one, two)}
    assert len(ids) == 2


def test_every_repr_is_one_line():
    report = r2med.evaluate(["bm25", "bm25-classic"], TASK)
    dataset = r2med.load(TASK)
    with Ledger() as ledger:
        run = ledger.run(ledger.get(report.results[0].id))
    shown = [
        report, dataset, run, r2med.BM25(), r2med.BM25() >> "listwise(gpt-4o)", r2med.Measure("MAP"), r2med.Options(),
        r2med.Dense("wordllama"), r2med.Replay(), r2med.RRF("bm25", "bm25-classic"), r2med.board(limit=2),
        *r2med.compare("bm25", "bm25-classic", tasks=TASK), *r2med.diagnose("bm25", TASK),
        r2med.search("bm25", dataset, "why?\nwhy?"),
    ]  # fmt: skip
    assert [repr(each) for each in shown if "\n" in repr(each) or len(repr(each)) > 1000] == []


def test_reports_and_boards_are_tables_in_a_notebook_and_nothing_in_them_is_markup():
    report = r2med.evaluate(["bm25", "bm25-classic"], TASK)
    named = report.named({"bm25": "<script>alert(1)</script>"})
    page = named._repr_html_()
    assert page.count("<tr>") == 3
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    for system in report.systems:
        assert f"{100 * report.average(system, 'sample', 'nDCG@10'):.2f}" in page
    assert r2med.board(limit=2)._repr_html_().count("<tr>") == 3
    assert "bm25-classic" in str(report)


WRONG = {
    "load a number": (lambda: r2med.load(3), "not 3 (int)"),
    "a text for a number": (lambda: r2med.BM25(k1="high"), "BM25: k1 must be a number, not 'high'"),
    "a text for a setting that is passed on": (lambda: r2med.Dense("wordllama", dim="x"), "dim must be a whole number"),
    "a number for a chat model": (lambda: r2med.HyDE(3), "HyDE: llm must be a name or text, not 3"),
    "no model": (lambda: r2med.Pointwise(), "missing a required argument: 'llm'; it takes llm, mode"),
    "an option that is none": (lambda: r2med.BM25(k2=1), "unexpected keyword argument 'k2'; it takes k1, b"),
    "too many values": (lambda: r2med.BM25(*range(9)), "too many positional arguments"),
    "load several": (lambda: r2med.load("sample"), "stands for 8 tasks"),
    "load nothing": (lambda: r2med.load("Biologgy"), "did you mean"),
    "search nothing": (lambda: r2med.search("bm25", TASK, None), "a query is a text"),
    "search blank": (lambda: r2med.search("bm25", TASK, " "), "empty"),
    "search nowhere": (lambda: r2med.search("bm25", None, "x"), "a task is"),
    "search none": (lambda: r2med.search("bm25", TASK, "x", k=0), "k must be"),
    "search an oracle": (lambda: r2med.search("oracle-answer >> bm25", TASK, "x"), "gold answers"),
    "search without retriever": (lambda: r2med.search("replay", TASK, "x"), "no retriever"),
    "evaluate a number": (lambda: r2med.evaluate(3), "a system is"),
    "evaluate a class": (lambda: r2med.evaluate(r2med.BM25), "as BM25()"),
    "evaluate an encoder's class": (lambda: r2med.evaluate(Letters), "as Letters()"),
    "evaluate no systems": (lambda: r2med.evaluate([]), "at least one system"),
    "evaluate on a number": (lambda: r2med.evaluate("bm25", 5), "a task is"),
    "evaluate on nothing": (lambda: r2med.evaluate("bm25", []), "at least one task"),
    "evaluate by a number": (lambda: r2med.evaluate("bm25", TASK, measures=3), "a measure is"),
    "evaluate by nothing known": (lambda: r2med.evaluate("bm25", TASK, measures="NDGC@10"), "did you mean nDCG@10?"),
    "evaluate with a list for options": (lambda: r2med.evaluate("bm25", TASK, ["MAP"]), "measures=[...]"),
    "evaluate what no key can be made of": (lambda: r2med.evaluate(WithModel(), TASK), "holds model"),
    "compare one": (lambda: r2med.compare("bm25"), "at least two"),
    "compare a number": (lambda: r2med.compare("bm25", 4), "a system is"),
    "compare on a number": (lambda: r2med.compare("bm25", "bm25-classic", tasks=4), "a task is"),
    "diagnose nothing": (lambda: r2med.diagnose(None), "a system is"),
    "board of nothing": (lambda: r2med.board("fll"), "did you mean full?"),
    "board of a number": (lambda: r2med.board(3), "a group is"),
    "board by nothing": (lambda: r2med.board(lmit=3), "did you mean limit?"),
    "board of no kind": (lambda: r2med.board("full", kind="x"), "no kind 'x'; known: agent"),
    "board to a text": (lambda: r2med.board(limit="x"), "limit is"),
    "a wrong setting": (lambda: r2med.Dense("wordllama", dmi=3), "did you mean dim?"),
    "a number for a model": (lambda: r2med.Dense(3), "no method encode_queries"),
    "a number after a stage": (lambda: r2med.BM25() >> 3, "a system is"),
    "a measure of no cutoff": (lambda: r2med.Measure("Recall"), "needs a cutoff"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_in_one_sentence(name: str):
    call, words = WRONG[name]
    with pytest.raises(r2med.R2medError) as caught:
        call()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_contracts_of_the_package_hold():
    root = Path(r2med.__file__).parents[2]
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-logo", "--no-cache"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
