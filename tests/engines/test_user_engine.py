"""A user's own search engine: the same figures as the engine behind it, and one line for everything it does wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import orjson
import pytest

import r2med
from r2med.errors import SpecError
from r2med.pipeline.system import System
from r2med.runs.ledger import Ledger

ENGINE = '''
from dataclasses import replace

import r2med
from r2med.data.dataset import Texts
from r2med.pipeline.executor.local import quiet
from r2med.pipeline.stage import Context
from r2med.store.cache import Cache

CALLS = []


def bm25_lists(collection, queries, k):
    """The lists of r2med's own BM25 for any texts."""
    names = [f"q{place}" for place in range(len(queries))]
    asked = replace(collection, queries=Texts(names, queries), generations=())
    run = r2med.BM25(depth=k).retrieve(asked, Context(Cache.default(), quiet()))
    return [list(zip(run[name].documents, run[name].scores.tolist())) for name in names]


def my_search(queries, k, task, k1=0.9):
    CALLS.append(len(queries))
    return bm25_lists(r2med.load(task).collection, queries, k)


def only_ids(queries, k, task):
    return [[document for document, _ in found] for found in my_search(queries, k, task)]


class Overlap:
    def __init__(self, documents, floor=0):
        self.words = {name: set(text.lower().split()) for name, text in documents.items()}
        self.floor = floor

    def search(self, queries, k):
        return [self.best(set(query.lower().split()), k) for query in queries]

    def best(self, query, k):
        scores = {name: len(query & words) for name, words in self.words.items()}
        ranked = sorted(scores.items(), key=lambda pair: (pair[1], pair[0]), reverse=True)
        return [(name, score) for name, score in ranked[:k] if score > self.floor]


class Ready:
    def search(self, queries, k):
        return [["bio-d001"] for _ in queries]


ready = Ready()


def twenty(queries, k=20):
    return [["bio-d001"] for _ in queries]
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder from which commands are started, with a module of the user's in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "tried_engine.py").write_text(ENGINE, encoding="utf-8")
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name in ("tried_engine", "bad_engine"):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def no_names_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test gives a name is forgotten after it."""
    from r2med.engines import user as user_engine

    monkeypatch.setattr(user_engine, "_NAMED", {})


def command(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(Path(r2med.__file__).parents[1])}
    done = [sys.executable, "-m", "r2med", *args]
    return subprocess.run(done, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)


def lists(spec: str, task: str):
    """The lists of a system's only run on a task."""
    with Ledger() as ledger:
        return ledger.run(next(entry for entry in ledger.entries(system=spec) if entry.task == task))


def test_bm25_through_a_function_is_bm25_to_the_bit_on_scifact(here: Path, collections: Path) -> None:
    folder = str(collections / "scifact")
    (here / "tried_engine.py").write_text(
        ENGINE.replace("r2med.load(task)", f"r2med.load({folder!r})"), encoding="utf-8"
    )
    specs = ["bm25", "tried_engine:my_search", "rrf(tried_engine:my_search, bm25-classic)", "rrf(bm25, bm25-classic)"]
    report = r2med.evaluate(specs, folder)
    assert not report.failures
    bm25, own, fused_own, fused = report.results
    assert own.metrics == bm25.metrics
    assert fused_own.metrics == fused.metrics
    assert lists("tried_engine:my_search", own.task) == lists("bm25", bm25.task)
    ranked, scored = lists("tried_engine:my_search", own.task), lists("bm25", bm25.task)
    assert len(ranked) == len(scored) == 300


def test_the_command_line_experiments_expanders_fusion_and_rerankers_take_it(here: Path) -> None:
    (here / "study.toml").write_text(
        'tasks = ["sample/Biology"]\n[[system]]\nname = "mine"\nspec = "tried_engine:my_search"\n'
    )
    rerank = "class Same:\n    def score(self, query, documents):\n        return range(len(documents), 0, -1)\n"
    (here / "tried_engine.py").write_text(ENGINE + rerank, encoding="utf-8")
    pairs = {
        "bm25": "tried_engine:my_search",
        "replay >> bm25": "replay >> tried_engine:my_search",
        "rrf(bm25, bm25-classic)": "rrf(tried_engine:my_search, bm25-classic)",
        "bm25(depth=5)": "tried_engine:my_search(depth=5)",
        "bm25 >> tried_engine:Same": "tried_engine:my_search >> tried_engine:Same",
    }
    done = command(here, "run", *pairs, *pairs.values(), "--tasks", "sample/Biology", "--json")
    assert done.returncode == 0, done.stderr
    metrics = {row["system"]: row["metrics"] for row in orjson.loads(done.stdout)["results"]}
    for bm25, own in pairs.items():
        assert metrics[own] == metrics[bm25], own
    named = command(here, "run", "study.toml")
    assert named.returncode == 0
    assert "mine: tried_engine:my_search" in named.stdout
    assert "queries to search" in command(here, "run", "tried_engine:my_search", "--dry-run", "--fresh").stdout
    compared = command(here, "compare", "bm25", "tried_engine:my_search", "--tasks", "sample/Biology")
    assert compared.returncode == 0, compared.stderr


