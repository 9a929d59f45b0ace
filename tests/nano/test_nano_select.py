"""The recipe: which documents and judgements go into a nano set, for any source."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sources import context, dataset

from r2med.data.run import Run
from r2med.data.tasks import Task
from r2med.errors import DataError, R2medError, SpecError
from r2med.nano.recipe import POLICIES, Recipe, by_rank, choose, dense_config, split_name, with_depth
from r2med.pipeline.system import System

# Few distinct texts, some blank, some equal but for blanks around them: repeats and twins are common.
TEXTS = st.sampled_from(["", "  ", "iron", " iron ", "iron\n", "zinc", "iron zinc", "zinc copper", "copper", "lupus"])


@st.composite
def sources(draw):
    count = draw(st.integers(3, 25))
    texts = [draw(TEXTS) if draw(st.booleans()) else f"iron case{n}" for n in range(count)]
    documents = [(f"d{n}", text) for n, text in enumerate(texts)]
    queries = [
        (f"q{n}", draw(st.sampled_from(["iron", "zinc copper", "case3"]))) for n in range(draw(st.integers(1, 4)))
    ]
    usable = [name for name, text in documents if text.strip()]
    if not usable:
        documents[0], usable = ("d0", "iron"), ["d0"]
    qrels = {}
    for query, _ in queries:
        judged = draw(st.dictionaries(st.sampled_from([name for name, _ in documents]), st.integers(-1, 2), max_size=5))
        qrels[query] = judged | {draw(st.sampled_from(usable)): draw(st.integers(1, 2))}
    return dataset(documents, queries, qrels)


def distinct(source):
    return {text.strip() for text in source.collection.documents.texts if text.strip()}


def relevant_texts(source, queries):
    """The texts of each query's relevant documents, with surrounding blanks and empty ones left out."""
    text = source.collection.documents.text
    return {
        query: {text(name).strip() for name, grade in source.gold.qrels[query].items() if grade > 0} - {""}
        for query in queries
    }


@settings(max_examples=150, deadline=None)
@given(sources(), st.sampled_from(POLICIES), st.data())
def test_every_nano_set_keeps_the_rules(source, policy, data):
    queries = data.draw(st.integers(1, 5), label="queries")
    kept = source.collection.queries.ids[:queries]
    wanted = relevant_texts(source, kept)
    least, most = len(set().union(*wanted.values())), len(distinct(source))
    size = data.draw(st.integers(least, most), label="documents")
    chosen = choose(source, Recipe(documents=size, queries=queries, policy=policy), context())
    nano = chosen.dataset
    ids, texts = nano.collection.documents.ids, nano.collection.documents.texts
    stripped = [text.strip() for text in texts]

    assert list(nano.collection.queries) == list(source.collection.queries)[: len(kept)]
    assert len(ids) == size
    assert all(source.collection.documents.text(name) == text for name, text in nano.collection.documents)
    assert len(set(ids)) == len(ids)
    assert len(set(stripped)) == len(stripped)
    assert all(stripped)
    # Every relevant text is in and judged for the same queries, and nothing else is judged.
    assert relevant_texts(nano, kept) == wanted
    assert {grade for judged in nano.gold.qrels.values() for grade in judged.values()} == {1}
    # The relevant ones come first, in the order of the source.
    judged = {name for judged in nano.gold.qrels.values() for name in judged}
    assert set(ids[: len(judged)]) == judged
    places = [source.collection.documents.position[name] for name in ids]
    assert places[: len(judged)] == sorted(places[: len(judged)])
    if policy == "source-order":
        assert places[len(judged) :] == sorted(places[len(judged) :])
    assert chosen.counts["positives"] == sum(map(len, nano.gold.qrels.values()))
    assert chosen.counts["documents"] == size


@settings(max_examples=50, deadline=None)
@given(sources(), st.integers(0, 3))
def test_a_draw_does_not_depend_on_the_order_of_the_source_and_grows_with_its_size(source, seed):
    largest = len(distinct(source))
    least = len(set().union(*relevant_texts(source, source.collection.queries.ids).values()))
    recipes = [Recipe(documents=size, policy="random", seed=seed) for size in range(least, largest + 1)]
    drawn = [choose(source, recipe, context()).dataset.collection.documents.ids for recipe in recipes]
    for small, large in pairwise(drawn):
        assert large[: len(small)] == small


def test_a_draw_differs_by_seed_and_not_by_order():
    rows = [(f"d{n}", f"case{n}") for n in range(50)]
    forward, backward = (dataset(each, [("q", "case1")], {"q": {"d7": 1}}) for each in (rows, rows[::-1]))

    def drawn(source, seed):
        return choose(
            source, Recipe(documents=10, policy="random", seed=seed), context()
        ).dataset.collection.documents.ids

    assert drawn(forward, 1) == drawn(backward, 1) != drawn(forward, 2)


