"""The small models that `r2med train run` made of MiniLM's words: they learned something, and it shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import r2med
from needs import TRAINED, collection, packages

pytestmark = packages("torch", "sentence_transformers")

CLAIMS, ABSTRACTS = 30, 60
CHANCE = 0.1
"""nDCG@10 of lists in any order is less: one or two of 60 abstracts are right."""
SYSTEMS = {
    "sparse": f"splade({TRAINED / 'sparse'})",
    "late": f"colbert({TRAINED / 'late'})",
    "reranker": f"bm25 >> {TRAINED / 'reranker'}",
}


@pytest.mark.parametrize("kind", SYSTEMS)
def test_its_card_says_how_it_was_made_and_how_well_it_does(kind: str) -> None:
    record = json.loads((TRAINED / kind / "training.json").read_text())
    before, after = (record["dev"][when]["nDCG@10"] for when in ("before", "after"))
    assert record["kind"] == kind
    if kind == "late":  # its base, MiniLM's words compared one by one, is good already
        assert after[1] > 0.2
    else:
        assert after[1] > before[2], "the intervals of the base and of the trained model overlap"
    card = (TRAINED / kind / "README.md").read_text()
    assert f"{100 * after[0]:.2f}" in card
    assert record["data"][0]["licence"] in card


def write_claims(source: Path, folder: Path, claims: int, documents: int) -> Path:
    """The first claims of SciFact, whose evidence no model has seen, and so many abstracts."""
    judged = [line.split("\t") for line in (source / "qrels/test.tsv").read_text().splitlines()[1:]]
    chosen = list(dict.fromkeys(query for query, *_ in judged))[:claims]
    judged = [row for row in judged if row[0] in chosen]
    evidence = {document for _, document, _ in judged}
    corpus = [json.loads(line) for line in (source / "corpus.jsonl").read_text().splitlines()]
    corpus.sort(key=lambda row: row["_id"] not in evidence)
    queries = [json.loads(line) for line in (source / "queries.jsonl").read_text().splitlines()]
    tables = {
        "corpus": [{"id": row["_id"], "text": row["text"]} for row in corpus[:documents]],
        "query": [{"id": row["_id"], "text": row["text"]} for row in queries if row["_id"] in chosen],
        "qrels": [{"q_id": query, "p_id": document, "score": int(score)} for query, document, score in judged],
    }
    folder.mkdir()
    for name, rows in tables.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_claims_that_it_never_saw_find_their_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    task = write_claims(collection("scifact"), tmp_path / "claims", CLAIMS, ABSTRACTS)
    report = r2med.evaluate(list(SYSTEMS.values()), task, measures=["nDCG@10"])
    assert not report.failures
    found = {result.system: result.metrics["nDCG@10"] for result in report.results}
    assert all(figure > 4 * CHANCE for figure in found.values()), found
