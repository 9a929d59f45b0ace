"""Scores equal those of sentence-transformers, or of transformers used by hand, on tiny models of each architecture.

One of them, `trained`, learned something.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")

import tiny
import torch
import transformers
from rerank_parts import DOCUMENTS, QUERIES, collection, context, run_over

from needs import TRAINED
from r2med.errors import R2medError
from r2med.pipeline.system import System
from r2med.rerank.cards import card
from r2med.rerank.cross_encoder import CrossEncoder

PAIRS = [(query, document) for query in QUERIES.values() for document in DOCUMENTS.values()]
LONG = {"q1": " ".join(["fever cough rash"] * 6), "q2": "what treat"}
LONG_DOCUMENTS = {f"d{n}": " ".join([f"{word} of the liver and"] * (4 * n)) for n, word in enumerate(tiny.WORDS[:4], 2)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Each model once for all tests."""
    folders = {"trained()": TRAINED / "reranker"}

    def make(name: str, *args: object) -> Path:
        key = f"{name}{args}"
        if key not in folders:
            folders[key] = getattr(tiny, name)(*args, tmp_path_factory.mktemp(name))
        return folders[key]

    return make


def scored(stage: CrossEncoder, data=None) -> dict[tuple[str, str], float]:
    data = data or collection()
    run = stage.rerank(data, run_over(data), context())
    return {
        (query, document): score
        for query, ranking in run
        for document, score in zip(ranking.documents, ranking.scores.tolist(), strict=True)
    }


def by_pair(scores, queries=QUERIES, documents=DOCUMENTS) -> np.ndarray:
    return np.array([scores[query, document] for query in queries for document in documents])


def reference(folder: Path, pairs=PAIRS, **options: object) -> np.ndarray:
    from sentence_transformers import CrossEncoder as Theirs

    theirs = Theirs(str(folder), device="cpu", activation_fn=torch.nn.Identity(), **options)
    return np.asarray(theirs.predict(pairs, batch_size=3, show_progress_bar=False))


@pytest.mark.parametrize("architecture", ["trained", "bert", "untyped_bert", "xlm_roberta", "deberta", "modernbert"])
def test_one_logit_equals_sentence_transformers(made, architecture: str) -> None:
    folder = made(architecture)
    ours = by_pair(scored(CrossEncoder(f"ce:{folder}", batch_tokens=48)))
    theirs = reference(folder)
    assert np.ptp(theirs) > 0.01, "a model that says the same of every pair shows nothing"
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("architecture", ["trained", "xlm_roberta"])
def test_truncation_of_the_longest_equals_sentence_transformers(made, architecture: str) -> None:
    folder = made(architecture)
    data = collection(LONG, LONG_DOCUMENTS)
    ours = scored(CrossEncoder(f"ce:{folder}", truncate="longest", max_length=24), data)
    pairs = [(query, document) for query in LONG.values() for document in LONG_DOCUMENTS.values()]
    theirs = reference(folder, pairs, max_length=24)
    np.testing.assert_allclose(by_pair(ours, LONG, LONG_DOCUMENTS), theirs, atol=1e-5)


def test_truncation_of_the_document_equals_transformers(made) -> None:
    folder = made("trained")
    data = collection(LONG, LONG_DOCUMENTS)
    ours = by_pair(scored(CrossEncoder(f"ce:{folder}", max_length=24), data), LONG, LONG_DOCUMENTS)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    pairs = [(query, document) for query in LONG.values() for document in LONG_DOCUMENTS.values()]
    theirs = []
    for query, document in pairs:
        inputs = tokenizer(query, document, truncation="only_second", max_length=24, return_tensors="pt")
        with torch.inference_mode():
            theirs.append(float(model(**inputs).logits[0, 0]))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_two_logits_give_the_second_or_the_margin(made, tmp_path: Path) -> None:
    folder = tiny.bert(tmp_path / "two", labels=2)
    theirs = reference(folder)
    assert theirs.shape == (len(PAIRS), 2)
    np.testing.assert_allclose(by_pair(scored(CrossEncoder(f"ce:{folder}"))), theirs[:, 1], atol=1e-5)
    as_monobert = scored(CrossEncoder(f"ce:{folder}", like="monobert", max_length=64))
    np.testing.assert_allclose(by_pair(as_monobert), theirs[:, 1], atol=1e-5)
    by_margin = scored(CrossEncoder(f"ce:{folder}", head="margin"))
    np.testing.assert_allclose(by_pair(by_margin), theirs[:, 1] - theirs[:, 0], atol=1e-5)


def rankllama_by_hand(base: Path, adapter: Path) -> list[float]:
    """As the model's authors show it: the head comes with the adapter, which is merged."""
    from peft import PeftModel

    model = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
    model = PeftModel.from_pretrained(model, adapter).merge_and_unload().eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    found = []
    for query, document in PAIRS:
        inputs = tokenizer(f"query: {query}", f"document: {document}", return_tensors="pt", return_token_type_ids=False)
        with torch.inference_mode():
            found.append(float(model(**inputs).logits[0][0]))
    return found


