"""Late interaction as a person uses it: alone, after another retriever, from the cache, with a broken checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file
from starlette.testclient import TestClient

import r2med
from late_models import reference, save_jina, save_native, save_plain, save_pylate, save_stanford
from needs import TRAINED
from r2med.cli.main import app
from r2med.data.tasks import task
from r2med.encode.late_interaction import TokenEncoder
from r2med.encode.maxsim import MaxSimIndex
from r2med.encode.resolve import encoder_for
from r2med.encode.vectors import TokenStore
from r2med.errors import R2medError
from r2med.lexical.ranking import id_order
from r2med.pipeline.executor.local import Executor
from r2med.pipeline.stage import Context
from r2med.pipeline.system import System
from r2med.store.cache import Cache
from r2med.store.columns import text_hashes
from r2med.web.access import Access
from r2med.web.app import create_app
from r2med.web.library import Library
from spreading import as_bytes, run_in_shards

TASK = "sample/Biology"
SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_pylate("modernbert", tmp_path_factory.mktemp("late") / "tiny", model_type="ColBERT", query_length=48)


@pytest.fixture(autouse=True)
def _own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))


@pytest.fixture
def context(tmp_path):
    return Context(Cache(tmp_path / "cache"), Executor())


@pytest.fixture(scope="module")
def trained():
    """A model that learned something."""
    return TRAINED / "late"


@pytest.fixture(scope="module")
def expected(trained):
    """Every document's score for every query, by the reference library."""
    collection, theirs = r2med.load(TASK).collection, reference(trained)
    queries = theirs.encode_query(list(collection.queries.texts), convert_to_numpy=True)
    documents = theirs.encode_document(list(collection.documents.texts), convert_to_numpy=True)
    return theirs.similarity(queries, documents).numpy()


def _scores(run, collection):
    place = collection.documents.position
    return {
        query: {place[name]: score for name, score in zip(ranking.documents, ranking.scores.tolist(), strict=True)}
        for query, ranking in run
    }


@pytest.mark.parametrize("before", ["", "bm25 >> "])
def test_shards_make_the_lists_of_one_command(model, context, before, tmp_path, monkeypatch):
    monkeypatch.setattr(TokenEncoder, "batch_tokens", 400)
    system, collection = f"{before}colbert({model}, store=int8, depth=20)", r2med.load(TASK).collection
    alone = as_bytes(System.parse(system).run(collection, context))
    run, done = run_in_shards(system, collection, tmp_path / "other", 3, monkeypatch)
    assert as_bytes(run) == alone
    assert len(set(done)) == len(done) > 5, "each block once"


@pytest.mark.parametrize(("store", "apart"), [("float32", 2e-5), ("float16", 0.02), ("int8", 0.3)])
def test_it_searches_exactly_and_its_scores_are_the_librarys(trained, expected, context, store, apart):
    collection = r2med.load(TASK).collection
    run = System.parse(f"colbert({trained}, store={store}, depth=20)").run(collection, context)
    for row, (query, found) in zip(expected, _scores(run, collection).items(), strict=True):
        worst = min(found.values())
        assert len(found) == 20, query
        assert all(abs(row[place] - score) < apart for place, score in found.items())
        assert all(row[place] < worst + 2 * apart for place in range(len(row)) if place not in found)


def test_after_a_retriever_it_reranks_the_candidates_and_leaves_the_rest(trained, expected, context):
    collection = r2med.load(TASK).collection
    before = System.parse("bm25").run(collection, context)
    run = System.parse(f"bm25 >> colbert({trained}, depth=10, store=float32)").run(collection, context)
    for row, (query, ranking) in zip(expected, run, strict=True):
        first, candidates = list(ranking.documents[:10]), list(before[query].documents)
        assert set(first) == set(candidates[:10])
        assert list(ranking.documents[10:]) == candidates[10:]
        scores = [row[collection.documents.position[name]] for name in first]
        np.testing.assert_allclose(ranking.scores[:10], scores, atol=2e-5)
        assert scores == sorted(scores, reverse=True)


