"""Loading: every layout gives the same data, oddities are folded, and what is handed over cannot leak the gold."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from folders import LAYOUTS, SMALL, Content, json_lines, put, write_beir, write_nano, write_r2med
from hypothesis import given, settings
from hypothesis import strategies as st

import r2med
from r2med.data.loader import load
from r2med.data.tasks import resolve, task
from r2med.errors import DataError, R2medError
from r2med.pipeline.evaluate import Options
from r2med.pipeline.plan import plan
from r2med.pipeline.system import System

identifiers = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\t\n\r\x0b\x0c "), min_size=1)
bodies = st.text(st.characters(blacklist_categories=["Cs"]), max_size=40)


@st.composite
def contents(draw):
    documents = draw(st.lists(identifiers, min_size=1, max_size=6, unique=True))
    queries = draw(st.lists(identifiers, min_size=1, max_size=4, unique=True))
    pairs = draw(st.lists(st.tuples(st.sampled_from(queries), st.sampled_from(documents)), unique=True, max_size=8))
    grades = [(query, document, draw(st.integers(-1, 3))) for query, document in pairs if query != queries[0]]
    asked = bodies.filter(lambda text: text.strip())
    return Content(
        documents=[(name, draw(bodies), draw(bodies)) for name in documents],
        queries=[(name, draw(asked)) for name in queries],
        qrels=[(queries[0], documents[0], 1), *grades],
        answers=draw(st.dictionaries(st.sampled_from(queries), bodies, max_size=2)),
    )


@settings(max_examples=40, deadline=None)
@given(contents())
def test_every_layout_loads_to_the_same_content(content):
    loaded = {}
    for name, write in LAYOUTS.items():
        folder = Path(tempfile.mkdtemp())
        try:
            write(folder, content)
            loaded[name] = load(folder)
        finally:
            shutil.rmtree(folder)
    first = loaded["r2med"]
    positive = {query for query, _, grade in content.qrels if grade > 0}
    assert list(first.collection.documents) == content.joined
    assert list(first.collection.queries) == [row for row in content.queries if row[0] in positive]
    assert first.gold.answers == {query: text for query, text in content.answers.items() if query in positive}
    for query, judged in first.gold.qrels.items():
        assert judged == {document: grade for name, document, grade in content.qrels if name == query}
    assert {dataset.fingerprint for dataset in loaded.values()} == {first.fingerprint}


def test_the_fingerprint_changes_with_any_part(tmp_path):
    seen = set()
    changed = [
        SMALL,
        dataclasses.replace(SMALL, documents=[("d1", "Iron", "is carried by transferrin!"), *SMALL.documents[1:]]),
        dataclasses.replace(SMALL, documents=[("d9", "", "extra"), *SMALL.documents]),
        dataclasses.replace(SMALL, queries=[("q1", "Why?"), SMALL.queries[1]]),
        dataclasses.replace(SMALL, qrels=[("q1", "d1", 1), *SMALL.qrels[1:]]),
        dataclasses.replace(SMALL, answers={"q1": "Other."}),
    ]
    for number, content in enumerate(changed):
        write_r2med(tmp_path / str(number), content)
        seen.add(load(tmp_path / str(number)).fingerprint)
    assert len(seen) == len(changed)


def test_gold_is_not_reachable_from_the_collection(tmp_path):
    write_r2med(tmp_path, SMALL)
    rows = [{"id": "q1", "text": "why", "answer": "SECRET", "reasoning": "HIDDEN", "doc_id": "d1"}]
    put(tmp_path, "query.jsonl", json_lines([*rows, {"id": "q2", "text": "what"}]))
    dataset = load(tmp_path)
    assert dataset.gold.answers == {"q1": "SECRET"}
    assert dataset.gold.reasoning == {"q1": "HIDDEN"}
    assert "SECRET" not in repr(dataset.collection)
    assert "HIDDEN" not in repr(dataset.collection)
    assert dataset.collection.origin == tmp_path


def test_repeated_rows_are_folded_and_counted(tmp_path):
    write_r2med(tmp_path, SMALL)
    rows = [
        {"id": "d1", "text": "one"},
        {"id": "d2", "text": "two"},
        {"id": "d3", "text": "x"},
        {"id": "d4", "text": "one"},
    ]
    put(tmp_path, "corpus.jsonl", json_lines([*rows, rows[0], rows[1], rows[0]]))
    dataset = load(tmp_path)
    assert dataset.collection.documents.ids == ["d1", "d2", "d3", "d4"]
    assert dataset.warnings == (
        "corpus.jsonl: 3 rows that repeat an id with the same text, which were folded into one; the first in line 5",
    )
    put(tmp_path, "corpus.jsonl", json_lines(rows))
    assert load(tmp_path).fingerprint == dataset.fingerprint


def test_ids_written_as_numbers_meet_ids_written_as_text(tmp_path):
    put(tmp_path, "corpus.jsonl", json_lines([{"id": 12, "text": "a"}, {"id": "13", "text": "b"}]))
    put(tmp_path, "query.jsonl", json_lines([{"id": 7, "text": "q"}]))
    put(tmp_path, "qrels.tsv", b"7\t12\t1\n7\t13\t2\n")
    dataset = load(tmp_path)
    assert dataset.gold.qrels == {"7": {"12": 1, "13": 2}}
    assert any("number 12" in warning for warning in dataset.warnings)


def test_bom_and_windows_line_ends_are_accepted(tmp_path):
    write_r2med(tmp_path, SMALL)
    plain = load(tmp_path)
    for name in ("corpus.jsonl", "query.jsonl", "qrels.jsonl"):
        put(tmp_path, name, b"\xef\xbb\xbf" + (tmp_path / name).read_bytes().replace(b"\n", b"\r\n"))
    dataset = load(tmp_path)
    assert dataset.fingerprint == plain.fingerprint
    assert [sentence.partition(": ")[2] for sentence in dataset.warnings] == [
        "starts with a byte order mark, which was skipped"
    ] * 3
    (tmp_path / "qrels.jsonl").unlink()
    put(tmp_path, "qrels.txt", b"\xef\xbb\xbfq1 0 d1 2\r\nq2 0 d2 1\r\n\r\nq2 0 d3 0")
    assert load(tmp_path).fingerprint == plain.fingerprint


def test_queries_without_a_relevant_document_are_left_out(tmp_path):
    content = dataclasses.replace(
        SMALL, queries=[*SMALL.queries, ("q3", "unjudged")], qrels=[("q1", "d1", 1), ("q2", "d2", 0)]
    )
    write_r2med(tmp_path, content)
    dataset = load(tmp_path)
    assert dataset.collection.queries.ids == ["q1"]
    assert set(dataset.gold.qrels) == {"q1"}
    assert dataset.warnings == (
        "query.jsonl: 2 queries without a relevant document, which were left out; the first in line 2",
    )


def test_beir_splits_are_chosen_by_name(tmp_path):
    write_beir(tmp_path, SMALL)
    put(tmp_path, "qrels/dev.tsv", b"query-id\tcorpus-id\tscore\nq1\td3\t1\n")
    assert load(tmp_path).gold.qrels["q1"] == {"d1": 2}
    assert load(tmp_path, split="dev").gold.qrels == {"q1": {"d3": 1}}
    assert load(f"{tmp_path}/dev").name == f"{tmp_path}/dev"
    with pytest.raises(DataError, match="no qrels for the split 'train'; splits here: dev, test"):
        load(tmp_path, split="train")


def test_every_way_to_evaluate_takes_the_split_that_was_asked_for(tmp_path):
    write_beir(tmp_path, SMALL)
    put(tmp_path, "qrels/dev.tsv", b"query-id\tcorpus-id\tscore\nq1\td3\t1\n")
    (whole,) = resolve([tmp_path])
    for source in (tmp_path, str(tmp_path), whole, f"{tmp_path}/dev", load(tmp_path, split="dev")):
        report = r2med.evaluate("bm25", source, Options(split="dev"))
        assert [(result.task, result.queries) for result in report.results] == [(f"{tmp_path}/dev", ("q1",))]
    assert [each.tasks[0].task for each in plan([System.parse("bm25")], [str(tmp_path)], split="dev")] == [
        f"{tmp_path}/dev"
    ]
    for source in (tmp_path, whole):
        with pytest.raises(R2medError, match="no qrels for the split 'nonsense'; splits here: dev, test"):
            r2med.evaluate("bm25", source, Options(split="nonsense"))
    with pytest.raises(R2medError, match="splits here: dev, test"):
        plan([System.parse("bm25")], [str(tmp_path)], split="nonsense")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("sample/Biology", "sample/Biology has no split 'dev': only folders have splits"),
        ("{folder}/test", "is the split 'test' and cannot be read as 'dev'"),
        (load("sample/Biology"), "sample/Biology was loaded with the split 'test'; load it with 'dev'"),
        (task("sample/Biology"), "sample/Biology has no split 'dev'"),
    ],
    ids=["name", "path of a split", "dataset", "task"],
)
def test_a_split_that_cannot_be_taken_is_an_error(tmp_path, source, said):
    write_beir(tmp_path, SMALL)
    source = source.format(folder=tmp_path) if isinstance(source, str) else source
    with pytest.raises(R2medError, match=said):
        r2med.evaluate("bm25", source, Options(split="dev"))


def test_a_split_asked_of_judgements_without_splits(tmp_path):
    write_r2med(tmp_path, SMALL)
    with pytest.raises(DataError, match=r"no qrels for the split 'dev'; qrels\.jsonl has no splits"):
        load(tmp_path, split="dev")


def test_a_split_of_a_folder_of_folders_is_that_of_each(tmp_path):
    for name in ("one", "two"):
        write_beir(tmp_path / name, SMALL)
        write_beir(tmp_path / name, SMALL, split="dev")
    assert [each.name for each in resolve([tmp_path], split="dev")] == [f"{tmp_path}/one/dev", f"{tmp_path}/two/dev"]


def test_a_split_that_was_not_asked_for_is_never_taken(tmp_path):
    write_beir(tmp_path, SMALL, split="train")
    with pytest.raises(DataError, match="no qrels for the split 'test'; splits here: train"):
        load(tmp_path)


def test_a_header_says_which_column_is_which(tmp_path):
    write_beir(tmp_path, SMALL)
    put(tmp_path, "qrels/test.tsv", b"score\tcorpus-id\tquery-id\n2\td1\tq1\n1\td2\tq2\n0\td3\tq2\n")
    assert load(tmp_path).gold.qrels == {"q1": {"d1": 2}, "q2": {"d2": 1, "d3": 0}}


def test_judgements_written_as_json_under_the_name_of_a_text_file(tmp_path):
    write_r2med(tmp_path, SMALL)
    expected = load(tmp_path).fingerprint
    (tmp_path / "qrels.jsonl").rename(tmp_path / "qrels.txt")
    assert load(tmp_path).fingerprint == expected


def test_a_folder_of_nano_shape_with_one_split(tmp_path):
    write_nano(tmp_path, SMALL)
    dataset = load(tmp_path)
    assert dataset.gold.qrels == {"q1": {"d1": 1}, "q2": {"d2": 1}}
    assert list(dataset.collection.documents) == SMALL.joined


def test_a_folder_of_nano_shape_with_several_splits_stands_for_several_tasks(tmp_path):
    write_nano(tmp_path, SMALL)
    other = dataclasses.replace(SMALL, queries=[("q1", "another"), ("q2", "one")])
    write_nano(tmp_path, other, "NanoR2MEDPMCClinical")
    found = resolve([tmp_path])
    assert [(each.base, each.family, each.group) for each in found] == [
        ("Biology", "qa-reference", "custom-nano"),
        ("PMC-Clinical", "clinical-case", "custom-nano"),
    ]
    assert [load(each).collection.queries.texts[0] for each in found] == [SMALL.queries[0][1], "another"]
    assert [load(each.name).fingerprint for each in found] == [load(each).fingerprint for each in found]
    with pytest.raises(DataError, match="stands for 2 tasks"):
        load(tmp_path)


def test_a_missing_piece_of_a_parquet_file_is_noticed(tmp_path):
    LAYOUTS["configs"](tmp_path, SMALL)
    (tmp_path / "corpus/corpus-00001-of-00002.parquet").unlink()
    with pytest.raises(DataError, match="documents"):
        load(tmp_path)


def test_a_folder_of_folders_stands_for_all_of_them(tmp_path):
    for name in ("Biology", "mine"):
        write_r2med(tmp_path / name, SMALL)
    assert [each.base for each in resolve([tmp_path])] == ["Biology", "mine"]


@pytest.mark.parametrize("base", [each.base for each in resolve(["sample"])])
def test_the_bundled_sample_loads_without_a_warning(base):
    dataset = load(f"sample/{base}")
    facts = task(f"sample/{base}")
    assert dataset.warnings == ()
    assert len(dataset.collection.documents) == facts.documents
    assert len(dataset.collection.queries) == facts.queries
    assert set(dataset.gold.answers) == set(dataset.collection.queries.ids) == set(dataset.gold.reasoning)


@pytest.mark.parametrize(
    ("name", "documents", "queries", "judgements"), [("scifact", 5183, 300, 339), ("medline", 1033, 30, 696)]
)
def test_real_collections_load(collections, name, documents, queries, judgements):
    dataset = load(collections / name)
    assert len(dataset.collection.documents) == documents
    assert len(dataset.collection.queries) == queries
    assert sum(map(len, dataset.gold.qrels.values())) == judgements
    assert dataset.warnings == ()


def test_importing_the_package_loads_nothing_heavy():
    code = (
        "import sys, r2med.data, r2med.data.tasks; "
        "sys.exit(bool({'polars', 'huggingface_hub', 'numpy', 'rich'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