def test_ids_alone_a_class_and_an_object_are_engines_too(here: Path) -> None:
    specs = [
        "bm25",
        "tried_engine:only_ids",
        "tried_engine:Overlap",
        "tried_engine:Overlap(floor=12)",
        "tried_engine:ready",
        "tried_engine:twenty",
    ]
    report = r2med.evaluate(specs, "sample/Biology")
    assert not report.failures
    assert report.results[1].metrics == report.results[0].metrics
    assert lists(specs[1], "sample/Biology")["bio-q01"].scores.tolist()[-1] == 1.0
    assert report.results[2].metrics["Recall@100"] > report.results[3].metrics["Recall@100"]
    assert [str(System.parse(spec)) for spec in specs] == specs


def test_a_function_of_this_process_needs_no_module(here: Path) -> None:
    def nothing_but_first(queries: list[str], k: int) -> list[list[str]]:
        return [["bio-d001"] for _ in queries]

    report = r2med.evaluate([nothing_but_first, "bm25"], "sample/Biology")
    assert not report.failures
    assert report.systems[0].endswith(":nothing_but_first")
    named = r2med.retriever(nothing_but_first, name="mine")
    assert named is nothing_but_first
    fused = r2med.evaluate([named, "rrf(mine, bm25)", r2med.RRF(named, "bm25", depth=50)], "sample/Biology")
    assert list(fused.systems) == ["mine", "rrf(mine, bm25)", "rrf(mine, bm25, depth=50)"]
    with pytest.raises(SpecError, match="has no name"):
        r2med.evaluate(lambda queries, k: [[] for _ in queries], "sample/Biology")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bm25", "name of a stage"),
        ("bge", "name of a model"),
        ("short", "name of an alias"),
        ("a b", "cannot be a name"),
        ("x:y", "cannot be a name"),
        ("", "cannot be a name"),
    ],
)
def test_a_name_that_stands_for_something_else_is_refused(here: Path, name: str, words: str) -> None:
    (here / "r2med.toml").write_text('[aliases]\nshort = "bm25"\n')

    class Executor:
        def search(self, queries: list[str], k: int) -> list[list[str]]:
            return [[] for _ in queries]

    with pytest.raises(SpecError, match=words):
        r2med.retriever(Executor(), name=name) if name else r2med.retriever(Executor())


def test_two_functions_cannot_share_a_name(here: Path) -> None:
    tried_engine = import_module("tried_engine")
    r2med.retriever(tried_engine.my_search, name="mine")
    r2med.retriever(tried_engine.my_search, name="mine")
    with pytest.raises(SpecError, match="name of tried_engine:my_search already"):
        r2med.retriever(tried_engine.only_ids, name="mine")


def test_an_edited_function_never_meets_its_old_result(here: Path) -> None:
    def cached() -> bool:
        done = command(here, "run", "tried_engine:my_search", "--tasks", "sample/Biology", "--json")
        return bool(orjson.loads(done.stdout)["results"][0]["cached"])

    assert [cached(), cached()] == [False, True]
    (here / "tried_engine.py").write_text(ENGINE + "\n# edited\n", encoding="utf-8")
    assert [cached(), cached()] == [False, True]
    (here / "tried_engine.py").write_text(ENGINE, encoding="utf-8")
    assert cached()


