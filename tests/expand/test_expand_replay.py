"""Texts that were written before: beside the data, on the hub, in files of one's own; and the oracle."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from expanding import QUERIES, tiny, with_texts
from hypothesis import given
from hypothesis import strategies as st

from hubserver import HubServer, run_python
from r2med import evaluate
from r2med.data.dataset import Dataset, Gold
from r2med.data.loader import load
from r2med.data.tasks import SAMPLE, registry, task
from r2med.errors import DataError, R2medError, SpecError
from r2med.expand.methods import OracleAnswer
from r2med.expand.replay import HYDOC, Replay, published_task, read_written
from r2med.pipeline.evaluate import run_key
from r2med.pipeline.system import System
from r2med.retrieve.bm25 import BM25
from r2med.runs.ledger import Ledger

FULL = [name for name in registry() if name.startswith("sample/")]


def rows(*texts: tuple[str, object], **more: object) -> bytes:
    return b"".join(json.dumps({"id": query, "hy_doc": text, **more}).encode() + b"\n" for query, text in texts)


def published(folder: Path, method: str = "hyde", llm: str = "gpt4", content: bytes | None = None) -> Path:
    file = folder / method / llm / HYDOC
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(rows(("q1", "Scurvy."), ("q2", "Uric acid.")) if content is None else content)
    return file


def texts(stage: Replay, context, collection=None) -> list[list[str]]:
    expanded = stage.expand(collection or tiny(), context)
    return [[each.text for each in row] for row in expanded.generations]


@pytest.mark.parametrize(
    ("method", "joined"), [("hyde", "{d}"), ("query2doc", "{q} {q} {d}"), ("lamer", "{q} {d}"), ("search-o1", "{d}")]
)
def test_a_published_file_joins_as_its_method_does(method, joined, tmp_path, context):
    file = published(tmp_path, method)
    expected = [joined.format(q=q, d=d) for q, d in zip(QUERIES.values(), ("Scurvy.", "Uric acid."), strict=True)]
    run = BM25().retrieve(with_texts(tiny(), expected), context)
    # By the folder it lies in, or by word.
    assert (Replay(str(file)) >> BM25()).run(tiny(), context) == run
    elsewhere = tmp_path / "mine.jsonl"
    shutil.copy(file, elsewhere)
    assert (Replay(str(elsewhere), method=method) >> BM25()).run(tiny(), context) == run
    generation = Replay(str(file)).expand(tiny(), context).generations[0][0]
    assert (generation.method, generation.model) == (method, "gpt4")


def test_beside_the_data_of_a_folder(tmp_path, context):
    published(tmp_path)
    published(tmp_path, "lamer", "gpt4", rows(("q1", "a"), ("q2", "b")))
    folder = replace(tiny(), origin=tmp_path, task=replace(task("sample/Biology"), folder=tmp_path))
    assert texts(Replay(), context, folder) == [["Scurvy."], ["Uric acid."]]
    assert texts(Replay(method="lamer", llm="gpt4"), context, folder) == [["a"], ["b"]]
    before = Replay().inputs(folder)
    published(tmp_path, content=rows(("q1", "Rickets.")))
    assert Replay().inputs(folder) != before
    dataset = Dataset(folder, Gold({"q1": {"scurvy": 1}}))
    keys = [run_key(Replay() >> BM25(), dataset)]
    published(tmp_path, content=rows(("q1", "Gout.")))
    assert run_key(Replay() >> BM25(), dataset) not in keys
    published(tmp_path, "hyde", "qwen-7b")
    with pytest.raises(DataError, match=r"has hyde of several models; say llm=... with one of gpt4, qwen-7b"):
        Replay().expand(folder, context)
    with pytest.raises(DataError, match=r"has no hyde of 'gpt5'; say llm=... with one of gpt4, qwen-7b"):
        Replay(llm="gpt5").expand(folder, context)
    with pytest.raises(DataError, match=r"has no generations of query2doc \(METHOD.*\); it has hyde, lamer"):
        Replay(method="query2doc").expand(folder, context)
    with pytest.raises(DataError, match="was not read from a folder"):
        Replay().expand(replace(folder, origin=None), context)


def test_a_query_that_the_file_lacks_is_counted_and_another_query_under_its_id_is_said(tmp_path, context):
    file = published(tmp_path, content=rows(("q1", "Scurvy."), ("q9", "x"), text="another question"))
    Replay(str(file)).expand(tiny(), context)
    assert context.notes.incomplete == {"q2": f"not in {HYDOC}"}
    assert context.notes.warnings == [f"{file}: 1 of 2 texts were written for other queries of the same id"]
    file.write_bytes(rows(("q8", "x")))
    with pytest.raises(DataError, match="has no text for any query of Biology: it has q8, the task has q1"):
        Replay(str(file)).expand(tiny(), context)


def test_traces_in_published_texts_are_not_searched_with(tmp_path, context):
    file = published(tmp_path, content=rows(("q1", "<think>hm</think>Scurvy."), ("q2", "<think>it goes on")))
    assert texts(Replay(str(file)), context) == [["Scurvy."], [""]]
    assert context.notes.incomplete == {"q2": "the reasoning never ended"}


def test_several_texts_for_a_query(tmp_path, context):
    file = published(tmp_path, content=rows(("q1", ["a", "b"]), ("q2", "c"), ("q2", "c")))
    assert texts(Replay(str(file)), context) == [["a", "b"], ["c"]]


def test_a_table_is_the_whole_query_unless_join_says_otherwise(tmp_path, context):
    file = tmp_path / "t.tsv"
    file.write_text('qid\ttext\nq1\t"He said ""scurvy""."\nq2\tUric acid\n', encoding="utf-8")
    assert texts(Replay(str(file)), context) == [['He said "scurvy".'], ["Uric acid"]]
    generation = Replay(str(file)).expand(tiny(), context).generations[0][0]
    assert (generation.method, generation.join) == ("replay", "replace")
    run = (Replay(str(file), join="concat") >> BM25()).run(tiny(), context)
    joined = [f'{QUERIES["q1"]} He said "scurvy".', f"{QUERIES['q2']} Uric acid"]
    assert run == BM25().retrieve(with_texts(tiny(), joined), context)
    with pytest.raises(SpecError, match="has no method"):
        Replay(str(file), method="hyde")


@given(st.dictionaries(st.sampled_from(["q1", "q2", "3", "x y"]), st.text(st.characters(exclude_categories=["Cs"]))))
def test_whatever_csv_writes_is_read_back(tmp_path_factory, written):
    import csv

    file = tmp_path_factory.mktemp("t") / "t.tsv"
    with file.open("w", encoding="utf-8", newline="") as stream:
        # What csv itself leaves ambiguous is quoted, as every spreadsheet does.
        csv.writer(stream, delimiter="\t", quoting=csv.QUOTE_ALL).writerows(written.items())
    if written:
        found = read_written(file, {"q1", "q2"}).texts
        # Line ends inside a text are those of the file.
        assert {k: v[0].splitlines() for k, v in found.items()} == {k: v.splitlines() for k, v in written.items()}


def test_zipped_files(tmp_path, context):
    file = tmp_path / "t.tsv.gz"
    file.write_bytes(gzip.compress(b"q1\ta\nq2\tb\n"))
    assert texts(Replay(str(file)), context) == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.tsv", b"q1\ta\nq2\n", ":2: expected two columns, an id and a text with a tab between, found 1"),
        ("t.tsv", b"q1\ta\tb\n", ":1: expected two columns, an id and a text with a tab between, found 3"),
        ("t.tsv", b"q1\ta\nq1\tb\n", ":2: repeats the id 'q1' with another text"),
        ("t.tsv", b'q1\t"open\nq2\tb\n', ":1: a quote opens here and takes in the rows below; quote the whole text"),
        ("t.tsv", b"q1\ta\nq2\t\xff\n", ":2: not UTF-8"),
        ("t.tsv", b"\xff\xfeq\x001\x00", ":1: the file is UTF-16"),
        ("t.tsv", b"", ": holds no rows"),
        ("g.jsonl", b'{"id": "q1", "hy_doc": "a"}\n{"id": "q1"}\n', ":2: no hy_doc; the row has id"),
        ("g.jsonl", b'{"query": "q1"}\n', ":1: no id and no hy_doc; the row has query"),
        ("g.jsonl", b'{"id": "q1", "hy_doc": 5}\n', ":1: hy_doc must be a text or a list of texts, not the number 5"),
        ("g.jsonl", b'{"id": "q1", "hy_doc": "a"}\nq2\tb\n', ":2: not JSON"),
        ("g.jsonl", b'{"id": "q1", "hy_doc": "a"}\n{"id": "q1", "hy_doc": "b"}\n', ":2: repeats the id 'q1'"),
        ("g.jsonl", b"[1]\n[2]\n", ":1: expected a JSON object, found a list (and 1 more)"),
        ("g.csv", b"q1,a\n", "generations are read from"),
        ("missing.tsv", None, "no such file"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line_with_its_place(name, content, said, tmp_path, context):
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(DataError, match=re.escape(said)) as caught:
        Replay(str(file)).expand(tiny(), context)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.tsv"])
def test_the_hash_is_of_the_bytes_that_were_read(name, tmp_path):
    file, content = tmp_path / name, b"q1\tscurvy\n" if name.endswith(".tsv") else rows(("q1", "Scurvy."))
    file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    before = hashlib.sha256(file.read_bytes()).hexdigest()
    written = read_written(file, ["q1"])
    file.write_bytes(b"changed since")
    assert written.content == before[:32]


def test_the_key_follows_the_content_of_a_named_file(tmp_path):
    file = published(tmp_path)
    before = Replay(str(file)).key()
    file.write_bytes(rows(("q1", "Rickets.")))
    assert Replay(str(file)).key() != before
    file.unlink()
    with pytest.raises(DataError, match="cannot be read"):
        Replay(str(file)).key()


@pytest.mark.parametrize(
    "spec",
    ["replay", "replay(hub, method=hyde, llm=gpt4)", 'replay("a b.tsv", join=concat)', "oracle-answer(join=mean)"],
)
def test_specs_print_as_they_are_written(spec):
    system = System.parse(f"{spec} >> bm25")
    assert str(system) == f"{spec} >> bm25"
    assert System.parse(str(system)) == system


def test_wrong_arguments():
    with pytest.raises(SpecError, match="unknown method 'hide'; did you mean hyde"):
        System.parse("replay(method=hide) >> bm25")
    with pytest.raises(SpecError, match="join must be"):
        System.parse("replay(join=upside) >> bm25")


ON_BIOLOGY = """
import json
from r2med import evaluate
report = evaluate({systems}, "Biology")
print(json.dumps({{
    "scores": [result.metrics["nDCG@10"] for result in report.results],
    "failed": [failure.message for failure in report.failures],
    "incomplete": [len(result.incomplete) for result in report.results],
}}))
"""


def test_the_authors_generations_come_from_the_hub_once(tmp_path):
    sample, biology = SAMPLE / "Biology", task("Biology")
    files = {path.relative_to(sample).as_posix(): path.read_bytes() for path in sample.rglob("*.jsonl")}
    files[f"hyde/gpt4/{HYDOC}"] = files.pop(f"hyde/handwritten/{HYDOC}")
    files[f"lamer/gpt4/{HYDOC}"] = b'{"id": "bio-q01", "hy_doc": "tickle"}\n'
    beside = evaluate("replay >> bm25", "sample/Biology").results[0].metrics["nDCG@10"]
    with HubServer() as hub:
        hub.add(biology.hub, files, commit=biology.revision)

        def on_biology(*systems: str) -> dict[str, list]:
            done = run_python(ON_BIOLOGY.format(systems=list(systems)), hub.environment(tmp_path))
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)

        found = on_biology("replay(hub, method=hyde, llm=gpt4) >> bm25")
        assert found == {"scores": [beside], "failed": [], "incomplete": [0]}
        assert not any("lamer" in request for request in hub.requests)
        hub.requests.clear()
        # The first is on this machine already, the second is fetched, the third does not exist.
        found = on_biology(
            "replay(llm=gpt4) >> bm25-classic", "replay(hub, method=lamer) >> bm25", "replay(llm=x) >> bm25"
        )
        assert found["incomplete"] == [0, 8]
        assert found["failed"] == [
            f"R2MED/Biology at {biology.revision} has no hyde of 'x'; say llm=... with one of gpt4"
        ]
        assert any(f"lamer/gpt4/{HYDOC}" in request for request in hub.requests)
        assert not any(f"hyde/gpt4/{HYDOC}" in request for request in hub.requests)


def test_a_nano_task_has_the_generations_of_the_full_one():
    assert published_task(task("nano/PMC-Clinical")) == task("PMC-Clinical")
    pinned = replace(task("Biology"), revision="another")
    assert published_task(pinned) == pinned


def test_a_folder_that_is_no_task_of_the_benchmark_has_nothing_on_the_hub(context):
    own = replace(tiny(), task=replace(task("Biology"), name="mine", base="mine", group="custom", hub=""))
    with pytest.raises(DataError, match="mine is not a task of the benchmark"):
        Replay("hub").expand(own, context)


@pytest.mark.parametrize(
    ("file", "published_score"), [("query2doc-gpt-4.1.tsv", 0.7123), ("lamer-gpt-4.1.tsv", 0.7253)]
)
def test_published_expansions_of_scifact_score_as_published(file, published_score, collections):
    scifact = collections / "scifact"
    system = Replay(str(scifact / "expansions" / file)) >> System.parse("bm25-classic")
    result = evaluate(system, scifact).results[0]
    assert result.metrics["nDCG@10"] == pytest.approx(published_score, abs=0.004)
    assert not result.incomplete


def test_on_the_sample_hypothetical_documents_beat_the_query_and_the_answer_beats_both():
    report = evaluate(["bm25", "replay >> bm25", "oracle-answer >> bm25"], "sample")
    assert not report.failures
    plain, replayed, oracle = (report.average(system, "sample", "nDCG@10") for system in report.systems)
    assert replayed > plain + 0.3
    assert oracle > replayed
    for result in report.results:
        assert not result.incomplete
        assert result.oracle == ("oracle" in result.system)
    for name in FULL:
        scores = [report.result(system, name).metrics["nDCG@10"] for system in report.systems]
        assert scores[1] > scores[0] + 0.1


def test_the_oracle_says_what_it_lacks(context):
    dataset = Dataset(tiny(), Gold({"q1": {"scurvy": 1}}, answers={"q1": " Scurvy ", "q2": " "}))
    system = OracleAnswer() >> BM25()
    run = system.work(dataset.collection, context, dataset.gold).ranked
    assert run == BM25().retrieve(with_texts(tiny(), ["Scurvy", QUERIES["q2"]]), context)
    assert context.notes.incomplete == {"q2": "the task has no answer to it"}
    assert system.oracle
    with pytest.raises(R2medError, match=r"Biology has no gold answers, which oracle-answer searches with"):
        system.work(dataset.collection, replace(context, memo={}), Gold({"q1": {"scurvy": 1}}))
    with pytest.raises(SpecError, match="gold answers"):
        system.run(dataset.collection, replace(context, memo={}))


def test_the_sample_is_read_as_it_is_bundled():
    for name in FULL:
        collection = load(name).collection
        written = read_written(Replay().locate(collection), collection.queries.ids)
        assert set(written.texts) == set(collection.queries.ids)
        assert written.queries == dict(collection.queries)


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".tsv"])
@pytest.mark.parametrize("restored", [False, True])
def test_a_file_that_is_replaced_before_it_is_read_gives_no_result(ending, restored, tmp_path, monkeypatch):
    """The key of the run is of one file, the texts would be of another: nothing may be kept under that key."""
    first, second = (
        (b"q1\tScurvy.\nq2\tGout.\n", b"q1\tGout.\nq2\tScurvy.\n")
        if ending == ".tsv"
        else (rows(("q1", "Scurvy."), ("q2", "Gout.")), rows(("q1", "Gout."), ("q2", "Scurvy.")))
    )
    if ending.endswith(".gz"):
        first, second = gzip.compress(first), gzip.compress(second)
    file = tmp_path / f"mine{ending}"
    file.write_bytes(first)
    dataset = Dataset(tiny(), Gold({"q1": {"d1": 1}, "q2": {"d2": 1}}))
    system = Replay(str(file)) >> BM25()

    def swapped(path, known):
        file.write_bytes(second)
        written = read_written(path, known)
        if restored:
            file.write_bytes(first)
        return written

    with monkeypatch.context() as patch:
        patch.setattr("r2med.expand.replay.read_written", swapped)
        report = evaluate(system, dataset)
    assert [failure.message for failure in report.failures] == [
        f"{file}: was replaced while the run was made; run it again"
    ]
    with Ledger() as ledger:
        assert ledger.entries() == []
    file.write_bytes(first)
    assert not evaluate(system, dataset).failures
    file.write_bytes(second)
    again = evaluate(system, dataset)
    assert not again.failures, "between two runs a file may change"
    assert not again.results[0].cached
    with Ledger() as ledger:
        assert len(ledger.entries()) == 2
