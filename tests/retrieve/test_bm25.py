"""BM25 gives gensim's scores and lists, the recorded figures, and keeps its index."""

from __future__ import annotations

import csv
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import needs
from r2med.data.dataset import Collection, Dataset, Generation, Texts
from r2med.data.loader import load
from r2med.data.run import Run
from r2med.data.tasks import folder_task
from r2med.errors import SpecError
from r2med.lexical import search as postings_search
from r2med.lexical.analyzer import analyze
from r2med.lexical.builder import build_index
from r2med.lexical.ranking import rank, top
from r2med.lexical.scorers import Scorer
from r2med.lexical.search import BestDocuments, Weights
from r2med.pipeline.executor.local import quiet
from r2med.pipeline.stage import Context
from r2med.pipeline.system import System
from r2med.retrieve.bm25 import BM25, BM25Classic, _known_terms
from r2med.store.cache import Cache

FORMS = [BM25, BM25Classic]


def made(documents: dict[str, str], queries: dict[str, str]) -> Collection:
    return Collection(folder_task(Path()), _texts(documents), _texts(queries))


def _texts(rows: dict[str, str]) -> Texts:
    return Texts(list(rows), list(rows.values()))


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(Cache(tmp_path / "cache"), quiet())


def lists(run: Run) -> dict[str, list[str]]:
    return {query: list(ranking.documents) for query, ranking in run}


class Gensim:
    """The published stack behind our analyzer: gensim's dictionary, model and similarity."""

    def __init__(self, documents: Sequence[str], k1: float = 0.9, b: float = 0.4) -> None:
        corpora = pytest.importorskip("gensim.corpora")
        from gensim.models import LuceneBM25Model

        tokens = [analyze(text) for text in documents]
        self.dictionary = corpora.Dictionary(tokens)
        self.model = LuceneBM25Model(dictionary=self.dictionary, k1=k1, b=b)
        bags = [self.dictionary.doc2bow(words) for words in tokens]
        self.vectors = [self.model[bag] if bag else [] for bag in bags]

    def query(self, text: str, form: type) -> list[tuple[int, float]]:
        bag = self.dictionary.doc2bow(analyze(text))
        if form is BM25Classic:
            return [(term, float(count)) for term, count in bag]
        return self.model[bag] if bag else []

    def scores(self, text: str, form: type) -> np.ndarray:
        """Sums in double precision."""
        weights = dict(self.query(text, form))
        return np.array([sum(weights.get(term, 0) * value for term, value in row) for row in self.vectors])

    def similarities(self, texts: Sequence[str], form: type) -> list[np.ndarray]:
        """As the published code gets them, in single precision from a sparse matrix."""
        return [self.index[self.query(text, form)] for text in texts]

    @cached_property
    def index(self):
        from gensim.similarities import SparseMatrixSimilarity

        options = {"normalize_queries": False, "normalize_documents": False}
        size = {"num_docs": len(self.vectors), "num_terms": len(self.dictionary)}
        return SparseMatrixSimilarity(self.vectors, **size, **options)


def drawn_text(drawn: random.Random, length: int) -> str:
    """Words with natural frequencies, stop words and unknown ones among them."""
    words = ["the", *(f"term{place}" for place in range(120))]
    return " ".join(words[min(int(drawn.paretovariate(0.4)) - 1, 120)] for _ in range(length))


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**9),
    st.sampled_from(FORMS),
    st.sampled_from([1, 5, 100]),
    st.sampled_from([(0.9, 0.4), (0.0, 0.0), (1.2, 1.0), (3.0, 0.75)]),
)
def test_gensim_gives_the_same_lists_on_drawn_corpora(
    tmp_path_factory: pytest.TempPathFactory, seed: int, form: type, depth: int, settings_: tuple[float, float]
) -> None:
    k1, b = settings_
    drawn = random.Random(seed)
    documents = {f"d{place}": drawn_text(drawn, drawn.randrange(40)) for place in range(drawn.choice([3, 30, 300]))}
    documents |= {"twin": documents["d1"], "other twin": documents["d1"], "last": "term0"}
    queries = {f"q{place}": drawn_text(drawn, drawn.randrange(25)) for place in range(4)}
    context = Context(Cache(tmp_path_factory.mktemp("cache")), quiet())
    run = form(k1=k1, b=b, depth=depth).retrieve(made(documents, queries), context)
    reference = Gensim(list(documents.values()), k1, b)
    ids = list(documents)
    assert list(run.queries) == list(queries)
    for query, text in queries.items():
        scores = reference.scores(text, form)
        expected = [place for place in rank(ids, scores)[:depth] if scores[place] > 0]
        assert list(run[query].documents) == [ids[place] for place in expected]
        np.testing.assert_allclose(run[query].scores, scores[expected], rtol=1e-12)