def test_a_document_is_encoded_once_whoever_asks_for_it(model, context, monkeypatch):
    collection = r2med.load(TASK).collection
    System.parse(f"bm25 >> colbert({model}, depth=10)").run(collection, context)
    again = Context(context.cache, Executor())
    System.parse(f"colbert({model})").run(collection, again)
    facts = again.notes.facts[f"colbert({model})"]
    assert 0 < facts["documents"]["encoded"] < facts["documents"]["texts"]
    assert facts["queries"]["encoded"] == 0
    monkeypatch.setattr("r2med.encode.late_interaction.LoadedEncoder", None)  # nothing is left to encode
    last = System.parse(f"colbert({model}, depth=30)").run(collection, Context(context.cache, Executor()))
    assert len(last) == len(collection.queries)


def test_what_decides_the_figure_is_recorded_and_is_part_of_the_key(model):
    report = r2med.evaluate([f"colbert({model})", f"bm25 >> colbert({model}, query_length=16)"], TASK)
    [alone, after] = [result.record.notes for result in report.results]
    told = alone[f"colbert({model})"]
    assert told["queries"]["prefix"] == "[Q] "
    assert told["queries"]["expansion"] == "fixed"
    assert told["queries"]["max_tokens"] == 48
    assert told["documents"]["prefix"] == "[D] "
    assert told["documents"]["max_tokens"] == 60
    assert told["documents"]["dtype"] == "float32"
    assert told["documents"]["truncated"] > 0
    assert told["index"] == "float16"
    assert after[f"colbert({model}, query_length=16)"]["queries"]["max_tokens"] == 16
    options = ("", ", query_length=16", ", document_length=20", ", expansion=off", ", dtype=bfloat16", ", store=int8")
    keys = {System.parse(f"{before}colbert({model}{each})").key() for each in options for before in ("", "bm25 >> ")}
    assert len(keys) == 2 * len(options)


def test_a_flipped_bit_costs_one_text_and_changes_no_list(model, context, tmp_path):
    collection = r2med.load(TASK).collection
    system = System.parse(f"colbert({model})")
    first = system.run(collection, context)
    for rows in (tmp_path / "home" / "vectors").glob("*/*.rows"):
        data = bytearray(rows.read_bytes())
        data[len(data) // 2] ^= 64
        rows.write_bytes(data)
    again = Context(context.cache, Executor())
    assert _scores(system.run(collection, again), collection) == _scores(first, collection)
    assert again.notes.facts[str(system)]["documents"]["encoded"] == 1
    assert any("1 vectors of tiny" in sentence for sentence in again.notes.warnings)


def _add(name, folder, file="model.safetensors"):
    weights = load_file(folder / file)
    save_file(weights | {name: torch.ones(4, 4)}, folder / file, {"format": "pt"})


def _drop(part, folder):
    file = folder / "model.safetensors"
    save_file({name: rows for name, rows in load_file(file).items() if part not in name}, file, {"format": "pt"})


def _foreign_code(folder):
    """Weights that no class of the library knows, and code that does."""
    save_stanford("bert", folder)
    config = json.loads((folder / "config.json").read_text()) | {"auto_map": {"AutoModel": "mine.Mine"}}
    (folder / "config.json").write_text(json.dumps(config))
    _drop("layer.1.", folder)


def _unknown_code(folder):
    save_jina(folder)
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "mine"}
    (folder / "config.json").write_text(json.dumps(config))


def _old_code(folder):
    """Code that leaves out what transformers 5 asks of a model, as code that was written for an older one does."""
    file = save_jina(folder) / "modeling_rotary.py"
    file.write_text(file.read_text().replace("        self.post_init()\n", ""))


def _wrong_size(folder):
    config = {"in_features": 64, "out_features": 16, "bias": False}
    (save_pylate("bert", folder) / "1_Dense" / "config.json").write_text(json.dumps(config))


def _unknown_module(folder):
    file = save_pylate("bert", folder) / "modules.json"
    modules = json.loads(file.read_text())
    file.write_text(json.dumps([*modules, {"idx": 2, "name": "2", "path": "2_Router", "type": "mine.Router"}]))


def _one_vector(folder):
    save_pylate("bert", folder)
    (folder / "config_sentence_transformers.json").write_text("{}")


def _failing_code(folder):
    file = save_jina(folder) / "modeling_rotary.py"
    file.write_text(file.read_text().replace("kind = self.embeddings", "raise TypeError; kind = self.embeddings"))


