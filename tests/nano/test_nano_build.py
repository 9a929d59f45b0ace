"""Nano sets as files: what is written, that it is the same every time, and that nothing is left behind."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys

import orjson
import polars
import pytest
from sources import content, folder, tree

from data.folders import LAYOUTS, Content, write_beir, write_r2med
from r2med import evaluate
from r2med.data.candidates import candidates, offered_kinds
from r2med.data.loader import load
from r2med.data.tasks import resolve
from r2med.errors import DataError, R2medError
from r2med.nano import builder as nano_set_builder
from r2med.nano.builder import build
from r2med.nano.recipe import Recipe
from r2med.pipeline.system import System

SMALL = Recipe(documents=25, dense="bm25-classic")


def test_the_layout_is_the_published_one(tmp_path):
    built = build(folder(tmp_path / "Biology"), tmp_path / "out", SMALL)
    names = {name.rpartition("/")[0] for name in tree(built.folder)}
    assert names == {"", "corpus", "queries", "qrels", "bm25", "bm25_classic", "reranking_hybrid"}

    def table(config):
        return polars.read_parquet(built.folder / config / "NanoR2MEDBiology-00000-of-00001.parquet")

    assert table("corpus").schema == {"_id": polars.String, "text": polars.String}
    assert table("queries").schema == {"_id": polars.String, "text": polars.String}
    assert table("qrels").schema == {"query-id": polars.String, "corpus-id": polars.String}
    for config in ("bm25", "bm25_classic", "reranking_hybrid"):
        assert table(config).schema == {"query-id": polars.String, "corpus-ids": polars.List(polars.String)}
    assert [len(table(config)) for config in ("corpus", "queries", "qrels", "bm25")] == [25, 6, 12, 6]


def test_the_loader_reads_it_back_with_its_candidates(tmp_path):
    source = folder(tmp_path / "mine")
    built = build(source, tmp_path / "out", SMALL)
    dataset = load(built.folder)
    assert dataset.warnings == ()
    assert dataset.fingerprint == built.manifest["splits"]["NanoMine"]["fingerprint"]
    assert offered_kinds(dataset.collection) == ["bm25", "dense", "hybrid"]
    for kind, spec in (("bm25", "bm25(depth=500)"), ("dense", "bm25-classic(depth=500)")):
        stored = candidates(dataset.collection, kind)
        found = evaluate(f"candidates({kind})", built.folder).results[0].metrics
        fresh = evaluate(spec, built.folder).results[0].metrics
        assert found == pytest.approx(fresh)
        assert all(len(ranking.documents) <= 25 for _, ranking in stored)


def test_a_set_is_a_group_of_its_own_and_keeps_the_words_of_its_task(tmp_path):
    source = folder(tmp_path / "letters")
    (source / "task.toml").write_text('noun = "Referral letter"\nfamily = "clinical-evidence"\n')
    build([source, "sample/Biology"], tmp_path / "out", Recipe(documents=30))
    tasks = {task.split: task for task in resolve([tmp_path / "out"])}
    assert list(tasks) == ["NanoLetters", "NanoSampleBiology"]
    letters, biology = tasks.values()
    assert (letters.base, letters.noun, letters.family) == ("letters", "Referral letter", "clinical-evidence")
    assert (biology.base, biology.noun, biology.documents) == ("Biology", "Biology post", 30)
    report = evaluate("bm25", [tmp_path / "out", source])
    assert report.groups == ["custom-nano", "custom"]
    assert report.as_dict()["averages"] == {}
    # In no table of results do a nano set and a whole collection stand side by side.
    first, second = str(report).split("own data")
    assert "NanoLetters" in first
    assert "NanoLetters" not in second


def test_a_copy_of_the_published_set_is_no_whole_collection(tmp_path):
    build(folder(tmp_path / "Biology"), tmp_path / "out", SMALL)
    (tmp_path / "out/nano.json").unlink()
    assert resolve([tmp_path / "out"])[0].group == "custom-nano"


def test_the_same_source_gives_the_same_bytes(tmp_path):
    """Whatever its layout, the order of its judgements, its place, and the process that builds."""
    written = content()
    for layout in ("r2med", "parquet", "r2med-trec"):
        shuffled = dataclasses.replace(written, qrels=written.qrels[:: 1 if layout == "r2med" else -1])
        LAYOUTS[layout](tmp_path / layout / "mine", shuffled)
    recipe = Recipe(documents=25, queries=4, policy="hard", hard_systems=("bm25", "bm25-classic"), dense="bm25-classic")
    first = tree(build(tmp_path / "r2med/mine", tmp_path / "out1", recipe).folder)
    assert tree(build(tmp_path / "parquet/mine", tmp_path / "out2", recipe).folder) == first
    code = (
        "from r2med.nano.builder import build; from r2med.nano.recipe import Recipe; import sys\n"
        f"build(sys.argv[1], sys.argv[2], {recipe!r})"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "R2MED_HOME": str(tmp_path / "other-home")}
    command = [sys.executable, "-c", code, str(tmp_path / "r2med-trec/mine"), str(tmp_path / "out3")]
    subprocess.run(command, check=True, env=environment, timeout=120)
    assert tree(tmp_path / "out3") == first


@pytest.mark.parametrize("recipe", [Recipe(documents=20), Recipe(documents=20, policy="random", seed=3)])
def test_policies_without_a_search_give_the_same_bytes_too(tmp_path, recipe):
    source = folder(tmp_path / "mine")
    both = [tree(build(source, tmp_path / out, recipe).folder) for out in ("one", "two")]
    assert both[0] == both[1]


def test_the_manifest_says_everything(tmp_path):
    source = folder(tmp_path / "mine")
    recipe = Recipe(documents=25, queries=4, policy="random", seed=9, dense="bm25-classic")
    build(source, tmp_path / "out", recipe)
    found = json.loads((tmp_path / "out/nano.json").read_text())
    assert found["recipe"] == {
        "documents": 25, "queries": 4, "policy": "random", "seed": 9, "drop_unjudged": False,
    }  # fmt: skip
    assert found["r2med"]
    entry = found["splits"]["NanoMine"]
    assert entry["source"]["fingerprint"] == load(source).fingerprint
    assert entry["counts"]["source_documents"] == 40
    assert found["candidates"]["dense"]["system"] == "bm25-classic(depth=500)"
    assert (found["candidates"]["hybrid"]["k"], found["candidates"]["hybrid"]["depth"]) == (100, 100)
    assert str(tmp_path) not in (tmp_path / "out/nano.json").read_text() + (tmp_path / "out/README.md").read_text()


def test_the_card_names_every_file(tmp_path):
    build([folder(tmp_path / "a"), folder(tmp_path / "b")], tmp_path / "out", SMALL)
    text = (tmp_path / "out/README.md").read_text()
    front = text.split("---")[1]
    named = set(re.findall(r"path: (\S+)", front))
    assert named == {name for name in tree(tmp_path / "out") if name.endswith(".parquet")}
    assert "| NanoA | a | 6 | 25 | 12 |" in text


def test_without_a_dense_system_the_pool_is_of_bm25_alone(tmp_path):
    built = build(folder(tmp_path / "mine"), tmp_path / "out", Recipe(documents=25))
    collection = load(built.folder).collection
    assert offered_kinds(collection) == ["bm25", "hybrid"]
    assert built.manifest["candidates"]["hybrid"]["of"] == ["bm25"]
    assert "of bm25 alone" in (built.folder / "README.md").read_text()
    with pytest.raises(DataError, match="built without dense candidates; it has bm25, hybrid"):
        candidates(collection, "dense")


def test_a_query_that_finds_nothing_has_an_empty_list_and_a_safeguard(tmp_path):
    odd = Content(
        [("d1", "", "iron"), ("d2", "", "zinc")],
        [("q1", "xylophone"), ("q2", "iron")],
        [("q1", "d2", 1), ("q2", "d1", 1)],
    )
    write_r2med(tmp_path / "odd", odd)
    built = build(tmp_path / "odd", tmp_path / "out", Recipe(documents=2))
    collection = load(built.folder).collection
    assert candidates(collection, "bm25")["q1"].documents == []
    assert candidates(collection, "hybrid")["q1"].documents == ["d2"]
    assert built.manifest["splits"]["NanoOdd"]["safeguards"] == {"q1": "d2"}


def bad_no_positive(path):
    written = content()
    write_r2med(path, dataclasses.replace(written, queries=[*written.queries, ("q9", "nobody knows")]))


def bad_zero_grade(path):
    written = content()
    judged = [(query, document, 0 if query == "q2" else grade) for query, document, grade in written.qrels]
    write_r2med(path, dataclasses.replace(written, qrels=judged))


def bad_conflict(path):
    written = content()
    write_r2med(path, dataclasses.replace(written, documents=[*written.documents, ("d001", "", "another text")]))


@pytest.mark.parametrize(
    ("spoil", "recipe", "message"),
    [
        (bad_no_positive, SMALL, r"1 queries have no relevant document, the first is 'q9' .*query.jsonl:7\); remove"),
        (bad_zero_grade, SMALL, "1 queries have no relevant document, the first is 'q2'"),
        (bad_conflict, SMALL, "corpus.jsonl:41: repeats the id 'd001'"),
        (folder, Recipe(documents=41), "only 40 documents with a text of their own, 41 are asked for"),
        (folder, Recipe(documents=5), "12 relevant documents do not fit into 5"),
        (folder, Recipe(documents=25, dense="bm52"), "unknown stage 'bm52'; did you mean bm25"),
        (folder, Recipe(documents=25, dense="bm25"), "bm25 cannot be the dense system"),
        (folder, Recipe(documents=25, policy="hard", hard_systems=("rff",)), "unknown stage 'rff'"),
        (lambda path: None, SMALL, "no such folder"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(tmp_path, spoil, recipe, message):
    spoil(tmp_path / "mine")
    before = tree(tmp_path)
    with pytest.raises(R2medError, match=message) as error:
        build(tmp_path / "mine", tmp_path / "out", recipe)
    assert "\n" not in str(error.value)
    assert tree(tmp_path) == before
    assert not any(path.name.endswith("building") or path.name == "out" for path in tmp_path.iterdir())


def test_unjudged_queries_can_be_left_out(tmp_path):
    bad_no_positive(tmp_path / "mine")
    built = build(tmp_path / "mine", tmp_path / "out", Recipe(documents=25, drop_unjudged=True))
    assert built.manifest["splits"]["NanoMine"]["counts"]["queries"] == 6
    assert any("no relevant document" in sentence for sentence in built.warnings)


def test_queries_of_other_splits_are_no_hindrance(tmp_path):
    whole = content()
    parts = {"train": {"q0", "q1"}, "dev": {"q2"}, "test": {"q3", "q4", "q5"}}
    for split, queries in parts.items():
        judged = [row for row in whole.qrels if row[0] in queries]
        write_beir(tmp_path / "mine", dataclasses.replace(whole, qrels=judged), split)
    built = build(tmp_path / "mine", tmp_path / "out", SMALL)
    assert built.manifest["splits"]["NanoMine"]["counts"]["queries"] == 3
    # One that the split itself judges, and finds nothing relevant to, is still refused.
    with (tmp_path / "mine" / "qrels" / "test.tsv").open("a") as file:
        file.write("q0\td001\t0\n")
    with pytest.raises(R2medError, match="1 queries have no relevant document, the first is 'q0'"):
        build(tmp_path / "mine", tmp_path / "again", SMALL)


@pytest.mark.parametrize("kind", ["folder", "empty", "file", "link"])
def test_an_output_that_exists_is_left_alone(tmp_path, kind):
    source, out = folder(tmp_path / "mine"), tmp_path / "out"
    {
        "folder": lambda: (out.mkdir(), (out / "precious").write_text("x")),
        "empty": out.mkdir,
        "file": lambda: out.write_text("x"),
        "link": lambda: out.symlink_to("nowhere"),
    }[kind]()
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.raises(R2medError, match="out: exists already; give another --out or remove it"):
        build(source, out, SMALL)
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(R2medError, match="cannot be made: Permission denied"):
        build(folder(tmp_path / "mine"), tmp_path / "locked/out", SMALL)


def test_a_parent_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(R2medError, match=r"file/out: cannot be made"):
        build(folder(tmp_path / "mine"), tmp_path / "file/out", SMALL)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_whatever_stops_it_nothing_is_left(tmp_path, monkeypatch, error):
    source = folder(tmp_path / "mine")

    def stop(*_):
        raise error

    monkeypatch.setattr(nano_set_builder, "write_json", stop)
    with pytest.raises((KeyboardInterrupt, R2medError)) as caught:
        build(source, tmp_path / "out", SMALL)
    assert "out: cannot be written: No space left" in str(caught.value) or caught.type is KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_two_sources_of_one_name(tmp_path):
    for place in ("a", "b"):
        folder(tmp_path / place / "mine")
    with pytest.raises(R2medError, match="would both be the split NanoMine"):
        build([tmp_path / "a/mine", tmp_path / "b/mine"], tmp_path / "out", SMALL)
    with pytest.raises(R2medError, match="no source"):
        build([], tmp_path / "out", SMALL)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{", "nano.json:1: not readable as JSON"),
        (b"[]", r"nano.json: must be a table, not \[\]"),
        (orjson.dumps({"splits": {}, "format": 99}), "nano.json: format is 99: another version .* wrote this; make it"),
    ],
)
def test_a_damaged_manifest_is_one_line(tmp_path, text, message):
    built = build(folder(tmp_path / "mine"), tmp_path / "out", SMALL)
    (built.folder / "nano.json").write_bytes(text)
    with pytest.raises(DataError, match=message) as error:
        load(built.folder)
    assert "\n" not in str(error.value)


def test_a_changed_set_is_noticed_by_its_counts(tmp_path):
    built = build(folder(tmp_path / "mine"), tmp_path / "out", SMALL)
    (file,) = built.folder.glob("corpus/*.parquet")
    polars.concat([polars.read_parquet(file), polars.DataFrame({"_id": ["new"], "text": ["new"]})]).write_parquet(file)
    assert any("26 documents, where 25 are published" in sentence for sentence in load(built.folder).warnings)


def test_a_nano_set_of_scifact(tmp_path, collections):
    source = load(collections / "scifact")
    for policy in ("source-order", "hard"):
        built = build(collections / "scifact", tmp_path / policy, Recipe(documents=1000, policy=policy))
        dataset = load(built.folder)
        assert (len(dataset.collection.documents), len(dataset.collection.queries)) == (1000, 200)
        kept = dataset.collection.queries.ids
        assert dataset.gold.qrels == {query: source.gold.qrels[query] for query in kept}
    easy, hard = (
        evaluate("bm25", tmp_path / policy).results[0].metrics["nDCG@10"] for policy in ("source-order", "hard")
    )
    whole = evaluate(System.parse("bm25"), source).results[0].metrics["nDCG@10"]
    assert easy > hard > whole


def test_dense_lists_of_a_real_model(tmp_path):
    pytest.importorskip("wordllama")
    source = folder(tmp_path / "mine")
    recipe = Recipe(documents=25, dense="wordllama")
    built = build(source, tmp_path / "out", recipe)
    assert built.manifest["candidates"]["dense"]["config"] == "wordllama"
    stored = candidates(load(built.folder).collection, "dense")
    # A dense list leaves nothing out: every document has a vector.
    assert {len(ranking.documents) for _, ranking in stored} == {25}
    assert tree(build(source, tmp_path / "again", recipe).folder) == tree(built.folder)


def test_a_judgement_of_a_document_that_is_not_there_is_left_out(tmp_path):
    written = content()
    for name, qrels in (("whole", written.qrels), ("more", [*written.qrels, ("q1", "d999", 1)])):
        write_r2med(tmp_path / name / "mine", dataclasses.replace(written, qrels=qrels))
        build(tmp_path / name / "mine", tmp_path / name / "out", SMALL)
    assert tree(tmp_path / "whole" / "out") == tree(tmp_path / "more" / "out")
