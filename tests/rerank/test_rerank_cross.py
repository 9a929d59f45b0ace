"""The cross-encoder stage: depth, kept scores, cuts that are counted, pairs that fail, and a kill in the middle."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import rerank_until_killed
import tiny
from rerank_parts import DOCUMENTS, QUERIES, collection, context, order, run_over

import r2med
from needs import TRAINED
from r2med.data.run import Run
from r2med.errors import R2medError, SpecError, StoreWarning
from r2med.models.memory import MODEL_CACHE
from r2med.pipeline.executor.local import Executor, quiet
from r2med.pipeline.executor.shards import Shards
from r2med.pipeline.stage import Requirements
from r2med.pipeline.system import System
from r2med.rerank import pair_models
from r2med.rerank import pair_scores as spread_scoring
from r2med.rerank.cross_encoder import CrossEncoder
from r2med.rerank.pair_inputs import Inputs, PairFormat, TextPair
from r2med.rerank.pair_scores import Scored, ScoreStore
from r2med.runs.ledger import Ledger

SOURCE = Path(pair_models.__file__).parents[2]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def trained() -> Path:
    """One that learned which text goes with which."""
    return TRAINED / "reranker"


@pytest.fixture(autouse=True)
def _empty_cache():
    MODEL_CACHE.clear()
    yield
    MODEL_CACHE.clear()


def test_depth_reranks_the_top_and_nothing_else(trained: Path) -> None:
    data = collection()
    before = run_over(data)
    whole = CrossEncoder(f"ce:{trained}").rerank(data, before, context())
    assert order(whole, "q1") != order(before, "q1"), "the model happens to agree; the test shows nothing"
    assert order(whole, "q2")[0] == "d3", "only this one speaks of iron"
    for depth in (1, 2, 3, 5, 100):
        own = context()
        after = CrossEncoder(f"ce:{trained}", depth=depth).rerank(data, before, own)
        for query in QUERIES:
            head, tail = order(after, query)[:depth], order(after, query)[depth:]
            assert set(head) == set(order(before, query)[:depth])
            assert tail == order(before, query)[depth:]
            assert head == [document for document in order(whole, query) if document in head]
        assert own.notes.facts["scored"] == 0, "every pair was scored before"


def test_scores_are_kept_by_text_and_setting(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = context()
    data = collection()
    run = CrossEncoder(f"ce:{trained}").rerank(data, run_over(data), first)
    assert first.notes.facts["scored"] == len(QUERIES) * len(DOCUMENTS)
    # The same texts under other names, with one document more: only that is new.
    renamed = {f"x{name}": text for name, text in DOCUMENTS.items()} | {"new": "stroke of the heart"}
    other = collection({"a": QUERIES["q1"]}, renamed)
    second = context()
    again = CrossEncoder(f"ce:{trained}").rerank(other, run_over(other), second)
    assert second.notes.facts["scored"] == 1
    ours = dict(zip(again["a"].documents, again["a"].scores.tolist(), strict=True))
    theirs = dict(zip(run["q1"].documents, run["q1"].scores.tolist(), strict=True))
    assert {name.removeprefix("x"): score for name, score in ours.items() if name != "new"} == theirs
    # Another setting shares nothing; with all scores kept the model is not even loaded.
    third = context()
    CrossEncoder(f"ce:{trained}", max_length=16).rerank(data, run_over(data), third)
    assert third.notes.facts["scored"] == first.notes.facts["scored"]
    MODEL_CACHE.clear()
    monkeypatch.setattr(pair_models, "load_pair_model", lambda *_, **__: pytest.fail("the model was loaded"))
    assert CrossEncoder(f"ce:{trained}").rerank(data, run_over(data), context()) == run


def test_a_document_that_occurs_twice_is_scored_once(model: Path) -> None:
    data = collection(documents={"d1": "gout", "d2": "gout", "d3": "asthma"})
    own = context()
    run = CrossEncoder(f"ce:{model}").rerank(data, run_over(data), own)
    assert own.notes.facts["scored"] == 2 * len(QUERIES)
    scores = dict(zip(run["q1"].documents, run["q1"].scores.tolist(), strict=True))
    assert scores["d1"] == scores["d2"]


def test_changed_weights_are_another_model(tmp_path: Path) -> None:
    folder = tiny.bert(tmp_path / "model")
    before = CrossEncoder(f"ce:{folder}").key()
    assert CrossEncoder(f"ce:{folder}").key() == before
    (folder / "config.json").write_text((folder / "config.json").read_text() + "\n")
    assert CrossEncoder(f"ce:{folder}").key() != before


class Broken:
    """A judge with something wrong with pairs of a certain length."""

    pad = 0
    positions = 0

    def __init__(self, fault: object, width: int) -> None:
        self.fault, self.width, self.calls = fault, width, 0

    def columns(self, batch):
        self.calls += 1
        lengths = batch.mask.sum(axis=1)
        found = lengths[:, None].astype(np.float32)
        hit = lengths == self.width
        if isinstance(self.fault, Exception) and hit.any():
            raise self.fault
        if isinstance(self.fault, float):
            found[hit] = self.fault
        return found

    def close(self) -> None:
        pass


LENGTHS = {"q1": "rash", "q2": "fever rash"}
BY_LENGTH = {"d1": "gout", "d2": "gout and asthma", "d3": "gout and asthma and gout"}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (math.nan, "the score of d3 is nan"),
        (math.inf, "the score of d3 is inf"),
        (RuntimeError("index 9 is out of range\nsome trace"), "d3: index 9 is out of range"),
        (MemoryError("cuda is full"), "d3: memory runs out on this pair alone; lower max_length"),
    ],
    ids=["nan", "infinite", "exception", "memory"],
)
def test_a_pair_that_fails_costs_its_query_and_no_other(
    model: Path, monkeypatch: pytest.MonkeyPatch, fault: object, reason: str
) -> None:
    # [CLS] rash [SEP] gout and asthma and gout [SEP] is the only pair of nine tokens.
    broken = Broken(fault, 9)
    monkeypatch.setattr("r2med.rerank.cross_encoder.TorchPairModel", lambda *_: broken)
    data, own = collection(LENGTHS, BY_LENGTH), context()
    before = run_over(data)
    after = CrossEncoder(f"ce:{model}", depth=3).rerank(data, before, own)
    assert own.notes.incomplete == {"q1": reason}
    assert own.notes.warnings == [
        f"ce:{model}(depth=3): 1 of 2 queries keep the order they had; the first is q1: {reason}"
    ]
    assert after["q1"].documents == before["q1"].documents
    assert after["q1"].scores.tolist() == before["q1"].scores.tolist()
    assert order(after, "q2") == ["d3", "d2", "d1"]
    # What failed is not kept: with the model mended, only that pair is scored.
    MODEL_CACHE.clear()
    monkeypatch.setattr("r2med.rerank.cross_encoder.TorchPairModel", lambda *_: Broken(None, 9))
    own = context()
    mended = CrossEncoder(f"ce:{model}", depth=3).rerank(data, before, own)
    assert own.notes.facts["scored"] == 1
    assert not own.notes.incomplete
    assert order(mended, "q1") == ["d3", "d2", "d1"]


def test_too_few_scores_cost_their_query_and_no_other(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Short(Broken):
        def columns(self, batch):
            found = super().columns(batch)
            return found[:-1] if (batch.mask.sum(axis=1) == self.width).any() else found

    monkeypatch.setattr("r2med.rerank.cross_encoder.TorchPairModel", lambda *_: Short(None, 9))
    data, own = collection(LENGTHS, BY_LENGTH), context()
    after = CrossEncoder(f"ce:{model}").rerank(data, run_over(data), own)
    assert own.notes.incomplete == {"q1": "d3: 0 scores for 1 pairs"}
    assert order(after, "q2") == ["d3", "d2", "d1"]


def test_a_model_that_fails_on_everything_is_an_error(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hopeless(Broken):
        def columns(self, batch):
            raise RuntimeError("no kernel image")

    monkeypatch.setattr("r2med.rerank.cross_encoder.TorchPairModel", lambda *_: Hopeless(None, 0))
    data = collection()
    with pytest.raises(R2medError, match="fails on every pair: no kernel image"):
        CrossEncoder(f"ce:{model}").rerank(data, run_over(data), context())


def test_out_of_memory_halves_the_batches(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Small(Broken):
        def columns(self, batch):
            if batch.ids.size > 40:
                raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
            return super().columns(batch)

    small = Small(None, 0)
    monkeypatch.setattr("r2med.rerank.cross_encoder.TorchPairModel", lambda *_: small)
    data, own = collection(), context()
    CrossEncoder(f"ce:{model}", batch_tokens=100_000).rerank(data, run_over(data), own)
    assert own.notes.facts["scored"] == len(QUERIES) * len(DOCUMENTS)
    assert not own.notes.incomplete


def test_the_document_gives_way_and_the_query_keeps_its_end(model: Path) -> None:
    tokenizer = tiny.word_tokenizer(tiny.BERT_PAIR, typed=True)
    from r2med.models.tokenizer import Tokenizer

    wrapped = Tokenizer(tokenizer.backend_tokenizer, pad=0, eos=None, special=frozenset())
    words = " ".join(tiny.WORDS[:30])

    def read(query: str, document: str, limit: int, **options: str) -> tuple[str, int, int]:
        row = Inputs(wrapped, PairFormat(limit=limit, **options)).rows([TextPair(query, document)])[0]
        assert len(row.ids) == min(limit, row.tokens)
        return tokenizer.decode(row.ids), row.tokens, row.query_lost

    assert read("why does", "gout pain", 12) == ("[CLS] why does [SEP] gout pain [SEP]", 7, 0)
    text, tokens, lost = read("why does the child", words, 12)
    assert (text, tokens, lost) == ("[CLS] why does the child [SEP] fever cough rash pain scurvy [SEP]", 37, 0)
    # Nine of the query leave no room for a document in twelve: its beginning goes, its end stays.
    text, tokens, lost = read(" ".join(tiny.WORDS[:9]), "gout and asthma and stroke and rash", 12)
    assert text == "[CLS] scurvy gout anaemia asthma sepsis [SEP] gout and asthma and [SEP]"
    assert lost == 4
    text, _, lost = read(" ".join(tiny.WORDS[:9]), "gout and asthma and stroke and rash", 12, truncate="longest")
    assert text == "[CLS] fever cough rash pain scurvy [SEP] gout and asthma and [SEP]"
    assert lost == 4
    with pytest.raises(R2medError, match="leaves none"):
        read(words, words, 4)


def test_cuts_are_counted_also_when_nothing_is_scored(model: Path) -> None:
    queries = {"q1": "gout", "q2": " ".join(tiny.WORDS[:20])}
    documents = {"d1": "asthma", "d2": " ".join(tiny.WORDS[:12])}
    data = collection(queries, documents)
    for scored in (4, 0):
        own = context()
        CrossEncoder(f"ce:{model}", max_length=16).rerank(data, run_over(data), own)
        record = own.notes.facts
        assert record["scored"] == scored
        # gout with twelve words has sixteen tokens and fits; everything with the long query does not.
        assert (record["truncated"], record["truncated_share"], record["queries_cut"]) == (2, 0.5, 1)
        assert record["first"] == "gout\nasthma"
        assert any("1 of 2 queries leave no room" in warning for warning in own.notes.warnings)


def test_strange_texts_are_scored(model: Path) -> None:
    data = collection({"q1": "", "q2": "\ud800 fever\x00"}, {"d1": "", "d2": "\udfff", "d3": "🩺" * 500, "d4": " "})
    own = context()
    CrossEncoder(f"ce:{model}").rerank(data, run_over(data), own)
    assert not own.notes.incomplete


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("bge-reranker(depth=0)", "depth must be at least 1"),
        ("bge-reranker(depht=10)", "no option 'depht'"),
        ("bge-reranker(truncate=query)", "truncate must be document or longest"),
        ("bge-reranker(backend=tf)", "backend must be torch or onnx"),
        ("bge-reranker(dtype=float8)", "unknown dtype 'float8'"),
        ("bge-reranker(head=third)", "unknown head 'third'"),
        ("bge-reranker(like=monobert)", "has a card of its own"),
        ("ce:ORG/NAME(like=monobret)", "did you mean monobert"),
        ("bge-reranker(batch_tokens=0)", "batch_tokens must be 1"),
        ("bge-reranker(100)", "values without a name"),
        ("ce:./nowhere", "no such folder"),
        ("cross-encoder(bge-rerankr)", "did you mean bge-reranker"),
        ("bge-rerankr", "did you mean bge-reranker"),
    ],
)
def test_wrong_specs_are_refused_before_anything_runs(spec: str, words: str) -> None:
    with pytest.raises(R2medError, match=words):
        System.parse(f"bm25 >> {spec}")


def test_specs_round_trip(model: Path, tmp_path: Path) -> None:
    spaced = tmp_path / "my models" / "bert"
    spaced.parent.mkdir()
    spaced.symlink_to(model)
    for spec in (
        "bm25 >> bge-reranker",
        "bm25 >> monobert(depth=10, dtype=fp16, device=cpu)",
        'bm25 >> ce:ORG/NAME(like=qwen3-reranker-0.6b, instruction="Find {target}", remote_code=true)',
        f"bm25 >> ce:{model}(max_length=32)",
        f'bm25 >> cross-encoder("{spaced}", depth=7)',
    ):
        system = System.parse(spec)
        assert str(system) == spec
        assert System.parse(str(system)) == system


def test_what_a_plan_shows_needs_no_files() -> None:
    stage = CrossEncoder("rankllama", depth=10)
    assert stage.requirements == Requirements(
        extra="torch,lora",
        hub=("meta-llama/Llama-2-7b-hf", "castorini/rankllama-v1-7b-lora-passage"),
        gpu=True,
    )
    assert stage.describe()["max_length"] == 1024
    assert CrossEncoder("bge-reranker", backend="onnx").requirements.extra == "onnx,torch"


def test_code_of_a_repository_runs_only_when_the_user_says_so() -> None:
    data = collection()
    with pytest.raises(SpecError, match="add remote_code=true if you trust it"):
        CrossEncoder("jina-reranker-v2").rerank(data, run_over(data), context())


@pytest.mark.parametrize("kind", ["no config", "encoder", "language model", "three logits", "no head", "too long"])
def test_folders_that_are_no_cross_encoders_say_so(tmp_path: Path, kind: str) -> None:
    import transformers

    folder = tmp_path / "model"
    options: dict[str, object] = {}
    match kind:
        case "no config":
            folder.mkdir()
            words = "not a model"
        case "encoder":
            config = transformers.BertConfig(vocab_size=90, **tiny.SIZES)
            tiny._save(transformers.BertModel(config), tiny.word_tokenizer(tiny.BERT_PAIR), folder)
            words = "is not a cross-encoder: it is a BertModel"
        case "language model":
            tiny.qwen3(folder)
            words = "is a language model: say which card's format it takes"
        case "three logits":
            tiny.bert(folder, labels=3)
            words = "has 3 logits for a pair; a cross-encoder has one or two"
        case "no head":
            config = transformers.BertConfig(vocab_size=90, **tiny.SIZES)
            tiny._save(transformers.BertModel(config), tiny.word_tokenizer(tiny.BERT_PAIR), folder)
            options = {"like": "monobert"}
            words = "not a cross-encoder"
        case _:
            tiny.bert(folder)
            options = {"max_length": 100}
            words = "has places for 64 tokens"
    data = collection()
    with pytest.raises(R2medError, match=words):
        CrossEncoder(f"ce:{folder}", **options).rerank(data, run_over(data), context())  # type: ignore[arg-type]


def test_a_kill_in_the_middle_repeats_less_than_one_batch(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, home = tmp_path / "batches.txt", tmp_path / "home"
    command = [sys.executable, rerank_until_killed.__file__, str(trained), str(log), "7"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "R2MED_HOME": str(home)}
    killed = subprocess.run(command, env=environment, timeout=300, capture_output=True, text=True, check=False)
    assert killed.returncode == -9, killed.stderr
    before = [int(line) for line in log.read_text().split()]
    monkeypatch.setenv("R2MED_HOME", str(home))
    monkeypatch.setattr(pair_models.TorchPairModel, "columns", pair_models.TorchPairModel.columns)
    scored, total = rerank_until_killed.rerank(str(trained), str(log), 0)
    every = [int(line) for line in log.read_text().split()]
    assert len(before) == 7
    assert sum(every) - total == before[-1], "only the batch under way was lost"
    assert scored == total - sum(before[:-1])


def test_batches_change_the_last_digits_of_a_score_and_never_the_order(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a kill the rest comes in other batches; so it does on a machine with other memory."""
    data, found, sizes = collection(), [], []
    columns = pair_models.TorchPairModel.columns
    monkeypatch.setattr(
        pair_models.TorchPairModel, "columns", lambda self, batch: sizes.append(len(batch[0])) or columns(self, batch)
    )
    for place, tokens in enumerate((1, 40, 100_000)):
        monkeypatch.setenv("R2MED_HOME", str(tmp_path / str(place)))
        sizes.clear()
        found.append(CrossEncoder(f"ce:{trained}", batch_tokens=tokens).rerank(data, run_over(data), context()))
        assert (max(sizes) == 1) == (tokens == 1), "the pairs were not scored, or not in batches of this size"
    for other in found[1:]:
        for query in QUERIES:
            assert order(other, query) == order(found[0], query)
            assert other[query].scores == pytest.approx(found[0][query].scores, rel=1e-5, abs=1e-6)


