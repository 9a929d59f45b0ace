"""Approximate search: exact scores, a measured loss that stands wherever the figures stand, and clear refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

import r2med
from r2med.cli.run import run_command
from r2med.encode.indexes import QUANTIZED, EngineSettings, build_index
from r2med.encode.vector_search import Similarity, search
from r2med.errors import R2medError, SpecError
from r2med.leaderboard.cli import board_command
from r2med.pipeline.system import System
from r2med.store.cache import Cache


@pytest.fixture(scope="module")
def vectors():
    random = np.random.default_rng(1)
    centres = random.standard_normal((40, 24), dtype=np.float32)
    documents = centres[random.integers(0, 40, 1500)] + random.standard_normal((1500, 24), dtype=np.float32)
    documents[7] = documents[11]  # a tie
    return documents[:60] + np.float32(0.1), documents, np.arange(1500)[::-1].copy()


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize(
    "spec",
    [
        "faiss",
        "faiss(factory=Flat)",
        'faiss(factory="IVF16,Flat", nprobe=16)',
        "usearch",
        "usearch(dtype=f16, expansion=512, connectivity=32)",
    ],
)
def test_scores_and_order_are_those_of_exact_search(vectors, spec, similarity, tmp_path):
    queries, documents, order = vectors
    how = Similarity(similarity)
    settings = EngineSettings.read(spec)
    settings.write(documents, how, tmp_path)
    hits = settings.open(documents, how, tmp_path, 5).search(queries, 10, order)
    exact = search(queries, documents, 10, order, how)
    whole = search(queries, documents, len(documents), order, how)
    for row in range(len(queries)):
        known = dict(zip(whole.places[row].tolist(), whole.scores[row].tolist(), strict=True))
        assert hits.scores[row].tolist() == [known[place] for place in hits.places[row].tolist()]
        assert len(set(hits.places[row].tolist())) == 10
    if "Flat" in spec:
        assert hits.places.tolist() == exact.places.tolist()
    else:
        assert np.mean([len(set(a) & set(b)) for a, b in zip(hits.places, exact.places, strict=True)]) > 8


def test_too_few_candidates_are_made_up_for_exactly(vectors, tmp_path):
    queries, documents, order = vectors
    settings = EngineSettings.read('faiss(factory="IVF256,Flat", nprobe=1)')
    settings.write(documents, Similarity(), tmp_path)
    hits = settings.open(documents, Similarity(), tmp_path, 1).search(queries, 100, order)
    assert hits.places.tolist() == search(queries, documents, 100, order).places.tolist()


@pytest.mark.parametrize("kind", sorted(QUANTIZED))
def test_codes_in_files_are_those_in_memory(vectors, kind, tmp_path):
    queries, documents, order = vectors
    how = Similarity()
    QUANTIZED[kind].build(documents, how, folder=tmp_path)
    stored = QUANTIZED[kind].open(documents, how, 3, tmp_path)
    built = build_index(documents, how, kind, 3)
    assert isinstance(stored.codes.codes.base, np.memmap)
    for one, other in zip(stored.search(queries, 9, order), built.search(queries, 9, order), strict=True):
        assert one.tolist() == other.tolist()


COARSE = "wordllama(depth=10, quantize=binary)"
SPECS = ("wordllama", COARSE, "wordllama(index=usearch)", f"rrf(bm25, {COARSE})")


def test_what_is_lost_stands_beside_the_figures(monkeypatch):
    ran = CliRunner().invoke(run_command, [*SPECS, "--tasks", "sample/Biology", "--json"], catch_exceptions=False)
    lost = {row["system"]: row.get("recall_lost") for row in json.loads(ran.stdout)["results"]}
    assert lost["wordllama"] is None
    assert lost[SPECS[1]] == lost[SPECS[3]]
    assert 0 < lost[SPECS[1]] < 1
    assert lost[SPECS[2]] == 0, "nothing lost is said too: the search was approximate"

    exact, coarse = (r2med.evaluate(spec, "sample/Biology").results[0] for spec in SPECS[:2])
    assert coarse.cached
    assert coarse.record.recall_lost == lost[SPECS[1]], "the ledger has it"
    assert exact.record.recall_lost is None

    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(run_command, [*SPECS, "--tasks", "sample/Biology"], catch_exceptions=False).output
    assert f"{COARSE} ≈{100 * lost[SPECS[1]]:.1f}" in shown
    assert "wordllama(index=usearch) ≈0.0" in shown
    assert "≈: so many of 100 documents of the exact lists were not found" in shown
    ranked = CliRunner().invoke(board_command, ["--group", "sample", "--format", "json"], catch_exceptions=False)
    lines = {line["name"]: line.get("recall_lost") for line in json.loads(ranked.stdout)["lines"]}
    assert {name: lines[name] for name in SPECS} == lost


def test_an_index_is_kept_and_a_damaged_one_built_again():
    first = r2med.evaluate("wordllama(index=faiss)", "sample/Biology").results[0]
    (entry,) = (Cache.default().root / "ann").iterdir()
    built = (entry / "index.bin").stat().st_mtime_ns
    again = r2med.evaluate("wordllama(index=faiss, depth=50)", "sample/Biology").results[0]
    assert (entry / "index.bin").stat().st_mtime_ns == built
    data = bytearray((entry / "index.bin").read_bytes())
    data[len(data) // 2] ^= 4
    (entry / "index.bin").write_bytes(data)
    healed = r2med.evaluate("wordllama(index=faiss)", "sample/Biology", fresh=True).results[0]
    assert healed.metrics == first.metrics
    assert again.metrics["nDCG@10"] == first.metrics["nDCG@10"]


@pytest.mark.parametrize(
    "spec",
    ["wordllama(index=faiss)", 'wordllama(index=faiss(factory="IVF16,Flat", nprobe=4))', "wordllama(index=usearch)"],
)
def test_specs_print_as_they_are_read(spec):
    assert System.parse(spec).spec == spec
    assert System.parse(spec.replace("faiss)", "faiss())")).spec == spec


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("wordllama(index=fiass)", "unknown index 'fiass'; did you mean faiss?"),
        ("wordllama(index=faiss(nlist=4))", "faiss has no option 'nlist'; it takes factory, nprobe, ef, sample"),
        ("wordllama(index=faiss(nprobe=0))", "nprobe must be a whole number of 1 or more, not 0"),
        ("wordllama(index=faiss(factory=3))", "factory must be a name or text, not 3"),
        ("wordllama(index=usearch(16))", "options have names: connectivity, expansion, dtype"),
        ("wordllama(index=faiss, quantize=int8)", "either quantize or index"),
    ],
)
def test_what_cannot_be_is_refused_at_once(spec, said):
    with pytest.raises(SpecError, match=said.replace("(", r"\(").replace("?", r"\?")):
        System.parse(spec)


@pytest.mark.parametrize("spec", ["faiss(factory=Nonsense)", "usearch(dtype=f99)"])
def test_what_the_engine_refuses_is_one_line(spec, vectors, tmp_path):
    with pytest.raises(R2medError) as refused:
        EngineSettings.read(spec).write(vectors[1], Similarity(), tmp_path)
    assert "\n" not in str(refused.value)