@pytest.fixture(scope="module", params=["scifact", "medline"])
def real(request: pytest.FixtureRequest) -> Dataset:
    return load(needs.collection(request.param))


@pytest.fixture(scope="module")
def shared_context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    return Context(Cache(tmp_path_factory.mktemp("cache")), quiet())


def test_gensim_gives_the_same_lists_on_real_collections(real: Dataset, shared_context: Context) -> None:
    documents, queries = real.collection.documents, real.collection.queries
    reference = Gensim(documents.texts)
    for form in FORMS:
        run = form().retrieve(real.collection, shared_context)
        same = 0
        for query, scores in zip(queries.ids, reference.similarities(queries.texts, form), strict=True):
            best = [place for place in rank(documents.ids, scores)[:100] if scores[place] > 0]
            ours = [documents.position[document] for document in run[query].documents]
            # Place by place: gensim's sums are in single precision, so two documents may change places only where it
            # cannot tell their scores apart.
            np.testing.assert_allclose(scores[ours], scores[best], rtol=2e-6)
            np.testing.assert_allclose(run[query].scores, scores[ours], rtol=5e-6)
            same += ours == best
        assert same >= 0.95 * len(queries)


def test_recorded_figures(real: Dataset, shared_context: Context) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    folder = real.task.folder
    assert folder is not None
    with needs.facts("bm25_reference.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["collection"] == folder.name]
    assert len(rows) == 2
    measures = {"ndcg_cut_10": "ndcg_at_10", "recall_100": "recall_at_100", "map_cut_100": "map_at_100"}
    judge = pytrec_eval.RelevanceEvaluator(real.gold.qrels, set(measures))
    for row in rows:
        form = {"query-side": BM25, "classic": BM25Classic}[row["variant"]](float(row["k1"]), float(row["b"]))
        run = form.retrieve(real.collection, shared_context)
        found = {query: dict(zip(r.documents, map(float, r.scores), strict=True)) for query, r in run}
        scored = judge.evaluate(found)
        for measure, column in measures.items():
            mean = sum(scores[measure] for scores in scored.values()) / len(real.gold.qrels)
            assert mean == pytest.approx(float(row[column]), abs=1e-4), (row["variant"], measure)
        record = shared_context.notes.facts
        assert record["vocabulary"] == int(row["vocabulary"])
        assert record["average_length"] == pytest.approx(float(row["average_length"]), abs=1e-4)


@pytest.mark.parametrize(
    ("method", "ndcg", "recall"), [("query2doc-gpt-4.1", 0.7123, 0.9493), ("lamer-gpt-4.1", 0.7253, 0.9487)]
)
def test_published_figures_of_expanded_queries(
    method: str, ndcg: float, recall: float, collections: Path, shared_context: Context
) -> None:
    """Published with Lucene's own engine, which rounds document lengths: near, not equal."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    dataset = load(collections / "scifact")
    lines = (collections / "scifact" / "expansions" / f"{method}.tsv").read_text("utf-8").splitlines()
    texts = dict(line.split("\t", 1) for line in lines)
    expanded = dataset.collection.expanded(
        [[Generation(texts[query], "replay")] for query in dataset.collection.queries.ids]
    )
    run = BM25Classic().retrieve(expanded, shared_context)
    judge = pytrec_eval.RelevanceEvaluator(dataset.gold.qrels, {"ndcg_cut_10", "recall_100"})
    scored = judge.evaluate({q: dict(zip(r.documents, map(float, r.scores), strict=True)) for q, r in run}).values()
    assert np.mean([row["ndcg_cut_10"] for row in scored]) == pytest.approx(ndcg, abs=0.003)
    assert np.mean([row["recall_100"] for row in scored]) == pytest.approx(recall, abs=0.004)


@pytest.mark.parametrize("form", FORMS)
def test_equal_scores_rank_by_id_descending(form: type, context: Context) -> None:
    documents = dict.fromkeys(("d1", "d10", "d2", "b", "c"), "fever and cough") | {"other": "rash"}
    run = form(depth=3).retrieve(made(documents, {"q": "cough"}), context)
    assert lists(run) == {"q": ["d2", "d10", "d1"]}
    assert len(set(run["q"].scores)) == 1


@pytest.mark.parametrize("form", FORMS)
def test_what_shares_no_term_is_not_found(form: type, context: Context) -> None:
    documents = {"d1": "fever", "d2": "", "d3": "x", "d4": "the"}
    queries = {"known": "FEVERS!", "unknown": "zebra", "empty": "", "stop words": "the of and", "one letter": "x"}
    run = form().retrieve(made(documents, queries), context)
    assert lists(run) == {"known": ["d1"], "unknown": [], "empty": [], "stop words": [], "one letter": ["d3"]}
    assert context.notes.warnings == ["3 of 5 queries share no term with any document and find nothing"]


@pytest.mark.parametrize("documents", [{}, {"d1": ""}, {"d1": "the", "d2": "of"}])
def test_a_corpus_without_terms(documents: dict[str, str], context: Context) -> None:
    assert lists(BM25().retrieve(made(documents, {"q": "fever"}), context)) == {"q": []}


def test_no_queries(context: Context) -> None:
    assert len(BM25().retrieve(made({"d": "fever"}, {}), context)) == 0


def test_text_beyond_ascii(context: Context) -> None:
    documents = {
        "greek": "TNF-α blockade",
        "cjk": "東京の症例",
        "emoji": "pain 😀",
        "accent": "Ménière",
        "odd": "a\ud800b",
    }
    queries = {"q1": "α", "q2": "京", "q3": "😀", "q4": "MÉNIÈRE", "q5": "\ud800"}
    run = BM25().retrieve(made(documents, queries), context)
    assert lists(run) == {"q1": ["greek"], "q2": ["cjk"], "q3": ["emoji"], "q4": ["accent"], "q5": []}


def test_drop_self_makes_room_for_another(context: Context) -> None:
    documents = {f"p{place}": "fever " * (place + 1) for place in range(4)}
    collection = made(documents, {"p3": "fever", "q": "fever"})
    kept = BM25(depth=2).retrieve(collection, context)
    dropped = BM25(depth=2, drop_self=True).retrieve(collection, context)
    assert lists(kept) == {"p3": ["p3", "p2"], "q": ["p3", "p2"]}
    assert lists(dropped) == {"p3": ["p2", "p1"], "q": ["p3", "p2"]}


def test_the_query_is_weighted_as_a_document_or_not(context: Context) -> None:
    """A rare term outweighs a repeated common one in the published form only."""
    documents = {"d1": "rare", "d2": "common", **{f"x{place}": "common filler" for place in range(8)}}
    collection = made(documents, {"q": "rare " + "common " * 5})
    assert lists(BM25().retrieve(collection, context))["q"][0] == "d1"
    assert lists(BM25Classic().retrieve(collection, context))["q"][0] == "d1"
    collection = made(documents, {"q": "rare " + "common " * 20})
    assert lists(BM25().retrieve(collection, context))["q"][0] == "d1"
    assert lists(BM25Classic().retrieve(collection, context))["q"][0] == "d2"


def test_generations_are_searched_with(context: Context) -> None:
    documents = {"d1": "pallor", "d2": "anaemia", "d3": "iron"}
    collection = made(documents, {"q1": "pallor", "q2": "pallor", "q3": "pallor"})
    collection = collection.expanded(
        [
            [Generation("iron", "hyde")],
            [Generation("iron", "lamer")],
            [Generation("iron", "hyde", incomplete="cut off")],
        ]
    )
    assert lists(BM25().retrieve(collection, context)) == {"q1": ["d3"], "q2": ["d3", "d1"], "q3": ["d1"]}
    joined = BM25(join="repeat(2)").retrieve(collection, context)
    assert lists(joined) == {"q1": ["d1", "d3"], "q2": ["d1", "d3"], "q3": ["d1"]}


@pytest.mark.parametrize(
    "spec",
    [
        "bm25",
        "bm25-classic",
        "bm25(k1=1.2, b=0.75)",
        "bm25-classic(depth=1000, drop_self=true)",
        'bm25(join="repeat(5)")',
        "bm25(join=concat)",
    ],
)
def test_spec_round_trip(spec: str) -> None:
    assert str(System.parse(spec)) == spec


@pytest.mark.parametrize("name", ["bm25", "bm25-classic"])
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("k1=-0.1", "k1 must be 0 or more"),
        ("b=1.1", "b must lie between 0 and 1"),
        ("b=-1", "b must lie between 0 and 1"),
        ("depth=0", "depth must be 1 or more"),
        ("join=mean", "dense retriever"),
        ("join=middle", "not known"),
        ("k2=1", "has no option"),
    ],
)
def test_bad_arguments_are_refused(name: str, option: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        System.parse(f"{name}({option})")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_refused(value: float) -> None:
    with pytest.raises(SpecError):
        BM25(k1=value)
    with pytest.raises(SpecError):
        BM25(b=value)


def test_forms_and_settings_have_results_of_their_own() -> None:
    systems = ["bm25", "bm25-classic", "bm25(k1=1.0)", "bm25(b=0.5)", "bm25(depth=10)", "bm25(drop_self=true)"]
    assert len({System.parse(spec).key() for spec in systems}) == len(systems)
    assert BM25().fingerprint()["analyzer"] == "lucene-english"


def entries(context: Context) -> list[Path]:
    return sorted((context.cache.root / "bm25").iterdir())


def test_the_index_is_built_once(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    collection = made({"d1": "fever", "d2": "cough"}, {"q": "fever"})
    first = BM25().retrieve(collection, context)

    def never(*_: object) -> None:
        raise AssertionError("built again")

    monkeypatch.setattr("r2med.retrieve.bm25.write_index", never)
    again = made({"d1": "fever", "d2": "cough"}, {"q": "fever"})
    assert lists(BM25().retrieve(again, context)) == lists(first)
    BM25Classic(k1=2.0, b=1.0).retrieve(again, context)
    assert len(entries(context)) == 1
    with pytest.raises(AssertionError, match="built again"):
        BM25().retrieve(made({"d1": "fever", "d2": "coughs"}, {"q": "fever"}), context)


def test_renamed_documents_have_an_index_of_their_own(context: Context) -> None:
    """Ids break ties, so an index is of no use under other ids."""
    BM25().retrieve(made({"a": "fever", "b": "fever"}, {"q": "fever"}), context)
    renamed = BM25().retrieve(made({"z": "fever", "b": "fever"}, {"q": "fever"}), context)
    assert lists(renamed) == {"q": ["z", "b"]}
    assert len(entries(context)) == 2


FILES = ["terms.txt", "offsets.npy", "documents.npy", "values.npy", "lengths.npy", "ties.npy", "meta.json"]
DAMAGES: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "changed": lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\xff"),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "empty": lambda path: path.write_bytes(b""),
    "of another kind": lambda path: path.write_bytes(b"[1, 2]"),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_index_is_built_again(name: str, damage: Callable[[Path], object], context: Context) -> None:
    collection = made({f"d{place}": f"fever {place} days" for place in range(30)}, {"q": "fever for 7 days"})
    sound = BM25().retrieve(collection, context)
    entry = entries(context)[0]
    damage(entry / name)
    healed = BM25().retrieve(collection, context)
    assert lists(healed) == lists(sound)
    assert np.array_equal(healed["q"].scores, sound["q"].scores)
    assert {path.name for path in entry.iterdir()} >= {name}


def test_scores_do_not_depend_on_what_is_asked_beside(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = random.Random(5)
    documents = {f"d{place}": drawn_text(drawn, 30) for place in range(200)}
    queries = {f"q{place}": drawn_text(drawn, 12) for place in range(9)}
    together = BM25(depth=7).retrieve(made(documents, queries), context)
    monkeypatch.setattr("r2med.lexical.search._SCORES_AT_ONCE", 450)
    batches = BM25(depth=7).retrieve(made(documents, queries), context)
    for query, text in queries.items():
        alone = BM25(depth=7).retrieve(made(documents, {query: text}), context)
        for other in (together, batches):
            assert list(other[query].documents) == list(alone[query].documents)
            assert np.array_equal(other[query].scores, alone[query].scores)


def _best_of_all(scorer: Scorer, weights: Weights, hidden: int, depth: int) -> BestDocuments:
    """Without any shortcut: every document is scored."""
    scores = np.zeros(len(scorer.index.lengths))
    for number in sorted(weights, key=lambda number: (4 * scorer.df(number) > len(scores), number)):
        documents, values = scorer.index.postings(number)
        scores[documents] += weights[number] * scorer.impacts(number, documents, values)
    scores[hidden : hidden + 1] = 0
    best = top(scores, depth, scorer.index.ties)
    best = best[scores[best] > 0]
    return BestDocuments(best, scores[best])


@pytest.mark.parametrize(("rare", "in_question"), [(64, 256), (1 << 20, 2), (1 << 20, 1)])
def test_no_shortcut_changes_a_bit(rare: int, in_question: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Common terms added early, late or only where they matter, in any batch: the same."""
    drawn = random.Random(rare + in_question)
    texts = [drawn_text(drawn, drawn.randrange(1, 60)) for _ in range(3000)]
    texts += texts[:40]  # ties
    index = build_index(Texts([f"d{drawn.random()}" for _ in texts], texts))
    decided: list[bool] = []
    is_decided = postings_search._Sums.is_decided
    for form, k1, b in ((BM25(), 0.9, 0.4), (BM25Classic(), 1.2, 1.0), (BM25Classic(), 0.0, 0.0)):
        scorer = Scorer(index, k1, b)
        queries = [
            form.weigh(_known_terms(drawn_text(drawn, size), index.number), scorer) for size in (0, 1, 5, 30, 30, 90)
        ]
        hidden = [drawn.choice([-1, 7]) for _ in queries]
        for depth in (1, 10, 100):
            expected = [_best_of_all(scorer, *row, depth) for row in zip(queries, hidden, strict=True)]
            with monkeypatch.context() as patch:
                patch.setattr(postings_search, "_FEW", 0)
                patch.setattr(postings_search, "_RARE", rare)
                patch.setattr(postings_search, "_CANDIDATES", in_question)
                patch.setattr(postings_search, "_SCORES_AT_ONCE", 2 * len(texts))
                patch.setattr(
                    postings_search._Sums, "is_decided", lambda *args: decided.append(is_decided(*args)) or decided[-1]
                )
                found = list(scorer.best(queries, depth, hidden))
            of_few = list(scorer.best(queries, depth, hidden))
            for one, other in zip([*found, *of_few], [*expected, *expected], strict=True):
                assert one.places.tolist() == other.places.tolist()
                assert one.scores.tolist() == other.scores.tolist()
    assert any(decided), "the way that is tried is taken"


def test_a_shallow_list_is_the_top_of_a_deep_one(context: Context) -> None:
    """Common terms are added only where they can matter; a full depth leaves nothing out."""
    drawn = random.Random(11)
    documents = {f"d{place}": drawn_text(drawn, drawn.randrange(5, 60)) for place in range(900)}
    collection = made(documents, {f"q{place}": drawn_text(drawn, 20) for place in range(30)})
    for form in FORMS:
        deep = form(depth=900).retrieve(collection, context)
        for depth in (1, 10, 100):
            shallow = form(depth=depth).retrieve(collection, context)
            assert lists(shallow) == {query: found[:depth] for query, found in lists(deep).items()}


def test_searching_needs_no_heavy_imports(tmp_path: Path) -> None:
    script = """
import json, sys
from pathlib import Path
from r2med.data.dataset import Collection, Texts
from r2med.data.tasks import folder_task
from r2med.pipeline.executor.local import quiet
from r2med.retrieve.bm25 import BM25
from r2med.pipeline.stage import Context
from r2med.store.cache import Cache
collection = Collection(folder_task(Path()), Texts(["d1"], ["fever"]), Texts(["q1"], ["fever"]))
run = BM25().retrieve(collection, Context(Cache(Path(sys.argv[1])), quiet()))
heavy = {"polars", "rich", "huggingface_hub"} & set(sys.modules)
print(json.dumps([list(run["q1"].documents), sorted(heavy)]))
"""
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
            env=dict(os.environ),
        )
        assert json.loads(done.stdout) == [["d1"], []]
