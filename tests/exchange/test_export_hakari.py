"""HAKARI-Bench's result files, read the way its source reads them: which files, which fields, of which types.

The tool is not on the package index, so its reader cannot be run here. What stands in for it was written from the
demands of its source: the files three levels down that end in .json, .json.gz or .json.xz, the fields that make a row
of its tables (a value of another type is an error there), and the figures that it computes again from the lists.
"""

from __future__ import annotations

import json
import lzma
import math
import re
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubserver import HubServer, run_python
from ledgers import commands
from r2med.data.run import Run
from r2med.data.tasks import groups, registry
from r2med.exchange.export import HAKARI_MEASURES, Measured, _hakari_part, hakari
from r2med.measure.score import score
from r2med.runs.ledger import Entry
from r2med.runs.record import RunRecord

QRELS = {"q1": {"d1": 1, "d3": 1, "d4": 0}, "q2": {"d2": 1}, "q3": {"d9": 1}}
RUN = Run.from_lists({"q1": (["d1", "d2", "d3"], [3.0, 2.0, 1.0]), "q2": (["d1", "d2"], [2.0, 1.0])})
BM25 = {"spec": "bm25", "kind": "retriever"}
KNOWN = {
    "artifacts", "config", "embedding_evaluations", "environment", "evaluation", "experiment_manifest",
    "generated_at_utc", "metrics", "model", "rankings", "rerank_metrics", "target",
}  # fmt: skip
"""What a result may hold at its top; anything else is set aside there as an unknown extension."""
TYPES = {
    "generated_at_utc": str,
    "model.id": str,
    "model.method": str,
    "model.source.revision": (str, type(None)),
    "target.dataset_id": str,
    "target.dataset_name": str,
    "target.dataset_revision.requested": (str, type(None)),
    "target.dataset_revision.resolved": (str, type(None)),
    "target.split_name": str,
    "target.task_name": str,
    "evaluation.aggregate_metric": str,
    "evaluation.aggregate_metric_value": float,
    "evaluation.started_at_utc": str,
    "evaluation.finished_at_utc": str,
    "evaluation.evaluated_at_utc": str,
    "evaluation.wall_seconds": float,
    "evaluation.cache_hit": bool,
    "evaluation.timing.pure_compute_seconds": float,
    "evaluation.embedding_evaluations": list,
    "evaluation.reranking_evaluations": list,
    "config.primary_metric": str,
    "environment.package_versions": dict,
    "experiment_manifest.fingerprint_sha256": str,
    "metrics": dict,
    "rerank_metrics": dict,
    "artifacts.top_rankings.rankings": list,
    "artifacts.top_rankings.qrels": list,
}
SHOWN = {"ndcg@10", "ndcg@100", "recall@10", "recall@100", "acc@1", "acc@10", "acc@100", "mrr@10", "map@100"}


def entry(name: str, stages: Sequence[Mapping[str, str]] = (BM25,), **record: Any) -> Entry:
    content = {
        "r2med": "0.1.0",
        "python": "3.11.7",
        "machine": {"platform": "linux", "architecture": "x86_64", "cores": 2},
        "packages": {"numpy": "2.0", "torch": "2.13.0"},
        "stages": list(stages),
        "data": {"fingerprint": "x", "revision": "0" * 40},
        **record,
    }
    made, date = RunRecord.from_json(content), "2026-11-15T10:00:00+00:00"
    return Entry("k" * 32, "bm25", name, registry()[name].group, ("q1", "q2"), 90.0, made, date)


def files(name: str = "nano/MedQA-Diag", revision: str = "", run: Run = RUN, **more: Any) -> dict[str, bytes]:
    scores = score(run, QRELS, HAKARI_MEASURES)
    values = {measure: scores.mean(measure) for measure in HAKARI_MEASURES}
    return hakari(Measured(entry(name, **more), registry()[name], values, "r2med/bm25", revision), run, QRELS)


def written(folder: Path, content: Mapping[str, bytes]) -> Path:
    for path, data in content.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def read_all(folder: Path) -> list[dict[str, Any]]:
    """Every result below a folder, by the tool's rules, as the row that its tables hold."""
    found = []
    for path in sorted(folder.glob("*/*/*")):
        if path.is_file() and path.name.endswith((".json", ".json.gz", ".json.xz")):
            data = path.read_bytes()
            content = json.loads(lzma.decompress(data) if path.suffix == ".xz" else data)
            found.append(row_of(content, path.relative_to(folder)))
    return found


