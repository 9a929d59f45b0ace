"""Texts that expanders wrote leave r2med as the benchmark's files, and come back as they were."""

from __future__ import annotations

import json

import pytest

import r2med
from r2med.cli.run import write_results
from r2med.data.loader import load
from r2med.exchange.export import Target, export
from r2med.llm.cards import add_model
from r2med.llm.scripted import scripted
from r2med.runs.ledger import Ledger

TASK = "sample/Biology"


@pytest.fixture(autouse=True)
def writer():
    """A model whose passage depends on the question, and that refuses every fourth one."""

    def answer(request):
        question = request.messages[-1].content
        return "" if len(question) % 4 == 0 else f"A passage — on {question[-80:]}"

    add_model(scripted(answer, "writer"))


def _export(system, folder):
    with Ledger() as ledger:
        return export(ledger, [system], "hydoc", Target(folder))


def test_exported_texts_give_the_same_lists_when_they_are_replayed(tmp_path):
    r2med.evaluate("hyde(writer) >> bm25", TASK)
    (file,) = _export("hyde(writer) >> bm25", tmp_path)
    assert file == tmp_path / "Biology" / "hyde" / "scripted-writer" / "query_with_hydoc.jsonl"
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    queries = dict(load(TASK).collection.queries)
    assert rows
    assert all(queries[row["id"]] == row["text"] and row["hy_doc"] for row in rows)

    first = r2med.evaluate("hyde(writer) >> bm25", TASK).per_query().sort("query")
    again = r2med.evaluate(f"replay({file}, method=hyde) >> bm25", TASK).per_query().sort("query")
    written = {row["id"] for row in rows}
    pairs = zip(first.rows(named=True), again.rows(named=True), strict=True)
    compared = [(one["nDCG@10"], other["nDCG@10"]) for one, other in pairs if one["query"] in written]
    assert len(compared) == len(rows)
    assert all(one == other for one, other in compared)


def test_each_method_and_model_has_a_file_of_its_own(tmp_path):
    add_model(scripted(lambda request: "Another passage", "another"))
    system = "query2doc(writer) >> hyde(another) >> bm25"
    r2med.evaluate(system, TASK)
    files = {file.parent.relative_to(tmp_path / "Biology").as_posix(): file for file in _export(system, tmp_path)}
    assert set(files) == {"query2doc/scripted-writer", "hyde/scripted-another"}
    for name, opening in (("query2doc/scripted-writer", "A passage"), ("hyde/scripted-another", "Another passage")):
        rows = [json.loads(line) for line in files[name].read_text("utf-8").splitlines()]
        assert rows
        assert all(row["hy_doc"].startswith(opening) for row in rows)


def test_results_in_a_folder_include_what_was_written(tmp_path):
    write_results(r2med.evaluate(["hyde(writer) >> bm25", "bm25"], TASK), tmp_path)
    (file,) = (tmp_path / "generations").glob("*/query_with_hydoc.jsonl")
    assert file.parent.name.startswith("sample-Biology.hyde-writer-bm25.")


def test_a_run_without_expanders_has_no_texts_to_export(tmp_path):
    r2med.evaluate("bm25", TASK)
    with pytest.raises(r2med.R2medError, match="no stage of it writes texts; nothing was written"):
        _export("bm25", tmp_path)