_DROPPED = "1 weight of its files would be dropped, linear_64.weight among them"
_DENSE = "1_Dense/model.safetensors"


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (lambda folder: _add("linear_64.weight", save_stanford("bert", folder)), _DROPPED),
        (lambda folder: _add("linear_64.weight", save_jina(folder)), _DROPPED),
        (lambda folder: _add("linear_64.weight", save_pylate("modernbert", folder)), _DROPPED),
        (lambda folder: _add("linear_64.weight", save_native("bert", folder)), _DROPPED),
        (lambda folder: _add("residual.weight", save_pylate("bert", folder), _DENSE), "not those of the layer"),
        (lambda folder: _add("other.weight", save_native("bert", folder), _DENSE), "not those of the layer"),
        (lambda folder: _drop("linear.weight", save_stanford("bert", folder)), "no linear.weight among its weights"),
        (lambda folder: _drop("linear.weight", save_jina(folder)), "no linear.weight among its weights"),
        (lambda folder: _drop("layers.1.", save_jina(folder)), "its files lack 16 weights of the model, layers.1."),
        (_foreign_code, "it comes with Python code of its own: add remote_code=true if you trust it"),
        (_unknown_code, "runs Python code of its own; add remote_code=true if you trust it"),
        (_unknown_module, "has a module Router that r2med cannot run, and will not leave out"),
        (_one_vector, "gives a text one vector, not one for each token"),
        (lambda folder: save_plain("bert", folder), "its projection would be random"),
        (lambda folder: folder.mkdir(), "not a model (no config.json)"),
        (lambda folder: save_stanford("bert", folder, query_maxlen="many"), "its settings are not what"),
        (lambda folder: save_pylate("bert", folder, query_prefix=3), "its settings are not what"),
        (lambda folder: save_pylate("bert", folder, document_length="x"), "document_length must be a whole number"),
        (_wrong_size, "its weights are not those of the layer"),
        (
            lambda folder: save_native("bert", folder, query_expansion={"strategy": "fixed", "length": 200}),
            "128 tokens",
        ),
    ],
)
def test_a_checkpoint_of_which_a_part_would_be_left_out_is_refused_in_one_line(spoil, line, tmp_path, context):
    spoil(tmp_path / "model")
    check_refused(f"colbert({tmp_path / 'model'})", line, context)


def check_refused(system, line, context):
    """Running it ends in one line."""
    with pytest.raises(R2medError) as told:
        System.parse(system).run(r2med.load(TASK).collection, context)
    assert line in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (lambda folder: _add("linear_64.weight", save_jina(folder)), _DROPPED),
        (lambda folder: _drop("layers.1.", save_jina(folder)), "its files lack 12 weights of the model, encoder."),
        (_old_code, "without remote_code=true, transformers' own class runs this model"),
        (_failing_code, "its own Python code does not run with transformers "),
    ],
)
def test_code_that_is_trusted_leaves_out_nothing_and_fails_in_one_line(spoil, line, tmp_path, context):
    spoil(tmp_path / "model")
    check_refused(f"colbert({tmp_path / 'model'}, remote_code=true)", line, context)


@pytest.mark.parametrize("save", [save_stanford, save_pylate, save_native])
def test_a_late_checkpoint_is_never_read_as_an_encoder_without_its_projection(save, tmp_path, monkeypatch):
    folder = save("bert", tmp_path / "model")
    (folder / "artifact.metadata").unlink(missing_ok=True)  # the class in config.json says enough
    assert str(System.parse(str(folder))) == f"colbert({folder})"
    monkeypatch.chdir(tmp_path)
    for options in ({}, {"pooling": "mean"}):
        with pytest.raises(R2medError, match=r"gives each token a vector, not a text one: write colbert\(model\)"):
            encoder_for("model", options, task("Biology"))


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
@pytest.mark.parametrize("seed", range(4))
def test_the_lists_are_those_of_plain_arithmetic_for_any_lengths_blocks_and_memory(precision, seed, monkeypatch):
    monkeypatch.setattr("r2med.encode.maxsim._ROWS", (7, 16, 37, 256)[seed])
    monkeypatch.setattr("r2med.encode.maxsim._BLOCK", (1, 50, 64, 1024)[seed])
    rng = np.random.default_rng(seed)
    texts = [f"text {number % 37}" for number in range(60)]  # several are there twice
    store = TokenStore({"model": "random"}, precision)
    hashes = text_hashes(texts)
    vectors = {text: rng.normal(size=(rng.integers(1, 40), 12)).astype(np.float32) for text in dict.fromkeys(texts)}
    for part in (list(vectors)[:20], list(vectors)[20:]):  # in two shards, not in the order of the documents
        with store.writer() as writer:
            part = part[::-1]
            writer.append(text_hashes(part), np.ones(len(part), np.int64), [vectors[text] for text in part])
    store.refresh()
    documents = store.vectors(store.find(hashes))
    queries = [rng.normal(size=(count, 12)).astype(np.float32) for count in (1, 5, 32)]
    kept = [documents.of(place).astype(np.float64) for place in range(len(documents))]
    plain = np.array([[(rows @ query.T).max(axis=0).sum() for rows in kept] for query in queries]).astype(np.float32)
    ties = id_order([f"d{number}" for number in range(60)])
    small, large = (MaxSimIndex(documents, memory, unit=False) for memory in (1, 1 << 29))
    hits, others = (index.search(queries, 25, ties) for index in (small, large))
    assert np.array_equal(hits.places, others.places)
    for row, places, scores in zip(plain, hits.places, hits.scores, strict=True):
        order = np.lexsort((ties, -row))[:25]
        assert places.tolist() == order.tolist()
        np.testing.assert_array_equal(scores, row[order])


