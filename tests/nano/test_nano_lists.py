"""Candidate lists: the safeguard, the stage that reads them, and the way to the hub and back."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from sources import context, dataset, folder, tree

from hubserver import HubServer, run_python
from r2med.data.dataset import Generation
from r2med.data.loader import load
from r2med.data.run import Run
from r2med.errors import SpecError
from r2med.nano.builder import build
from r2med.nano.recipe import Recipe, hybrid
from r2med.pipeline.evaluate import evaluate
from r2med.pipeline.spec import Call
from r2med.pipeline.stage import Reranker
from r2med.pipeline.system import System
from r2med.retrieve.given_lists import StoredLists

NAMES = [f"d{number:03}" for number in range(300)]


def ranked(names):
    return Run.from_lists({"q": (names, [float(place) for place in range(len(names), 0, -1)])})


def gold(*relevant):
    return dataset([(name, name) for name in NAMES], [("q", "x")], {"q": dict.fromkeys(sorted(relevant), 1)})


def test_the_pool_is_the_fusion_with_k_100():
    lexical, dense = NAMES[:200], NAMES[100:300]
    found = hybrid([ranked(lexical), ranked(dense)], gold("d000")).documents["q"]
    votes = {}
    for names in (lexical, dense):
        for rank, name in enumerate(names, 1):
            votes[name] = votes.get(name, 0.0) + 1 / (100 + rank)
    expected = sorted(votes, key=lambda name: (votes[name], name), reverse=True)[:100]
    assert sorted(found) == sorted(expected)
    assert found[0] == expected[0] == "d100"
    assert [votes[name] for name in found] == sorted((votes[name] for name in expected), reverse=True)


def test_a_pool_with_a_relevant_document_is_left_as_it_is():
    lists = hybrid([ranked(NAMES[:150])], gold("d099", "d120"))
    assert list(lists.documents["q"]) == NAMES[:100]
    assert lists.safeguards == {}


def test_the_safeguard_is_the_best_ranked_relevant_document_below_the_pool():
    backwards = [*NAMES[:100], *reversed(NAMES[100:150])]
    lists = hybrid([ranked(backwards)], gold("d140", "d120", "d299"))
    assert list(lists.documents["q"]) == [*NAMES[:100], "d140"]
    assert lists.safeguards == {"q": "d140"}


def test_the_safeguard_of_a_query_whose_relevant_documents_nobody_lists():
    lists = hybrid([ranked(NAMES[:150]), ranked(NAMES[50:200])], gold("d298", "d250"))
    assert len(lists.documents["q"]) == 101
    assert lists.documents["q"][100] == "d250"


def test_a_short_list_still_gets_its_safeguard_at_the_end():
    assert list(hybrid([ranked(NAMES[:3])], gold("d200")).documents["q"]) == [*NAMES[:3], "d200"]


@dataclass(frozen=True)
class Backwards(Reranker):
    """Turns every list round: a reranker that is easily checked."""

    @property
    def spec(self) -> Call:
        return Call("backwards", (), ())

    def rerank(self, collection, run, context):
        return Run.from_lists({query: (ranking.documents, -ranking.scores) for query, ranking in run})


def test_lists_feed_a_reranker(tmp_path):
    built = build(folder(tmp_path / "mine"), tmp_path / "out", Recipe(documents=25, dense="bm25-classic"))
    collection = load(built.folder).collection
    for lists in ("bm25", "dense", "hybrid"):
        stage = StoredLists(lists)
        run = (stage >> Backwards()).run(collection, context())
        plain = stage.retrieve(collection, context())
        assert run.queries == collection.queries.ids
        for query, ranking in plain:
            assert run[query].documents == list(ranking.documents)[::-1]
            assert ranking.scores.tolist() == [float(n) for n in range(len(ranking.documents), 0, -1)]
    report = evaluate([System.parse("candidates(hybrid)") >> Backwards()], built.folder)
    assert not report.failures


def test_a_depth_cuts_the_lists(tmp_path):
    built = build(folder(tmp_path / "mine"), tmp_path / "out", Recipe(documents=25))
    run = StoredLists("bm25", depth=3).retrieve(load(built.folder).collection, context())
    assert {len(ranking.documents) for _, ranking in run} == {3}


def test_other_lists_beside_the_same_data_are_another_result(tmp_path):
    source = folder(tmp_path / "mine")
    for out, dense in (("one", "bm25-classic"), ("two", "bm25-classic(k1=0, b=0)")):
        build(source, tmp_path / out, Recipe(documents=25, dense=dense))
    one, two = (load(tmp_path / out) for out in ("one", "two"))
    assert one.fingerprint == two.fingerprint
    assert StoredLists("dense").inputs(one.collection) != StoredLists("dense").inputs(two.collection)
    assert StoredLists("bm25").inputs(one.collection) == StoredLists("bm25").inputs(two.collection)
    first, second = (evaluate("candidates(dense)", tmp_path / out).results[0] for out in ("one", "two"))
    assert not second.cached
    assert first.id != second.id


def test_generated_texts_play_no_part_and_that_is_said(tmp_path):
    built = build(folder(tmp_path / "mine"), tmp_path / "out", Recipe(documents=25))
    collection = load(built.folder).collection
    written = collection.expanded([[Generation("x", "hyde")] for _ in collection.queries.ids])
    asked = context()
    assert StoredLists("bm25").retrieve(written, asked) == StoredLists("bm25").retrieve(collection, context())
    assert "plays no part" in asked.notes.warnings[0]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("candidates(bm52)", "unknown lists 'bm52'; did you mean bm25"),
        ("candidates(bm25, depth=0)", "depth must be 1 or more"),
        ("candidates", "lacks lists"),
    ],
)
def test_wrong_specs(spec, message):
    with pytest.raises(SpecError, match=message):
        System.parse(spec)


def test_a_task_without_lists_fails_alone(tmp_path):
    report = evaluate(["candidates(hybrid)", "bm25"], "sample/Biology")
    assert [failure.system for failure in report.failures] == ["candidates(hybrid)"]
    assert "no candidates" in report.failures[0].message
    assert [result.system for result in report.results] == ["bm25"]


ON_THE_HUB = """
import json
from r2med.nano.profile import profile
from r2med.pipeline.evaluate import evaluate
systems = [f"candidates({kind})" for kind in ("bm25", "dense", "hybrid")]
report = evaluate([*systems, "candidates(hybrid, depth=2)"], "nano/Biology")
(found,) = profile(["nano/Biology"])
print(json.dumps({"results": [r.metrics["nDCG@10"] for r in report.results], "groups": report.groups,
    "failures": [f.message for f in report.failures], "profile": found.as_dict()}))
"""


def test_the_published_schema_on_the_hub_feeds_systems_and_the_profile(tmp_path):
    built = build(
        folder(tmp_path / "Biology", documents=260), tmp_path / "out", Recipe(documents=250, dense="bm25-classic")
    )
    files = {name.replace("bm25_classic/", "harrier_oss_v1_270m/"): body for name, body in tree(built.folder).items()}
    del files["nano.json"]
    with HubServer() as hub:
        hub.add("hakari-bench/NanoR2MED", files)
        done = run_python(ON_THE_HUB, hub.environment(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["failures"] == []
    assert found["groups"] == ["nano"]
    local = evaluate([f"candidates({kind})" for kind in ("bm25", "dense", "hybrid")], built.folder)
    assert found["results"][:3] == pytest.approx([result.metrics["nDCG@10"] for result in local.results])
    (task,) = found["profile"]["tasks"]
    assert task["split"] == "NanoR2MEDBiology"
    assert task["safeguards"] == len(built.manifest["splits"]["NanoR2MEDBiology"]["safeguards"])
    assert task["published"]["dense"]["ndcg_at_10"] == pytest.approx(0.4953205757)
    assert task["best_published"] == "dense"