def row_of(content: dict[str, Any], path: Path) -> dict[str, Any]:
    assert set(content) <= KNOWN
    for name, kind in TYPES.items():
        value: Any = content
        for part in name.split("."):
            value = value[part]
        assert isinstance(value, kind), name
    assert all(isinstance(version, str) for version in content["environment"]["package_versions"].values())
    target, model = content["target"], content["model"]
    assert "NanoR2MED" in f"{target['dataset_id']}/{target['dataset_name']}", "how it knows the benchmark"
    assert path.name.split(".")[0] == target["task_name"], "of two files of a task it takes the one of this name"
    assert path.parts[0] == model["id"].replace("/", "__")
    return {
        "model": model["id"],
        "method": model["method"],
        "task": target["task_name"],
        "revision": target["dataset_revision"]["resolved"],
        "score": content["evaluation"]["aggregate_metric_value"],
        "metrics": {metric_key(name): value for name, value in content["metrics"].items()},
        "again": measured_again(content["artifacts"]["top_rankings"]),
        "content": content,
    }


def metric_key(name: str) -> str:
    """Family and cutoff are cut from the end of a metric's name there, by this pattern."""
    match = re.search(r"([A-Za-z]+)@([0-9]+)$", name)
    assert match, name
    return f"{match[1].lower()}@{match[2]}"


def measured_again(artifact: Mapping[str, Any]) -> dict[str, float]:
    """What the tool computes from the embedded lists: means over the lists that are there."""
    assert "path" not in artifact, "lists in a file of their own are the old form"
    judged = {row["query_id"]: set(row["relevant_corpus_ids"]) for row in artifact["qrels"]}
    lists = {}
    for row in artifact["rankings"]:
        assert (row["ranking_kind"], row["embedding_variant_name"]) == ("retrieval", None), "what it measures by"
        assert list(row)[-1] == "corpus_ids"
        assert isinstance(row["score_name"], str)
        assert len(row["corpus_ids"]) <= artifact["top_k"] == 100
        lists[row["query_id"]] = row["corpus_ids"]
    found: dict[str, list[float]] = {name: [] for name in SHOWN}
    for query, documents in lists.items():
        hits = [place for place, document in enumerate(documents, 1) if document in judged[query]]
        for name, values in found.items():
            family, _, cutoff = name.partition("@")
            values.append(by_hand(family, int(cutoff), hits, len(judged[query])))
    return {name: sum(values) / len(values) for name, values in found.items()}


def by_hand(family: str, cutoff: int, hits: Sequence[int], relevant: int) -> float:
    near = [place for place in hits if place <= cutoff]
    if family == "acc":
        return float(bool(near))
    if family == "recall":
        return len(near) / relevant
    if family == "mrr":
        return 1 / near[0] if near else 0.0
    if family == "map":
        return sum(count / place for count, place in enumerate(near, 1)) / min(relevant, cutoff)
    ideal = sum(1 / math.log2(place + 1) for place in range(1, min(relevant, cutoff) + 1))
    return sum(1 / math.log2(place + 1) for place in near) / ideal


def test_the_files_are_where_and_as_the_tool_reads_them(tmp_path: Path) -> None:
    for task in groups()["nano"]:
        written(tmp_path, files(task.name))
    rows = read_all(tmp_path)
    assert len(rows) == len([path for path in tmp_path.rglob("*") if path.is_file()]) == 8, "results and nothing else"
    assert {row["task"] for row in rows} == {task.split for task in groups()["nano"]}
    assert {(row["model"], row["method"], row["revision"]) for row in rows} == {("r2med/bm25", "bm25", "0" * 40)}
    assert (tmp_path / "r2med__bm25/hakari-bench__NanoR2MED/NanoR2MEDMedQADiag.json.xz").is_file()


def test_every_shown_metric_is_there_and_is_what_the_tool_computes_again(tmp_path: Path) -> None:
    [row] = read_all(written(tmp_path, files()))
    assert set(row["metrics"]) == SHOWN
    assert row["metrics"] == pytest.approx(row["again"])
    assert row["score"] == row["metrics"]["ndcg@10"]
    assert row["content"]["evaluation"]["aggregate_metric"] == row["content"]["config"]["primary_metric"] == "ndcg@10"
    assert all(name.startswith("NanoR2MED_NanoR2MEDMedQADiag_score_") for name in row["content"]["metrics"])


