"""Learned sparse retrieval: the vectors of sentence-transformers, searched exactly, kept, pruned and explained."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")

import sparse_models as tiny
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import SpladePooling

import r2med
from needs import TRAINED
from r2med.cli.main import app
from r2med.data.dataset import Collection, Texts
from r2med.data.run import Run
from r2med.data.tasks import folder_task, task
from r2med.encode.cards import cards
from r2med.encode.encoder import Role
from r2med.encode.resolve import encoder_for, sparse_encoder_for, sparse_names
from r2med.encode.sparse import SparseTextEncoder
from r2med.encode.vectors import SparseStore
from r2med.errors import R2medError, SpecError
from r2med.lexical.builder import write_vector_index
from r2med.lexical.index import InvertedIndex
from r2med.lexical.ranking import rank
from r2med.lexical.scorers import ImpactScorer, pruned
from r2med.lexical.vectors import SparseVectors
from r2med.pipeline.executor.local import quiet
from r2med.pipeline.registry import build_system
from r2med.pipeline.stage import Context
from r2med.pipeline.system import System
from r2med.retrieve.sparse import Splade
from r2med.store.cache import Cache
from spreading import as_bytes, run_in_shards


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory):
    """A folder with a tiny model of each kind, and the models as their library has them."""
    folder = tmp_path_factory.mktemp("sparse")
    (folder / "trained").symlink_to(TRAINED / "sparse")
    trained = SparseEncoder(str(folder / "trained"), device="cpu")
    return folder, {kind: tiny.save(kind, folder / kind) for kind in tiny.KINDS} | {"trained": trained}


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(Cache(tmp_path / "cache"), quiet())


def reference(model, texts: list[str], role: Role) -> np.ndarray:
    encode = model.encode_query if role is Role.QUERY else model.encode_document
    return encode(texts, convert_to_sparse_tensor=False).numpy()


def collection(documents: dict[str, str], queries: dict[str, str]) -> Collection:
    texts = (Texts(list(rows), list(rows.values())) for rows in (documents, queries))
    return Collection(folder_task(Path("t")), *texts)


DOCUMENTS = {f"d{place}": text for place, text in enumerate([*tiny.TEXTS, "gout and pain", "rash; cough; fever"])}
DOCUMENTS |= {"twin-a": "ataxia and tremor", "twin-b": "ataxia and tremor", "blank": " "}
QUERIES = {"q1": "copper rings of the cornea", "q2": "what lowers glucose?", "d3": "aspirin", "q4": "tremor"}


@pytest.mark.parametrize("kind", [*tiny.KINDS, "trained"])
@pytest.mark.parametrize("role", list(Role))
def test_vectors_are_those_of_sentence_transformers(models, kind: str, role: Role) -> None:
    folder, library = models
    used = sparse_encoder_for(str(folder / kind), {"device": "cpu"}, task("Biology"))
    wanted = reference(library[kind], tiny.TEXTS, role)
    assert 0 < (wanted > 0).sum() < wanted.size
    np.testing.assert_allclose(used.encode(tiny.TEXTS, role), wanted, atol=1e-5, rtol=0)
    # The longest text is cut where the library cuts it, and shared batches change nothing.
    np.testing.assert_allclose(used.encode(tiny.TEXTS[2:3], role), wanted[2:3], atol=1e-5, rtol=0)


def test_every_card_has_a_tiny_model_of_its_architecture(models) -> None:
    assert set(sparse_names()) == tiny.ARCHITECTURES.keys()
    for name, kind in tiny.ARCHITECTURES.items():
        used = sparse_encoder_for(str(models[0] / kind), {"device": "cpu"}, task("Biology")).card
        assert (used.pooling, bool(used.query_table)) == (cards()[name].pooling, bool(cards()[name].query_table))


def test_other_poolings_prompts_limits_and_layouts(models, tmp_path: Path) -> None:
    pooling = SpladePooling("sum", activation_function="log1p_relu")
    told = {"pooling": pooling, "prompts": {"query": "find: ", "document": ""}, "max_active_dims": 7}
    made = tiny.save("bert", tmp_path / "made", **told)
    used = sparse_encoder_for(str(tmp_path / "made"), {"device": "cpu"}, task("Biology"))
    for role in Role:
        wanted = reference(made, tiny.TEXTS, role)
        np.testing.assert_allclose(used.encode(tiny.TEXTS, role), wanted, atol=1e-5, rtol=0)
        assert (wanted > 0).sum(axis=1).max() == 7
    assert used.prompted("x", Role.QUERY) == "find: x"
    listed = tmp_path / "listed"
    shutil.copytree(models[0] / "inference-free-distilbert-v3", listed)
    wanted = reference(models[1]["inference-free-distilbert-v3"], tiny.TEXTS, Role.QUERY)
    tiny.listed_table(listed)
    used = sparse_encoder_for(str(listed), {"device": "cpu"}, task("Biology"))
    np.testing.assert_allclose(used.encode(tiny.TEXTS, Role.QUERY), wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["trained", "inference-free-distilbert-v3", "autoencoder"])
def test_lists_are_the_whole_product_ranked_by_the_one_rule(models, context: Context, kind: str) -> None:
    folder, library = models
    stage = Splade(str(folder / kind), device="cpu", depth=5, drop_self=True)
    found = stage.retrieve(collection(DOCUMENTS, QUERIES), context)
    readable = {name: text for name, text in DOCUMENTS.items() if text.strip()}
    queries = reference(library[kind], list(QUERIES.values()), Role.QUERY)
    scores = queries.astype(np.float64) @ reference(library[kind], list(readable.values()), Role.DOCUMENT).T
    for row, query in zip(scores, QUERIES, strict=True):
        names = [name for name in readable if name != query]
        values = np.array([score for name, score in zip(readable, row, strict=True) if name != query])
        order = [place for place in rank(names, values) if values[place] > 0][:5]
        assert list(found[query].documents) == [names[place] for place in order]
        np.testing.assert_allclose(found[query].scores, values[order], rtol=1e-5)
    assert any("1 document without text" in line for line in context.notes.warnings)
    assert context.notes.facts["documents"]["truncated"] == 1


def test_shards_make_the_lists_of_one_command(models, context: Context, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(SparseTextEncoder, "batch_tokens", 100)
    system = f"splade({models[0] / 'inference-free-distilbert-v3'}, device=cpu)"
    data = r2med.load("sample/MedQA-Diag").collection
    alone = as_bytes(System.parse(system).run(data, context))
    run, done = run_in_shards(system, data, tmp_path / "other", 3, monkeypatch)
    assert as_bytes(run) == alone
    assert len(set(done)) == len(done) > 5, "each block once"


def test_vectors_are_kept_and_a_damaged_one_is_made_again(models, context: Context, tmp_path: Path) -> None:
    stage = Splade(str(models[0] / "bert"), device="cpu")
    data = collection(DOCUMENTS, QUERIES)
    assert stage.forecast(data, context)["documents to encode"] == 9, "equal texts count once, blank ones not"
    first = stage.retrieve(data, context)
    assert stage.forecast(data, context) == {"documents to encode": 0, "queries to encode": 0}
    more = replace(data, documents=Texts([*DOCUMENTS, "new"], [*DOCUMENTS.values(), "lead in the lung"]))
    assert stage.forecast(more, context)["documents to encode"] == 1
    again = Context(Cache(tmp_path / "cache"), quiet())
    assert lists(stage.retrieve(data, again)) == lists(first)
    assert again.notes.facts["documents"]["encoded"] == 0
    rows = max((tmp_path / "home" / "vectors").glob("*/*.rows"), key=lambda path: path.stat().st_size)
    content = bytearray(rows.read_bytes())
    content[-1] ^= 1
    rows.write_bytes(content)
    shutil.rmtree(tmp_path / "cache")
    healed = Context(Cache(tmp_path / "cache"), quiet())
    made = stage.retrieve(data, healed)
    for query in first.queries:
        assert list(made[query].documents) == list(first[query].documents)
        np.testing.assert_allclose(made[query].scores, first[query].scores, rtol=1e-5)
    assert healed.notes.facts["documents"]["encoded"] == 1
    assert any("damaged" in line for line in healed.notes.warnings)


def lists(run: Run) -> dict[str, list[tuple[str, float]]]:
    return {query: list(zip(run[query].documents, run[query].scores.tolist(), strict=True)) for query in run.queries}


def test_pruning_says_what_it_loses(models, context: Context) -> None:
    folder = str(models[0] / "bert")
    data = collection(DOCUMENTS, QUERIES)
    whole = Splade(folder, device="cpu", depth=3).retrieve(data, context)
    assert "recall_lost" not in context.notes.facts
    for options in ({"document_terms": 3}, {"query_terms": 2}, {"document_terms": 1000}):
        fresh = Context(context.cache, quiet())
        found = Splade(folder, device="cpu", depth=3, **options).retrieve(data, fresh)
        wanted = [(set(found[query].documents), set(whole[query].documents)) for query in QUERIES]
        lost = 1 - sum(len(one & other) for one, other in wanted) / sum(len(other) for _, other in wanted)
        assert fresh.notes.facts["recall_lost"] == pytest.approx(lost, abs=1e-6)
        assert (lost == 0) == (options == {"document_terms": 1000})
        if "document_terms" in options:
            assert fresh.notes.facts["document_terms"] <= options["document_terms"]


def test_what_pruning_loses_is_not_hidden_by_lists_of_all_documents(context: Context) -> None:
    """A task of the sample has fewer documents than a list has places: whole lists have nearly all in common."""
    data = r2med.load("sample/MedQA-Diag").collection
    whole, pruned = (
        Splade(str(TRAINED / "sparse"), device="cpu", document_terms=terms).retrieve(data, context) for terms in (0, 20)
    )

    def lost(depth: int) -> float:
        exact = {query: set(whole[query].documents[:depth]) for query in whole.queries}
        kept = sum(len(exact[query] & set(pruned[query].documents[:depth])) for query in exact)
        return 1 - kept / sum(map(len, exact.values()))

    assert len(data.documents) < 100, "so that ten places are compared"
    assert lost(100) < 0.01 < 0.1 < lost(10)
    assert context.notes.facts["recall_lost"] == pytest.approx(lost(10), abs=1e-6)


weights = st.floats(-2, 5, width=32, allow_nan=False).filter(lambda value: abs(value) > 1e-3)
vectors = st.dictionaries(st.integers(0, 11), weights, max_size=8)
NAMES = [f"t{number:02}" for number in range(12)]


def as_vectors(rows: list[dict[int, float]]) -> SparseVectors:
    dense = np.zeros((len(rows), 12), dtype=np.float32)
    for place, row in enumerate(rows):
        for dimension, weight in row.items():
            dense[place, dimension] = weight
    return SparseVectors.from_rows(dense)


@settings(max_examples=30, deadline=None)
@given(st.lists(vectors, min_size=1, max_size=30), st.lists(vectors, min_size=1, max_size=4), st.integers(1, 12))
def test_any_weights_are_searched_exactly(tmp_path_factory, documents, queries, depth: int) -> None:
    """Negative ones too, in any memory."""
    ids = [f"d{place:02}" for place in range(len(documents))]
    whole, folder = as_vectors(documents), tmp_path_factory.mktemp("index")
    halves = [as_vectors(documents[:7]), as_vectors(documents[7:])]
    write_vector_index(halves, NAMES, ids, folder, 1)
    index = InvertedIndex.mapped(folder)
    dense = np.zeros((len(documents), 12))
    dense[whole.owners, whole.dimensions] = whole.weights
    asked = [{index.number(NAMES[term]): weight for term, weight in row.items()} for row in queries]
    asked = [{number: weight for number, weight in row.items() if number >= 0} for row in asked]
    exact = [
        np.array([sum(row.get(term, 0.0) * line[term] for term in range(12)) for line in dense]) for row in queries
    ]
    best = ImpactScorer(index).best(asked, depth, [-1] * len(asked))
    for found, scores in zip(best, exact, strict=True):
        order = [place for place in rank(ids, scores) if np.float32(scores[place]) > 1e-6][:depth]
        shown = scores[found.places]
        np.testing.assert_allclose(found.scores, shown, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(np.sort(shown)[-len(order) :], np.sort(scores[order]), rtol=1e-5, atol=1e-5)
    cut = pruned(index, 2)
    kept = whole.heaviest(2)
    assert cut.lengths.tolist() == kept.counts.tolist()
    assert sorted(cut.values.tolist()) == sorted(kept.weights.tolist())


SAID = {
    "splade(splade-v4)": "did you mean",
    "splade(bge)": "splade: unknown model 'bge'",
    "splade-v3(depth=0)": "depth must be 1 or more",
    "splade-v3(document_terms=-1)": "must not be negative",
    "splade-v3(pooling=cls)": "pooling must be one of splade",
    "splade-v3(join=mean)": "needs a dense retriever",
    "splade-v3(quantize=int8)": "has no option 'quantize'",
}


@pytest.mark.parametrize("spec", SAID)
def test_a_wrong_option_is_one_line(spec: str) -> None:
    with pytest.raises(SpecError, match=SAID[spec].replace("(", r"\(")) as error:
        build_system(spec)
    assert "\n" not in str(error.value)


def test_wrong_folders_are_one_line(models, tmp_path: Path) -> None:
    folder = models[0] / "bert"
    with pytest.raises(SpecError, match="is a learned sparse encoder: write splade"):
        build_system(f"{folder}").retriever and encoder_dense(folder)
    for name, change, said in (
        (
            "modules",
            {"modules.json": json.dumps([{"type": "x.BoW", "path": ""}])},
            "a module BoW that r2med cannot run",
        ),
        ("none", {}, "not a model"),
        ("head", {"config.json": json.dumps({"architectures": ["BertModel"]})}, "no head over its vocabulary"),
        ("router", {"modules.json": json.dumps([{"type": "x.Router", "path": ""}])}, "router_config.json has no"),
    ):
        (tmp_path / name).mkdir()
        for file, text in change.items():
            (tmp_path / name / file).write_text(text)
        with pytest.raises(R2medError, match=said):
            sparse_encoder_for(str(tmp_path / name), {}, task("Biology"))


def encoder_dense(folder: Path) -> None:
    from r2med.retrieve.dense import Dense

    Dense(str(folder)).encoder()


def test_a_folder_is_a_system_and_its_terms_are_seen_everywhere(models, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(models[0])
    spec = "./trained(document_terms=20)"
    assert str(build_system(spec)) == f"splade({spec.partition('(')[0]}, document_terms=20)"
    runner = CliRunner()
    told = runner.invoke(app, ["run", spec, "--tasks", "sample/MedQA-Diag"], catch_exceptions=False)
    assert "of the exact lists" in told.output, told.output
    shown = ["inspect", str(build_system(spec)), "--tasks", "sample/MedQA-Diag", "--sample", "1"]
    cases = json.loads(runner.invoke(app, [*shown, "--json"], catch_exceptions=False).output)
    top = cases[0]["side"]["top"][0]
    assert sum(term["share"] for term in top["terms"]) == pytest.approx(top["score"], rel=1e-5)
    for seen in cases[0]["side"]["top"]:
        for term in seen["terms"]:
            texts = {"query": cases[0]["text"].lower(), "document": seen["text"].lower()}
            absent = [name for name, text in texts.items() if term["term"].removeprefix("##") not in text]
            assert set(absent) <= set(texts if term["expanded"] == "both" else [term["expanded"]]), term
    assert {""} < {term["expanded"] for seen in cases[0]["side"]["top"] for term in seen["terms"]}
    heaviest = f"{top['terms'][0]['term']} {top['terms'][0]['share']:.3g}"
    assert heaviest in " ".join(runner.invoke(app, shown, catch_exceptions=False).output.split())
    runner.invoke(app, [*shown, "--html", str(tmp_path / "cases.html")], catch_exceptions=False)
    assert f"Terms: {heaviest}" in (tmp_path / "cases.html").read_text()


def test_a_dense_encoder_knows_what_it_is_not(models) -> None:
    with pytest.raises(SpecError, match="dense encoder"):
        sparse_encoder_for("bge", {}, task("Biology"))
    assert encoder_for(str(models[0] / "bert"), {"device": "cpu"}, task("Biology")).sparse
    assert SparseStore({"model": "m"}).folder != SparseStore({"model": "n"}).folder