def test_a_file_of_scores_that_is_none_is_named_and_passed_over(own_home: Path) -> None:
    with ScoreStore({"model": "m"}) as store:
        store.keep({b"a" * 16: Scored(0.1)})
    (log,) = own_home.glob("scores/*/*.log")
    log.with_name(f"other-{log.name}").write_bytes(b"not a log at all, but long enough to be read as one" * 20)
    with ScoreStore({"model": "m"}) as store, pytest.warns(StoreWarning, match=r"other-.*log have a damaged header"):
        assert store.scored([b"a" * 16]) == {b"a" * 16: Scored(0.1)}


def test_scores_that_cannot_be_kept_are_a_warning(own_home: Path) -> None:
    (own_home / "scores").write_text("a file where a folder should be")
    with ScoreStore({"model": "m"}) as store, pytest.warns(StoreWarning, match="cannot keep scores in .*: Not a dir"):
        store.keep({b"a" * 16: Scored(0.1)})


def test_the_store_tells_settings_apart() -> None:
    with ScoreStore({"model": "m", "max_length": 1}) as one, ScoreStore({"model": "m", "max_length": 2}) as two:
        one.keep({b"a" * 16: Scored(0.1, 5, 2)})
        assert one.scored([b"a" * 16, b"b" * 16]) == {b"a" * 16: Scored(0.1, 5, 2)}
        assert two.scored([b"a" * 16]) == {}
        assert (len(one), len(two)) == (1, 0)


def test_shards_score_the_same_pairs_to_the_bit(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread_scoring, "_BLOCK_TOKENS", 1024)
    system = System.parse("bm25") >> CrossEncoder(f"ce:{trained}", depth=10)

    def lists(executor: Executor) -> tuple[Run | None, list[str]]:
        report = r2med.evaluate(system, "sample/Biology", r2med.Options(executor=executor))
        assert not report.failures, report.failures
        if report.postponed:
            return None, [part.message for part in report.postponed]
        with Ledger() as ledger:
            return ledger.run(ledger.get(report.results[0].id)), []

    alone, _ = lists(quiet())
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "shared"))
    for number in (1, 2):
        run, left = lists(Executor(spread=Shards(number, 3)))
        assert run is None
        assert f"shard {number}/3: its share of pairs of" in left[0]
    run, _ = lists(Executor(spread=Shards(3, 3)))
    assert alone is not None
    assert run is not None
    for query in alone.queries:
        assert list(run[query].documents) == list(alone[query].documents)
        assert run[query].scores.tobytes() == alone[query].scores.tobytes()