def test_rankllama_merges_its_adapter(made) -> None:
    base = made("llama_base")
    adapter = made("llama_adapter", base)
    theirs = rankllama_by_hand(base, adapter)
    assert np.ptp(theirs) > 0.01
    stage = CrossEncoder(f"ce:{adapter}", like="rankllama", dtype="float32", batch_tokens=300)
    np.testing.assert_allclose(by_pair(scored(stage)), theirs, atol=1e-5)
    # The same from the base's side.
    from_base = CrossEncoder(f"ce:{base}", like="rankllama", adapter=str(adapter), dtype="float32")
    np.testing.assert_allclose(by_pair(scored(from_base)), theirs, atol=1e-5)


def test_an_adapter_that_does_not_fit_is_refused(made, tmp_path: Path) -> None:
    base = made("llama_base")
    with pytest.raises(R2medError, match=r"not a cross-encoder: score\.weight"):
        scored(CrossEncoder(f"ce:{base}", like="rankllama", dtype="float32"))
    other = tmp_path / "smaller"
    adapter = tiny.llama_adapter(base, tmp_path / "adapter")
    tokenizer = tiny.byte_tokenizer(bos="<s>")
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    tiny._save(transformers.LlamaForCausalLM(config), tokenizer, other)
    with pytest.raises(R2medError, match="smaller"):
        scored(CrossEncoder(f"ce:{other}", like="rankllama", adapter=str(adapter), dtype="float32"))


def qwen3_by_hand(folder: Path, instruction: str) -> list[float]:
    """As the model's authors show it, but for the softmax: the logits of yes and no after the last token."""
    prefix, body, suffix = card("qwen3-reranker-0.6b").pieces
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    yes, no = (tokenizer.convert_tokens_to_ids(word) for word in ("yes", "no"))
    ends = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prefix, suffix)]
    found = []
    for query, document in PAIRS:
        text = body.replace("{instruction}", instruction).replace("{query}", query).replace("{document}", document)
        ids = [*ends[0], *tokenizer(text, add_special_tokens=False)["input_ids"], *ends[1]]
        with torch.inference_mode():
            logits = model(torch.tensor([ids])).logits[0, -1]
        found.append(float(logits[yes] - logits[no]))
    return found


def test_qwen3_reads_yes_and_no(made) -> None:
    folder = made("qwen3")
    sentence = collection().task.sentence
    theirs = qwen3_by_hand(folder, sentence)
    assert np.ptp(theirs) > 0.01
    stage = CrossEncoder(
        f"ce:{folder}", like="qwen3-reranker-0.6b", dtype="float32", max_length=2048, batch_tokens=2000
    )
    np.testing.assert_allclose(by_pair(scored(stage)), theirs, atol=1e-5)
    told = CrossEncoder(
        f"ce:{folder}", like="qwen3-reranker-0.6b", dtype="float32", max_length=2048, instruction="Find a cure"
    )
    np.testing.assert_allclose(by_pair(scored(told)), qwen3_by_hand(folder, "Find a cure"), atol=1e-5)


def test_pieces_are_tokenized_one_by_one(made) -> None:
    """mxbai's format: the query and the document stand in pieces of their own."""
    folder = made("qwen3")
    pieces = card("mxbai-rerank").pieces
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    one, zero = (tokenizer.convert_tokens_to_ids(word) for word in "10")
    theirs = []
    for query, document in PAIRS:
        ids: list[int] = []
        for piece in pieces:
            text = piece.replace("{query}", query).replace("{document}", document)
            ids += tokenizer(text, add_special_tokens=False)["input_ids"]
        with torch.inference_mode():
            logits = model(torch.tensor([ids])).logits[0, -1]
        theirs.append(float(logits[one] - logits[zero]))
    stage = CrossEncoder(f"ce:{folder}", like="mxbai-rerank", dtype="float32", max_length=2048)
    np.testing.assert_allclose(by_pair(scored(stage)), theirs, atol=1e-5)


@pytest.mark.parametrize("architecture", ["bert", "xlm_roberta", "deberta", "modernbert"])
def test_onnx_equals_torch(made, architecture: str) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    folder = made(architecture)
    by_torch = by_pair(scored(CrossEncoder(f"ce:{folder}")))
    stage = CrossEncoder(f"ce:{folder}", backend="onnx", batch_tokens=64)
    data, own = collection(), context()
    stage.rerank(data, run_over(data), own)
    assert own.notes.facts["scored"] == len(PAIRS), "scores of another backend were taken for its own"
    by_onnx = by_pair(scored(stage))
    np.testing.assert_allclose(by_onnx, by_torch, atol=1e-5)


def test_onnx_runs_an_adapter_and_a_language_model(made) -> None:
    pytest.importorskip("onnxruntime")
    base = made("llama_base")
    adapter = made("llama_adapter", base)
    stage = CrossEncoder(f"ce:{adapter}", like="rankllama", backend="onnx", batch_tokens=300)
    np.testing.assert_allclose(by_pair(scored(stage)), rankllama_by_hand(base, adapter), atol=1e-5)
    folder = made("qwen3")
    chat = CrossEncoder(f"ce:{folder}", like="qwen3-reranker-0.6b", backend="onnx", max_length=2048, batch_tokens=2000)
    np.testing.assert_allclose(by_pair(scored(chat)), qwen3_by_hand(folder, collection().task.sentence), atol=1e-5)


def test_a_folder_is_a_stage_of_a_system(made) -> None:
    system = System.parse(f"bm25 >> {made('bert')}(depth=3)")
    assert isinstance(system.stages[1], CrossEncoder)
    assert System.parse(str(system)) == system