def _check_words_find_themselves(seen):
    """A word that the document has as well is what a model that learned something matches it with, as a rule."""
    there = set(seen["text"].lower().split())
    pairs = [(match["query"].lower(), match["document"].lower()) for match in seen["tokens"] if match["written"]]
    shared = [word == other for word, other in pairs if word in there]
    assert not shared or np.mean(shared) > 0.5


def test_inspect_says_which_token_of_a_document_each_token_of_the_query_matched(trained, tmp_path):
    systems = [f"colbert({trained}, store=float32)", f"bm25 >> colbert({trained}, store=float32)"]
    r2med.evaluate(systems, TASK)
    for system in systems:
        asked = ["inspect", system, "--tasks", TASK, "--docs", "3", "--worst", "2"]
        done = CliRunner().invoke(app, [*asked, "--json", "--html", str(tmp_path / "cases.html")])
        assert done.exit_code == 0, done.output
        jsonschema.validate(json.loads(done.stdout), json.loads((SCHEMAS / "inspect.json").read_text()))
        for case in json.loads(done.stdout):
            for seen in case["side"]["top"]:
                assert sum(match["similarity"] for match in seen["tokens"]) == pytest.approx(seen["score"], abs=1e-3)
                assert len(seen["tokens"]) <= 64
                _check_words_find_themselves(seen)
                for match in seen["tokens"]:
                    inside = match["start"] >= 0
                    assert not inside or seen["text"][match["start"] : match["end"]] == match["document"]
                    assert not match["written"] or match["query"] in case["text"]
        page = (tmp_path / "cases.html").read_text()
        assert '<mark class="query" title="' in page
        shown = CliRunner().invoke(app, asked).stdout
        assert "tokens: " in shown
        assert "markers and masks add" in shown


def test_the_query_page_shows_the_matches_in_its_lists(trained, tmp_path):
    system = f"bm25 >> colbert({trained})"
    r2med.evaluate(system, TASK)
    query = r2med.load(TASK).collection.queries.ids[0]
    server = create_app(Library(tmp_path / "home" / "ledger.sqlite"), Access(None))
    with TestClient(server, base_url="http://127.0.0.1") as client:
        page = client.get("/query", params={"task": TASK, "a": system, "query": query}).text
    assert page.count("Matched tokens") == 10
    assert '<mark class="query" title="' in page


def test_what_breaks_off_is_taken_up_at_the_last_batch(model, context, monkeypatch):
    collection, system = r2med.load(TASK).collection, System.parse(f"colbert({model})")
    encode, batches = TokenEncoder.encode, []

    def breaks_off(encoder, texts, role):
        if len(batches) == 3:
            raise KeyboardInterrupt
        batches.append(len(texts))
        return encode(encoder, texts, role)

    monkeypatch.setattr(TokenEncoder, "batch_tokens", 600)
    monkeypatch.setattr(TokenEncoder, "encode", breaks_off)
    with pytest.raises(KeyboardInterrupt):
        system.run(collection, context)
    monkeypatch.setattr(TokenEncoder, "encode", encode)
    again = Context(context.cache, Executor())
    left = system.retriever.forecast(collection, again)["documents to encode"]
    assert left == len(collection.documents) - sum(batches)
    system.run(collection, again)
    assert again.notes.facts[str(system)]["documents"]["encoded"] == left