def test_an_edited_module_that_the_code_imports_counts_too(here: Path) -> None:
    """Directly or by way of another one, from a package, inside a function; of functions, classes and objects alike."""
    (here / "tried_parts").mkdir()
    files = {
        "tried_engine.py": "import tried_ranks\nfrom tried_parts import *\n\n"
        "def search(queries, k):\n    return [tried_ranks.best() for _ in queries]\n\n"
        "class Engine:\n    def search(self, queries, k):\n        return search(queries, k)\n\nready = Engine()\n",
        "tried_ranks.py": "from tried_names import NAMES\n\ndef best():\n    import tried_later\n    return NAMES\n",
        "tried_names.py": "NAMES = ['bio-d001']\n",
        "tried_later.py": "A = 1\n",
        "tried_parts/__init__.py": "from . import inner\n",
        "tried_parts/inner.py": "B = 1\n",
    }
    for name, text in files.items():
        (here / name).write_text(text)

    def keys() -> list[str]:
        for name in [name for name in sys.modules if name.startswith("tried_")]:
            del sys.modules[name]
        return [System.parse(f"tried_engine:{name}").key() for name in ("search", "Engine", "ready")]

    before = keys()
    assert keys() == before
    for name, text in files.items():
        (here / name).write_text(text + "\n# edited\n")
        assert all(now != then for now, then in zip(keys(), before, strict=True)), name
        (here / name).write_text(text)
    (here / "tried_stranger.py").write_text("C = 1\n")
    assert keys() == before


def make_search(first: object):
    """A function whose file says nothing of what it returns."""

    def around(queries: list[str], k: int) -> list[list[str]]:
        return [[str(first)] for _ in queries]

    return around


class Holder:
    def __init__(self, first: object) -> None:
        self.first = first

    def search(self, queries: list[str], k: int) -> list[list[str]]:
        return [[str(self.first)] for _ in queries]


class Opaque:
    """Nobody can tell what it holds."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name


@pytest.mark.parametrize("make", [make_search, Holder])
def test_what_a_function_or_object_holds_is_part_of_its_key(make) -> None:
    def key(first: object, version: str = "") -> str:
        target = make(first)
        r2med.retriever(target, name=f"mine-{first}", version=version)
        return System.parse(f"mine-{first}").stages[0].fingerprint()["code"]

    assert key("bio-d001") == key("bio-d001")
    assert key("bio-d001") != key("bio-d002")
    assert key("bio-d001", "1") != key("bio-d001", "2")
    assert key(Opaque("a")) != key(Opaque("a")), "what cannot be compared is never taken for the same"
    assert key(Opaque("a"), "1") == key(Opaque("a"), "1"), "but its owner may say so"


def test_a_function_without_a_file_is_known_by_its_code_and_what_it_uses() -> None:
    def key(source: str) -> str:
        module: dict[str, object] = {"__name__": "notebook"}
        exec(source, module)
        return System((r2med.engines.user.from_object(module["f"]),)).key()  # type: ignore[attr-defined]

    source = "def g(q):\n    return [q]\n\ndef f(queries, k):\n    return [g(query) for query in queries]\n"
    assert key(source) == key(source)
    assert key(source) != key(source.replace("return [q]", "return [q, q]"))
    assert key(source) != key(source.replace("g(query)", "g(k)"))


BAD = {
    "raises": ("raise ValueError('my bug')", r"failed: bad_engine\.py:3: ValueError: my bug"),
    "leaves": ("raise SystemExit(3)", r"failed: bad_engine\.py:\d+: SystemExit: 3"),
    "few": ("return [[]]", r"returned 1 lists for \d+ queries"),
    "nothing": ("return None", "returned NoneType, not a list for each query"),
    "text": ("return ['bio-d001' for _ in queries]", "str in place of a list"),
    "twice": (
        "return [['bio-d001', 'bio-d001'] for _ in queries]",
        "query bio-q01: document 'bio-d001' is in its list more",
    ),
    "nan": ("return [[('bio-d001', float('nan'))] for _ in queries]", "the score of 'bio-d001' is nan, not a number"),
    "word": ("return [[('bio-d001', 'high')] for _ in queries]", "the score of 'bio-d001' is 'high', not a number"),
    "mixed": ("return [[('bio-d001', 1), 'bio-d002'] for _ in queries]", "'bio-d002' among pairs of an id and a score"),
    "object": ("return [[3.5] for _ in queries]", r"3\.5, which is not a document id"),
    "foreign": ("return [['x1'] for _ in queries]", "9 of 9 ids .100.0%. are not .*; are they the ids of another"),
    "strange": (
        "return [['x1', 'bio-d001'] for _ in queries]",
        r"9 of 18 ids \(50\.0%\) are not documents of sample/Biology, the first 'x1' for query bio-q01; more than 10%",
    ),
}


def test_every_wrong_answer_is_one_line(here: Path) -> None:
    text = "".join(f"def {name}(queries, k):\n    # wrong\n    {line}\n" for name, (line, _) in BAD.items())
    (here / "bad_engine.py").write_text(text, encoding="utf-8")
    done = command(here, "run", *[f"bad_engine:{name}" for name in BAD], "--tasks", "sample/Biology", "--json")
    assert done.returncode == 1
    failures = {row["system"]: row["error"] for row in orjson.loads(done.stdout)["failures"]}
    for name, (_, expected) in BAD.items():
        assert re.search(expected, failures[f"bad_engine:{name}"]), failures[f"bad_engine:{name}"]
        assert "\n" not in failures[f"bad_engine:{name}"]
    assert "Traceback" not in done.stdout + done.stderr
    shown = command(here, "run", "bad_engine:raises", "--tasks", "sample/Biology", "--debug").stderr
    assert 'bad_engine.py", line 3, in raises' in shown


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("tried_engine:my_serch", "no class or function my_serch; did you mean my_search"),
        ("tried_engine:my_search(3)", "name the options"),
        ("tried_engine:my_search(depth=many)", "depth must be a whole number, not many"),
        ("tried_engine:my_search(depth=0)", "must be at least 1"),
        ("tried_engine:my_search(unknown=2)", "a share between 0 and 1"),
        ("tried_engine:my_search(colour=red)", "colour"),
        ("tried_engine:ready(colour=red)", "made already"),
        ("tried_engine:later", "is async"),
        ("tried_engine:half", "does not take queries and k"),
        ('tried_engine:my_search(join="mean")', "needs a dense retriever"),
    ],
)
def test_wrong_specs_are_refused_before_anything_runs(here: Path, spec: str, words: str) -> None:
    (here / "tried_engine.py").write_text(ENGINE + "\nasync def later(queries, k):\n    return []\n", encoding="utf-8")
    with (here / "tried_engine.py").open("a") as file:
        file.write("\ndef half(queries):\n    return []\n")
    with pytest.raises(SpecError, match=words):
        System.parse(spec)


PICKY = """
def picky(queries, k):
    if any("tickle" in query for query in queries):
        raise TimeoutError("too slow")
    return [["bio-d001"] for query in queries]