def test_a_query_without_a_list_is_not_left_out_of_the_mean(tmp_path: Path) -> None:
    [row] = read_all(written(tmp_path, files()))
    artifact = row["content"]["artifacts"]["top_rankings"]
    lists = {each["query_id"]: each["corpus_ids"] for each in artifact["rankings"]}
    assert lists == {"q1": ["d1", "d2", "d3"], "q2": ["d1", "d2"], "q3": []}
    assert artifact["qrels"][0] == {"query_id": "q1", "relevant_corpus_ids": ["d1", "d3"]}, "no judgement of grade 0"


def test_lists_are_cut_to_a_hundred(tmp_path: Path) -> None:
    long = Run.from_lists({"q1": ([f"x{place}" for place in range(150)], [float(-place) for place in range(150)])})
    [row] = read_all(written(tmp_path, files(run=long)))
    assert len(row["content"]["artifacts"]["top_rankings"]["rankings"][0]["corpus_ids"]) == 100


RERANK = {"spec": "cross-encoder(bge-reranker)", "kind": "reranker"}
HYDE = {"spec": "hyde(gpt-4o)", "kind": "expander"}
BGE = {"spec": "bge", "kind": "retriever"}
CLASSIC = {"spec": "bm25-classic", "kind": "retriever"}


@pytest.mark.parametrize(
    ("stages", "method"),
    [
        ([BM25], "bm25"),
        ([CLASSIC], "bm25"),
        ([HYDE, BM25], "sparse"),
        ([BM25, RERANK], "sparse"),
        ([{"spec": "rrf(bm25, bm25-classic)", "kind": "retriever"}, BM25, CLASSIC], "sparse"),
        ([{"spec": "rrf(bm25, bge)", "kind": "retriever"}, BM25, BGE], "dense"),
        ([BGE, RERANK], "dense"),
        ([], "dense"),
    ],
)
def test_the_method_keeps_whole_systems_in_the_retrieval_view(stages: list[dict[str, str]], method: str) -> None:
    [content] = files(stages=stages).values()
    assert json.loads(lzma.decompress(content))["model"]["method"] == method


def test_the_fingerprint_is_of_the_system_and_not_of_its_figures() -> None:
    def fingerprint(**more: Any) -> str:
        [content] = files(**more).values()
        return str(json.loads(lzma.decompress(content))["experiment_manifest"]["fingerprint_sha256"])

    assert len(fingerprint()) == 64
    assert fingerprint(run=Run.from_lists({"q1": (["d1"], [1.0])})) == fingerprint()
    assert fingerprint(revision="v2") != fingerprint()
    assert files() == files(), "the same bytes each time"


@given(st.text())
def test_any_name_is_one_folder(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", _hakari_part(name))
    assert _hakari_part(_hakari_part(name)) == _hakari_part(name)


def parquet(columns: Mapping[str, Sequence[object]]) -> bytes:
    buffer = BytesIO()
    pl.DataFrame(columns).write_parquet(buffer)
    return buffer.getvalue()


def test_the_whole_way_from_the_hub_to_the_files(tmp_path: Path) -> None:
    name = "NanoR2MEDBiology-00000-of-00001.parquet"
    texts = ["pallor is a sign of anaemia", "a bone", "iron is lost with blood"]
    content = {
        f"corpus/{name}": parquet({"_id": ["d1", "d2", "d3"], "text": texts}),
        f"queries/{name}": parquet({"_id": ["q1", "q2"], "text": ["sign of anaemia", "nothing like it"]}),
        f"qrels/{name}": parquet({"query-id": ["q1", "q1", "q2"], "corpus-id": ["d1", "d3", "d2"]}),
    }
    out = tmp_path / "out"
    calls = [
        ["run", "bm25", "--tasks", "nano/Biology", "--json"],
        ["export", "bm25", "--format", "hakari", "--name", "me/bm25", "--revision", "v1", "--out", str(out)],
    ]
    with HubServer() as hub:
        commit = hub.add("hakari-bench/NanoR2MED", content)
        done = run_python(commands(calls), hub.environment(tmp_path))
    assert done.returncode == 0, done.stderr
    [row] = read_all(out)
    assert (row["model"], row["task"], row["revision"]) == ("me/bm25", "NanoR2MEDBiology", commit)
    assert row["metrics"] == pytest.approx(row["again"])
    assert row["metrics"]["acc@1"] == 0.5
    assert row["content"]["model"]["source"] == {"type": "r2med", "name": "bm25", "revision": "v1"}