def test_source_order_skips_what_repeats_a_relevant_text():
    source = dataset(
        [("a", "iron"), ("b", ""), ("c", "zinc"), ("d", " iron"), ("e", "zinc"), ("f", "copper")],
        [("q1", "x"), ("q2", "y")],
        {"q1": {"d": 2, "c": 0}, "q2": {"e": 1}},
    )
    chosen = choose(source, Recipe(documents=3), context())
    assert chosen.dataset.collection.documents.ids == ["d", "e", "f"]
    assert chosen.dataset.gold.qrels == {"q1": {"d": 1}, "q2": {"e": 1}}
    assert chosen.counts["skipped_repeated_texts"] == 2
    assert chosen.counts["skipped_empty_texts"] == 1


def test_of_relevant_twins_the_first_takes_over_the_judgements_of_the_other():
    source = dataset(
        [("a", "iron"), ("b", "zinc"), ("c", "iron")],
        [("q1", "x"), ("q2", "y")],
        {"q1": {"c": 1, "a": 1}, "q2": {"c": 1}},
    )
    chosen = choose(source, Recipe(documents=2), context())
    assert chosen.dataset.gold.qrels == {"q1": {"a": 1}, "q2": {"a": 1}}
    assert chosen.counts["positives_folded_or_empty"] == 1


def test_hard_takes_the_best_of_every_list_before_the_second_best():
    documents = [("r", "marrow"), *((f"d{n}", "iron " * n + "filler " * (9 - n)) for n in range(8)), ("z", "nothing")]
    source = dataset(documents, [("q1", "iron marrow"), ("q2", "filler")], {"q1": {"r": 1}, "q2": {"d3": 1}})
    system = System.parse("bm25(depth=10)")
    runs = system.run(source.collection, context())
    expected = ["r", "d3", *(name for name in by_rank([runs]) if name not in ("r", "d3"))]
    for size in (2, 4, 6):
        chosen = choose(source, Recipe(documents=size, policy="hard"), context())
        assert chosen.dataset.collection.documents.ids == expected[:size]
    everything = choose(source, Recipe(documents=10, policy="hard"), context())
    # What no list has follows in source order.
    assert everything.dataset.collection.documents.ids == [*expected, "z"]
    assert (everything.counts["filled_by_hard"], everything.counts["filled_by_source_order"]) == (7, 1)


def test_hard_goes_as_deep_as_it_must():
    documents = [(f"d{n:04}", f"iron case{n}") for n in range(900)]
    # Ten queries with one list: a tenth of what lists of their own would hold.
    queries = [(f"q{n}", "iron") for n in range(10)]
    source = dataset(documents, queries, {query: {"d0000": 1} for query, _ in queries})
    systems = ("bm25", "rrf(bm25, bm25-classic)")
    chosen = choose(source, Recipe(documents=700, policy="hard", hard_systems=systems), context())
    assert chosen.counts["filled_by_hard"] == 699
    assert "filled_by_source_order" not in chosen.counts


def test_ranks_of_several_systems_are_taken_in_turn():
    one = Run.from_lists({"q1": (["a", "b", "c"], [3, 2, 1]), "q2": ([], [])})
    two = Run.from_lists({"q1": (["c", "a"], [2, 1]), "q2": (["d"], [1])})
    assert by_rank([one, two]) == ["a", "c", "d", "b"]
    other = Run.from_lists({"q1": (["e"], [1]), "q2": (["f"], [1])})
    assert by_rank([two, other]) == ["c", "e", "d", "f", "a"]


@pytest.mark.parametrize(
    ("documents", "qrels", "size", "message"),
    [
        (
            [("a", "x"), ("b", "y"), ("c", " y")],
            {"q": {"a": 1}},
            3,
            "mine: only 2 documents with a text of their own, 3 are",
        ),
        ([("a", "x"), ("b", "y")], {"q": {"a": 1, "b": 1}}, 1, "2 relevant documents do not fit into 1"),
        ([("a", ""), ("b", "y")], {"q": {"a": 1}}, 1, "no relevant document of the query 'q' has a text"),
    ],
)
def test_sources_that_cannot_be_used(documents, qrels, size, message):
    with pytest.raises(DataError, match=message) as error:
        choose(dataset(documents, [("q", "x")], qrels), Recipe(documents=size), context())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"policy": "hrad"}, "unknown policy 'hrad'; did you mean hard"),
        ({"documents": 0}, "is none"),
        ({"queries": 0}, "is none"),
        ({"policy": "hard", "hard_systems": ()}, "at least one system"),
    ],
)
def test_recipes_that_cannot_be(wrong, message):
    with pytest.raises(R2medError, match=message):
        Recipe(**wrong)


def test_a_depth_is_set_wherever_the_retriever_stands():
    for spec in ("bm25", "bm25(k1=1.2, depth=7)", "views(bm25)", "rrf(bm25, bm25-classic, k=10)"):
        deep = with_depth(System.parse(spec), 321)
        assert deep.retriever.depth == 321
        assert with_depth(deep, System.parse(spec).retriever.depth).spec == System.parse(spec).spec


def test_names_of_configs_and_splits():
    with pytest.raises(SpecError, match="bm25 cannot be the dense system"):
        dense_config(System.parse("bm25"))
    assert split_name(Task("x/my_own set", "my_own set", "custom")) == "NanoMyOwnSet"
    assert split_name(Task("x/--", "--", "custom")) == "NanoTask"
    assert split_name(Task("x/PMC-Clinical", "PMC-Clinical", "custom")) == "NanoR2MEDPMCClinical"