"""


def test_a_query_that_failed_is_incomplete_and_the_others_survive(here: Path) -> None:
    (here / "bad_engine.py").write_text(PICKY, encoding="utf-8")
    report = r2med.evaluate(["bad_engine:picky", "rrf(bad_engine:picky, bm25)"], "sample/Biology")
    for result in report.results:
        assert dict(result.incomplete) == {
            "bio-q01": "bad_engine:picky failed: bad_engine.py:4: TimeoutError: too slow"
        }
        assert (result.as_dict()["errors"], result.as_dict()["timeouts"]) == (0, 2), "with the others, and alone"
    assert "*" in str(report)
    strict = r2med.evaluate("bad_engine:picky", "sample/Biology", r2med.Options(strict=True, fresh=True))
    assert "1 of 9 queries could not be searched" in strict.failures[0].message


def test_single_calls_have_their_latency_recorded(here: Path) -> None:
    report = r2med.evaluate(["tried_engine:my_search(batch=1)", "tried_engine:my_search"], "sample/Biology")
    single, whole = (result.record.notes[result.system] for result in report.results)
    assert single["calls"] == 9
    assert 0 < single["latency"]["p50"] <= single["latency"]["p95"] <= single["latency"]["p99"]
    assert (whole["calls"], "latency" in whole) == (1, False)
    asked, together = report.as_dict()["results"]
    assert asked["latency"] == single["latency"]
    assert "latency" not in together
    (line,) = (line for line in str(report).splitlines() if "a query took" in line)
    assert line.startswith("tried_engine:my_search(batch=1): a query took ")
    assert line.endswith(" (p99)")


def test_a_few_unknown_ids_are_counted_and_left_out(here: Path) -> None:
    report = r2med.evaluate("tried_engine:my_search", "sample/Biology")
    text = ENGINE.replace("return bm25_lists(", "return with_stranger(").replace(
        "def my_search", 'def with_stranger(*args):\n    lists = bm25_lists(*args)\n    lists[0].append(("x1", 9e9))\n'
        "    return lists\n\n\ndef my_search"
    )  # fmt: skip
    del sys.modules["tried_engine"]
    (here / "tried_engine.py").write_text(text, encoding="utf-8")
    again = r2med.evaluate("tried_engine:my_search", "sample/Biology")
    assert again.results[0].metrics == report.results[0].metrics
    assert any(
        "1 of" in line and "'x1' for query bio-q01; they are left out" in line for line in again.results[0].warnings
    )
    assert again.results[0].record.notes["tried_engine:my_search"]["unknown_ids"] == 1
