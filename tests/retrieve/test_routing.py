"""Routing hands the strong systems the hard queries and no others, and each signal is what its definition says."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import r2med
from chat_server import ChatServer, Say
from r2med.data.run import Run
from r2med.errors import SpecError
from r2med.lexical.analyzer import analyze
from r2med.llm.cards import add_model
from r2med.llm.scripted import scripted
from r2med.llm.server import guess_tokens, prompt_text
from r2med.llm.types import RawAnswer
from r2med.pipeline.executor.local import quiet
from r2med.pipeline.plan import plan
from r2med.pipeline.stage import Context
from r2med.pipeline.system import System
from r2med.retrieve.routing import hardest
from r2med.retrieve.signals import NQC, Clarity, ListAgreement, Random
from r2med.runs.cost import Cost
from r2med.runs.ledger import Ledger
from r2med.store.cache import Cache
from r2med.usage import Usage

TASK = "sample/Biology"


@pytest.fixture(scope="module")
def biology():
    return r2med.load(TASK)


def ranked(spec: str, collection) -> Run:
    return System.parse(spec).run(collection, Context(Cache.default(), quiet()))


def signal(stage, collection, run: Run) -> list[float]:
    return stage.values(collection, run, Context(Cache.default(), quiet())).tolist()


numbers = st.lists(st.one_of(st.floats(-5, 5).map(lambda value: round(value, 1)), st.just(math.nan)), max_size=12)


@given(numbers, st.floats(0, 1), st.sampled_from(["low", "high"]))
def test_the_share_is_kept_and_no_query_left_behind_is_harder(values, share, harder) -> None:
    names = [f"q{place:02}" for place in range(len(values))]
    sent = hardest(np.array(values, dtype=float), names, share, harder)
    assert len(sent) == math.floor(share * len(values) + 0.5)
    hardness = [math.inf if math.isnan(value) else value if harder == "high" else -value for value in values]
    kept = set(range(len(values))) - set(sent)
    assert all(hardness[one] >= hardness[other] for one in sent for other in kept)


@given(numbers, st.floats(0, 1), st.randoms())
def test_which_queries_are_sent_on_does_not_depend_on_their_order(values, share, chance) -> None:
    names = [f"q{place:02}" for place in range(len(values))]
    order = list(range(len(values)))
    chance.shuffle(order)
    plain = {names[place] for place in hardest(np.array(values, dtype=float), names, share, "low")}
    shuffled_names = [names[place] for place in order]
    shuffled = hardest(np.array([values[place] for place in order], dtype=float), shuffled_names, share, "low")
    assert {shuffled_names[place] for place in shuffled} == plain


@pytest.mark.parametrize(
    "by", ["score-gap", "top-score", "nqc", "wig", "clarity", "query-length", "random", "agreement(bm25-classic)"]
)
def test_a_route_takes_each_list_whole_from_one_of_the_two(biology, by) -> None:
    collection = biology.collection
    cheap, strong = ranked("bm25", collection), ranked("wordllama", collection)
    assert ranked(f"route(bm25, wordllama, by={by}, share=0)", collection) == cheap
    for share, count in ((0.3, 3), (0.5, 5), (1, 9)):
        run = ranked(f"route(bm25, wordllama, by={by}, share={share})", collection)
        sent = [query for query in run.queries if list(run[query].documents) == list(strong[query].documents)]
        kept = [query for query in run.queries if list(run[query].documents) == list(cheap[query].documents)]
        assert (len(sent), len(kept)) == (count, 9 - count)


def test_a_threshold_is_the_share_it_came_from_and_serves_one_question(biology) -> None:
    collection = biology.collection
    by_share = System.parse("route(bm25, wordllama, by=nqc)")
    context = Context(Cache.default(), quiet())
    run = by_share.run(collection, context)
    facts = context.notes.facts[by_share.spec]
    assert (facts["sent"], facts["of"]) == (3, 9)
    by_threshold = f"route(bm25, wordllama, by=nqc, threshold={math.nextafter(facts['edge'], math.inf)})"
    assert ranked(by_threshold, collection) == run
    for query, text in collection.queries:
        alone = System.parse(by_threshold).search(collection, text, Context(Cache.default(), quiet()))
        assert list(alone.documents) == list(run[query].documents)
    context = Context(Cache.default(), quiet())
    by_share.search(collection, "why?", context)
    assert any("give a threshold" in sentence for sentence in context.notes.warnings)


def test_a_cascade_stops_at_the_first_list_that_is_good_enough(biology) -> None:
    collection = biology.collection
    stages = ["bm25", "wordllama", "bm25-classic"]
    runs = [ranked(spec, collection) for spec in stages]
    limit = float(np.median(signal(NQC(), collection, runs[0])))
    context = Context(Cache.default(), quiet())
    system = System.parse(f"cascade(bm25, wordllama, bm25-classic, until=nqc>{limit})")
    run = system.run(collection, context)
    nqc = [dict(zip(collection.queries.ids, signal(NQC(), collection, each), strict=True)) for each in runs]
    expected = {query: 0 if nqc[0][query] > limit else 1 if nqc[1][query] > limit else 2 for query in run.queries}
    assert all(list(run[query].documents) == list(runs[place][query].documents) for query, place in expected.items())
    places = Counter(expected.values())
    asked = [9, 9 - places[0], places[2]]
    assert context.notes.facts[system.spec]["asked"] == asked


@pytest.fixture
def server():
    with ChatServer(lambda prompt, nth: Say(text="70" if "whole number" in prompt else f"scurvy {nth % 2}")) as running:
        yield running


def test_only_the_queries_sent_on_are_asked_and_paid_for(server) -> None:
    model = f"tiny@{server.url}"
    spec = f'route(bm25, hyde("{model}") >> bm25, by=nqc)'
    planned = plan([System.parse(spec)], [TASK])[0].tasks[0].forecast
    report = r2med.evaluate(spec, TASK)
    assert server.attempts == planned[f"hyde({model})"]["requests"] == 3
    with Ledger() as ledger:
        entry = ledger.entries()[0]
    assert Cost.of([entry.record], entry.seconds, 9).requests == 3
    assert report.results[0].record.incomplete == {}
    r2med.evaluate(f'hyde("{model}") >> bm25', TASK)
    assert server.attempts == 9, "what was asked for a part is known when all is asked for"


def test_signals_that_ask_a_model_are_on_the_bill(server) -> None:
    model = f"tiny@{server.url}"
    for by, requests in ((f'confidence("{model}")', 9), (f'answer-agreement("{model}", samples=3)', 27)):
        result = r2med.evaluate(f"route(bm25, wordllama, by={by})", TASK).results[0]
        assert Cost.of([result.record], result.seconds, 9).requests == requests


def test_a_model_that_names_no_number_makes_its_query_hard_and_is_counted() -> None:
    def say(prompt: str, nth: int) -> Say:
        return Say(text="I cannot tell." if "tickle" in prompt else "Confidence: 90 %")

    with ChatServer(say) as server:
        spec = f'route(bm25, wordllama, by=confidence("tiny@{server.url}"), share=0.1)'
        result = r2med.evaluate(spec, TASK).results[0]
    (query, reason), *more = result.record.incomplete.items()
    assert more == []
    assert "number" in reason
    lists = {spec: r2med.evaluate(spec, TASK).results[0] for spec in ("bm25", "wordllama")}
    place = result.queries.index(query)
    for other, name in enumerate(result.queries):
        source = lists["wordllama" if name == query else "bm25"].scores["nDCG@10"]
        assert result.scores["nDCG@10"][other] == source[other]
    assert result.queries[place] == query


def test_clarity_is_the_relative_entropy_of_its_definition(biology) -> None:
    collection = biology.collection
    run = ranked("bm25", collection)
    whole = Counter(term for text in collection.documents.texts for term in analyze(text))
    total = sum(whole.values())
    for query, found in zip(collection.queries.ids, signal(Clarity(depth=3), collection, run), strict=True):
        share: dict[str, float] = {}
        for document in run[query].documents[:3]:
            terms = analyze(collection.documents.text(document))
            for term in terms:
                share[term] = share.get(term, 0.0) + 1 / len(terms) / 3
        expected = sum(part * math.log2(part / (whole[term] / total)) for term, part in share.items())
        assert found == pytest.approx(expected, rel=1e-9)


def test_agreement_is_whole_with_itself_and_chance_is_even(biology) -> None:
    collection = biology.collection
    run = ranked("bm25", collection)
    assert signal(ListAgreement("bm25"), collection, run) == [1.0] * 9
    many = replace(collection, queries=type(collection.queries)([f"q{n}" for n in range(4000)], ["x"] * 4000))
    drawn = signal(Random(seed=1), many, run)
    assert abs(np.mean(drawn) - 0.5) < 0.03
    assert drawn != signal(Random(seed=2), many, run)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("route(bm25, wordllama, by=bm25)", "bm25 is not a signal"),
        ("route(bm25, wordllama, by=bm25 >> nqc)", "is not a signal"),
        ("route(bm25, wordllama, share=1.5)", "share must lie between 0 and 1"),
        ("route(bm25, wordllama, share=0.5, threshold=1)", "share or threshold, not both"),
        ("route(bm25, wordllama, harder=up)", "harder must be low or high"),
        ("route(bm25)", "lacks strong"),
        ("route(bm25, nqc)", "has no retriever"),
        ("cascade(bm25, until=nqc>1)", "needs two systems"),
        ("cascade(bm25, wordllama)", "until"),
        ("cascade(bm25, wordllama, until=nqc)", "must be a condition such as"),
        ("cascade(bm25, wordllama, until=bm25>3)", "bm25 is not a signal"),
        ("cascade(bm25, wordllama, until=[nqc>1, wig>2])", "need 1 conditions, not 2"),
        ("cascade(bm25, wordllama, until=nqc>high)", "expected a number after '>'"),
        ("nqc >> bm25", "nqc (signal) cannot come before the retriever"),
        ("route(bm25, wordllama, by=nqc(depth=0))", "depth must be 1 or more"),
    ],
)
def test_what_cannot_be_is_one_line(spec, words) -> None:
    with pytest.raises(SpecError) as caught:
        System.parse(spec)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "spec",
    [
        "route(bm25, wordllama, by=nqc, share=0.5)",
        "route(bm25, hyde(gpt-4o) >> bm25, by=agreement(wordllama, depth=20), threshold=0.25)",
        "cascade(bm25, wordllama, until=score-gap>0.3)",
        "cascade(bm25, wordllama, bm25-classic, until=[nqc(depth=10)>1, query-length<40])",
        "rrf(route(bm25, wordllama), bm25-classic)",
        "route(bm25, wordllama, by=clarity(depth=5))",
        "route(bm25, wordllama, by=random(seed=3))",
        "route(bm25, wordllama, by=query-length)",
        "route(bm25, wordllama, by=confidence(gpt-4o))",
        "route(bm25, wordllama, by=answer-agreement(gpt-4o, samples=3))",
    ],
)
def test_specs_print_as_they_are_read(spec) -> None:
    assert System.parse(spec).spec == spec


def test_a_depth_for_all_reaches_the_systems_inside() -> None:
    deeper = System.parse("cascade(bm25, wordllama, until=nqc>1)").with_option("depth", 7)
    assert deeper.spec == "cascade(bm25(depth=7), wordllama(depth=7), until=nqc>1)"


@pytest.mark.parametrize("by", ["query-length", "query-length, harder=low", "random(seed=3)", "nqc"])
def test_a_plan_prices_the_queries_that_would_be_sent(by, biology) -> None:
    """The oracle is the route itself: which queries its strong system was asked about, and what that took."""
    asked: list[str] = []

    def answer(request) -> RawAnswer:
        asked.append(request.messages[-1].content)
        return RawAnswer(
            "crystals", usage=Usage(prompt_tokens=guess_tokens(prompt_text(request.messages)), completion_tokens=2)
        )

    add_model(scripted(answer, "m"))
    spec = f"route(bm25, hyde(m) >> bm25, by={by}, share=0.3)"
    foreseen = plan([System.parse(spec)], [TASK])[0].tasks[0].forecast["hyde(m)"]
    (result,) = r2med.evaluate(spec, TASK).results
    assert foreseen["requests"] == len(asked) == 3
    if by != "nqc":
        assert foreseen["prompt tokens"] == result.cost.prompt_tokens
        assert foreseen["first prompt"] in asked
