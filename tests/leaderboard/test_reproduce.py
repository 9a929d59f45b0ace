"""Published rows run again: resolved to the right system, run against a hub of tiny tasks, judged by one rule."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hubserver import HubServer
from r2med.data.published import find_published, published
from r2med.data.tasks import task
from r2med.errors import R2medError
from r2med.leaderboard.reproduce import DIFFERENT, WITHIN_INTERVAL, WITHIN_ROUNDING, needs, reproductions, verdict
from r2med.measure.figure import Figure

DOCUMENTS = {"d1": "iron deficiency causes anaemia and pallor", "d2": "the femur is a bone", "d3": "insulin and sugar"}
QUERIES = {"q1": "why is she so pale", "q2": "which is the longest bone"}
RELEVANT = {"q1": "d1", "q2": "d2"}
WRITTEN = {"q1": "anaemia from iron deficiency", "q2": "the femur"}


def jsonl(*rows: Mapping[str, object]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def tiny(name: str, hub: HubServer) -> None:
    """A task of the benchmark as the hub has it, at the pinned revision, with two queries."""
    hub.add(
        task(name).hub,
        {
            "corpus.jsonl": jsonl(*({"id": key, "text": text} for key, text in DOCUMENTS.items())),
            "query.jsonl": jsonl(*({"id": key, "text": text} for key, text in QUERIES.items())),
            "qrels.jsonl": jsonl(*({"q_id": q, "p_id": d, "score": 1} for q, d in RELEVANT.items())),
            "hyde/gpt4/query_with_hydoc.jsonl": jsonl(
                *({"id": key, "text": QUERIES[key], "hy_doc": text} for key, text in WRITTEN.items())
            ),
        },
        commit=task(name).revision,
    )


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer() as server:
        for name in ("Biology", "MedQA-Diag"):
            tiny(name, server)
        yield server


def r2med(*arguments: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "r2med", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**environment, "COLUMNS": "150", "NO_COLOR": "1"},
        timeout=120,
        check=False,
    )


def test_every_published_row_resolves_or_says_why_not() -> None:
    for row in published():
        if row.system:
            assert any(row in made.rows for made in reproductions([row.name]))
        else:
            with pytest.raises(R2medError, match="cannot be said in r2med's terms"):
                reproductions([row.name])


def test_one_run_serves_every_source_that_published_the_system() -> None:
    [made] = reproductions(["base/bm25"])
    assert made.system == "bm25"
    assert [row.source.name for row in made.rows] == ["paper", "page"]
    assert [each.system for each in reproductions(["base/bge", "BASE/BGE", "BAAI/bge-large-en-v1.5"])] == ["bge"]


def test_a_table_is_all_its_systems() -> None:
    base = reproductions(["table:base"])
    assert len(base) == 15
    assert {each.system for each in base} >= {"bm25", "nv", "voyage", "medcpt"}
    rerankers = reproductions(["table:reranker"])
    assert [each.system for each in rerankers] == [
        "nv >> bge-reranker(depth=10)",
        "nv >> monobert(depth=10)",
        "nv >> rankllama(depth=10)",
        "e5 >> listwise(reasonrank-32b)",
    ]
    unsaid = {row.name for row in find_published("table:grouprank") if not row.system}
    assert "reranker/rankzephyr-7b/diver" in unsaid, "no card"
    told = {row.name for each in reproductions(["table:grouprank"]) for row in each.rows}
    assert told.isdisjoint(unsaid), "what cannot be said is left out of a table"


def test_generating_anew_is_another_system() -> None:
    assert reproductions(["search-r1/qwen-3b-ins/nv"], generate=True)[0].system == "search-r1(search-r1-3b) >> nv"
    with pytest.raises(R2medError, match="base/bm25 has no published texts to generate anew"):
        reproductions(["base/bm25"], generate=True)


def test_needs_are_told_without_asking_anybody() -> None:
    assert needs("bm25") == {}
    assert needs("hyde(gpt-4o) >> bm25") == {"extras": ["llm"], "keys": ["OPENAI_API_KEY"]}
    assert needs("nv >> rankllama(depth=10)") == {
        "extras": ["torch", "lora"],
        "hub": ["nvidia/NV-Embed-v2", "meta-llama/Llama-2-7b-hf", "castorini/rankllama-v1-7b-lora-passage"],
        "gpu": True,
    }
    assert needs(find_published("BAAI/bge-small-en-v1.5")[0].system)["hub"] == ["BAAI/bge-small-en-v1.5"]


def test_what_cannot_be_right_is_noted_once() -> None:
    notes = reproductions(["base/medcpt"])[0].notes
    assert len(notes) == 1
    assert "medcpt-card is the model as its card says" in notes[0]
    assert any("trace of reasoning" in note for note in reproductions(["hyde/qwq-32b/bm25"])[0].notes)
    assert reproductions(["base/bge"])[0].notes == []
    assert any("quoted JSON string" in note for note in reproductions(["base/openai"])[0].notes)


SHARES = st.floats(0, 1)


@given(SHARES, SHARES, SHARES, SHARES, st.sampled_from([5, 4, 3]))
def test_a_verdict_is_the_strictest_that_holds(
    published: float, measured: float, below: float, above: float, digits: int
) -> None:
    rounding = 0.5 * 10.0**-digits
    interval = Figure(measured, measured - below, measured + above)
    found = verdict(published, measured, rounding, interval)
    distance = abs(published - measured)
    assume(abs(distance - rounding) > 1e-9)
    if distance < rounding:
        assert found == WITHIN_ROUNDING
    elif interval.low <= published <= interval.high:
        assert found == WITHIN_INTERVAL
    else:
        assert found == DIFFERENT


@given(SHARES, st.sampled_from([5, 4, 3]))
def test_a_figure_rounded_is_within_rounding(measured: float, digits: int) -> None:
    assert verdict(round(measured, digits), measured, 0.5 * 10.0**-digits, None) == WITHIN_ROUNDING


def test_the_whole_way_on_a_hub_of_tiny_tasks(hub: HubServer, tmp_path: Path) -> None:
    environment = hub.environment(tmp_path)
    arguments = ("reproduce", "base/bm25", "hyde/gpt4/bm25", "--tasks", "Biology", "MedQA-Diag")
    done = r2med(*arguments, "--json", environment=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["failures"] == []
    rows = {(row["system"], row["source"], row["task"]): row for row in found["compared"]}
    assert len(rows) == 2 * 2 * 3, "two systems, two sources, two tasks and their average"
    plain = rows["bm25", "paper", "Biology"]
    assert plain["published"] == 0.19188
    assert plain["measured"] == 0.5, "only the second question shares a word with its document"
    assert plain["difference"] == pytest.approx(0.5 - 0.19188)
    assert plain["verdict"] == WITHIN_INTERVAL, "two queries say nothing: the interval is from 0 to 1"
    replayed = rows["replay(hub, method=hyde, llm=gpt4) >> bm25", "page", "average"]
    assert replayed["measured"] == 1.0, "the published texts name what the questions only imply"
    assert replayed["verdict"] == DIFFERENT
    assert replayed["published"] == pytest.approx((0.5734 + 0.496) / 2)
    assert any("hyde/gpt4/query_with_hydoc.jsonl" in request for request in hub.requests)
    shown = r2med(*arguments, environment=environment).stdout
    assert "published (paper)" in shown
    assert "different" in shown
    asked = len(hub.requests)
    r2med(*arguments, environment=environment)
    assert len(hub.requests) == asked, "the second time all of it is on this machine"


def test_a_dry_run_says_all_and_does_nothing(hub: HubServer, tmp_path: Path) -> None:
    environment = hub.environment(tmp_path)
    done = r2med("reproduce", "reranker/rankllama", "base/medcpt", "--dry-run", environment=environment)
    assert done.returncode == 0, done.stderr
    for said in (
        "reranker/rankllama (paper): nv >> rankllama(depth=10)",
        "needs a GPU",
        "needs hub: nvidia/NV-Embed-v2, meta-llama/Llama-2-7b-hf",
        "note: The page's figures are not those of the repository",
        "on Biology, Bioinformatics",
    ):
        assert said in done.stdout
    facts = json.loads(r2med("reproduce", "nano/bm25", "--dry-run", "--json", environment=environment).stdout)
    assert facts["systems"][0]["system"] == "candidates(bm25)"
    assert facts["tasks"][0] == "nano/Biology"
    assert hub.requests == []


def test_tasks_of_another_group_are_never_compared(hub: HubServer, tmp_path: Path) -> None:
    environment = hub.environment(tmp_path)
    done = r2med("reproduce", "base/bm25", "--tasks", "sample/Biology", "Biology", "--json", environment=environment)
    rows = {(row["source"], row["task"]): row for row in json.loads(done.stdout)["compared"]}
    assert rows["paper", "sample/Biology"]["published"] is None
    assert rows["paper", "sample/Biology"]["verdict"] == "not published by paper"
    assert rows["paper", "Biology"]["published"] == 0.19188
    assert ("paper", "average") not in rows, "one task of each group has no average"


def test_a_missing_key_is_said_before_anything_is_read(hub: HubServer, tmp_path: Path) -> None:
    environment = {key: value for key, value in hub.environment(tmp_path).items() if key != "OPENAI_API_KEY"}
    done = r2med("reproduce", "hyde/gpt4/bm25", "--generate", environment=environment)
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "r2med: hyde(gpt-4o) >> bm25 needs an API key: set OPENAI_API_KEY, or see --dry-run for all that it needs"
    )
    assert hub.requests == []


def test_texts_that_are_not_there_are_a_failure_and_not_a_figure(hub: HubServer, tmp_path: Path) -> None:
    done = r2med("reproduce", "lamer/gpt4/bm25", "--tasks", "Biology", "--json", environment=hub.environment(tmp_path))
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["compared"] == []
    assert "has no generations of lamer" in found["failures"][0]["error"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("base/bgee",), "did you mean base/bge?"),
        (("table:bases",), "did you mean base?"),
        (("base/bm25", "--measure", "NDGC@10"), "did you mean nDCG@10?"),
        (("base/bm25", "--tasks", "sample"), "these figures were published on full tasks, not on sample"),
    ],
)
def test_wrong_names_are_one_line(arguments: tuple[str, ...], said: str) -> None:
    done = r2med("reproduce", *arguments, environment=os.environ)
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
