"""The torch backend against transformers by hand: one text at a time, no padding, as each model's card does it."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import tiny_models as tiny
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from r2med.data.tasks import task
from r2med.encode.cards import EncoderCard, card
from r2med.encode.encoder import Prompts, Role
from r2med.encode.transformer import TorchEncoder
from r2med.errors import R2medError
from r2med.models.memory import MODEL_CACHE

CLOSE = {"atol": 1e-5, "rtol": 0}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {name: tiny.save(name, tmp_path_factory.mktemp(name)) for name in tiny.ARCHITECTURES}
    made["second"] = tiny.save("bert", tmp_path_factory.mktemp("second"), seed=1)
    yield made
    MODEL_CACHE.clear()


def encoder(folder, query_prompt="", document_prompt="", **fields) -> TorchEncoder:
    fields = {"max_query": 128, "max_document": 128, **fields}
    return TorchEncoder(EncoderCard("tiny", str(folder), **fields), Prompts(query_prompt, document_prompt), "cpu")


POOLED = {
    "cls": lambda states: states[0],
    "mean": lambda states: states.mean(dim=0),
    "last": lambda states: states[-1],
    "max": lambda states: states.amax(dim=0),
    "weighted": lambda states: (
        (states * torch.arange(1.0, len(states) + 1)[:, None]).sum(0) / (len(states) * (len(states) + 1) / 2)
    ),
}


@pytest.mark.parametrize("pooling", POOLED)
@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_every_pooling_of_every_architecture_is_that_of_the_text_alone(folders, architecture, pooling):
    model, tokenizer = tiny.load(folders[architecture], model_type=architecture)
    wanted = [
        POOLED[pooling](tiny.hidden(model, tokenizer(text, truncation=True, max_length=100)["input_ids"]))
        for text in tiny.TEXTS
    ]
    made = encoder(folders[architecture], pooling=pooling, max_document=100).encode(tiny.TEXTS, Role.DOCUMENT)
    np.testing.assert_allclose(made, np.stack(wanted), **CLOSE)


@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_padding_side_and_batch_composition_change_nothing(folders, architecture, padding):
    used = encoder(
        folders[architecture], pooling="last" if architecture not in ("bert", "t5") else "mean", padding=padding
    )
    alone = np.concatenate([used.encode([text], Role.DOCUMENT) for text in tiny.TEXTS])

    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.integers(0, len(tiny.TEXTS) - 1), min_size=1, max_size=9))
    def check(places):
        together = used.encode([tiny.TEXTS[place] for place in places], Role.DOCUMENT)
        np.testing.assert_allclose(together, alone[places], **CLOSE)

    check()


def test_normalized_vectors_have_length_one(folders):
    plain = encoder(folders["bert"]).encode(tiny.TEXTS, Role.DOCUMENT)
    made = encoder(folders["bert"], normalize=True).encode(tiny.TEXTS, Role.DOCUMENT)
    np.testing.assert_allclose(made, tiny.unit(plain), **CLOSE)
    assert made.dtype == np.float32


def test_prompts_and_limits_differ_by_role(folders):
    used = encoder(folders["mistral"], "find: ", "keep: ", pooling="last", max_query=20, max_document=40)
    model, tokenizer = tiny.load(folders["mistral"])
    for role, prompt, limit in ((Role.QUERY, "find: ", 20), (Role.DOCUMENT, "keep: ", 40)):
        strings = [prompt + text for text in tiny.TEXTS]
        ids = [tokenizer(string, truncation=True, max_length=limit)["input_ids"] for string in strings]
        wanted = np.stack([tiny.hidden(model, row)[-1] for row in ids])
        np.testing.assert_allclose(used.encode(tiny.TEXTS, role), wanted, **CLOSE)
        assert used.prompted(tiny.TEXTS[0], role) == strings[0]
        assert used.lengths(tiny.TEXTS, role).tolist() == [len(tokenizer(string)["input_ids"]) for string in strings]


@pytest.mark.parametrize("architecture", ["gpt-neox", "gemma", "mistral"])
def test_bmretriever_appends_the_end_token_within_the_limit(folders, architecture):
    used = encoder(folders[architecture], pooling="last", append_eos=True, max_document=50)
    model, tokenizer = tiny.load(folders[architecture])
    wanted = []
    for text in tiny.TEXTS:
        ids = tokenizer(text, truncation=True, max_length=49)["input_ids"]
        wanted.append(tiny.hidden(model, [*ids, tokenizer.eos_token_id])[-1])
    np.testing.assert_allclose(used.encode(tiny.TEXTS, Role.DOCUMENT), np.stack(wanted), **CLOSE)
    assert used.lengths(["fever"], Role.DOCUMENT)[0] == len(tokenizer("fever")["input_ids"]) + 1


def test_a_tokenizer_that_ends_its_texts_itself_is_not_given_a_second_end(folders):
    plain = encoder(folders["qwen3"], pooling="last").encode(tiny.TEXTS, Role.DOCUMENT)
    asked = encoder(folders["qwen3"], pooling="last", append_eos=True).encode(tiny.TEXTS, Role.DOCUMENT)
    np.testing.assert_array_equal(plain, asked)


@pytest.mark.parametrize("architecture", ["mistral", "llama", "qwen2"])
def test_bidirectional_attention_is_that_of_the_library(folders, architecture):
    model, tokenizer = tiny.load(folders[architecture])
    model.config.is_causal = False
    ids = [tokenizer(text)["input_ids"] for text in tiny.TEXTS]
    wanted = np.stack([tiny.hidden(model, row)[0] for row in ids])
    used = encoder(folders[architecture], pooling="cls", attention="bidirectional")
    np.testing.assert_allclose(used.encode(tiny.TEXTS, Role.DOCUMENT), wanted, **CLOSE)
    # The first token sees the end of the text, which a causal model's does not.
    ends = used.encode(["the same beginning, one end", "the same beginning, another"], Role.DOCUMENT)
    causal = encoder(folders[architecture], pooling="cls").encode(["the same beginning", "the same end"], Role.DOCUMENT)
    assert np.abs(ends[0] - ends[1]).max() > 1e-3
    np.testing.assert_allclose(causal[0], causal[1], **CLOSE)


def test_gritlm_pools_what_comes_after_its_instruction(folders):
    stated = card("grit")
    prompts = (stated.query_prompt.render(task("Biology")), stated.document_prompt.render(task("Biology")))
    fields = {name: getattr(stated, name) for name in ("pooling", "attention", "exclude_prompt", "normalize")}
    used = encoder(folders["mistral"], *prompts, **fields, max_query=300, max_document=300)
    model, tokenizer = tiny.load(folders["mistral"])
    model.config.is_causal = False
    for role, prompt in zip((Role.QUERY, Role.DOCUMENT), prompts, strict=True):
        skipped = len(tokenizer(prompt)["input_ids"])
        ids = [tokenizer(prompt + text)["input_ids"] for text in tiny.TEXTS]
        wanted = tiny.unit(np.stack([tiny.hidden(model, row)[skipped:].mean(dim=0) for row in ids]))
        np.testing.assert_allclose(used.encode(tiny.TEXTS, role), wanted, **CLOSE)


def test_medcpt_as_published_reads_documents_as_the_second_of_a_pair(folders):
    used = encoder(folders["bert"], pooling="cls", pair=True, max_query=64, max_document=64)
    model, tokenizer = tiny.load(folders["bert"])
    wanted = []
    for text in tiny.TEXTS:
        row = tokenizer("", text, truncation="longest_first", max_length=64)
        wanted.append(tiny.hidden(model, row["input_ids"], token_type_ids=torch.tensor([row["token_type_ids"]]))[0])
    np.testing.assert_allclose(used.encode(tiny.TEXTS, Role.DOCUMENT), np.stack(wanted), **CLOSE)
    alone = [tiny.hidden(model, tokenizer(text, truncation=True, max_length=64)["input_ids"])[0] for text in tiny.TEXTS]
    np.testing.assert_allclose(used.encode(tiny.TEXTS, Role.QUERY), np.stack(alone), **CLOSE)


def test_medcpt_by_its_card_has_an_encoder_for_each_side(folders):
    both = encoder(folders["bert"], pooling="cls", query_id=str(folders["second"]))
    query = encoder(folders["second"], pooling="cls").encode(tiny.TEXTS, Role.QUERY)
    document = encoder(folders["bert"], pooling="cls").encode(tiny.TEXTS, Role.DOCUMENT)
    np.testing.assert_array_equal(both.encode(tiny.TEXTS, Role.QUERY), query)
    np.testing.assert_array_equal(both.encode(tiny.TEXTS, Role.DOCUMENT), document)
    assert both.settings(Role.QUERY)["revision"] != both.settings(Role.DOCUMENT)["revision"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_runs_in_it_and_stays_near(folders, dtype):
    full = encoder(folders["mistral"], pooling="last").encode(tiny.TEXTS, Role.DOCUMENT)
    half = encoder(folders["mistral"], pooling="last", dtype=dtype).encode(tiny.TEXTS, Role.DOCUMENT)
    model, tokenizer = tiny.load(folders["mistral"], dtype=getattr(torch, dtype))
    wanted = np.stack([tiny.hidden(model, tokenizer(text)["input_ids"])[-1].float() for text in tiny.TEXTS])
    assert (tiny.unit(half) * tiny.unit(full)).sum(axis=1).min() > 0.99
    assert (tiny.unit(half) * tiny.unit(wanted)).sum(axis=1).min() > 0.999
    assert np.abs(half - full).max() > 1e-4
    assert half.dtype == np.float32


def test_lower_case(folders):
    used = encoder(folders["mistral"], "FIND: ", lowercase=True)
    plain = encoder(folders["mistral"], "find: ")
    shouted, quiet = used.encode(["FEVER"], Role.QUERY), plain.encode(["fever"], Role.QUERY)
    np.testing.assert_array_equal(shouted, quiet)
    assert used.prompted("FEVER", Role.QUERY) == "find: fever"


def test_lone_surrogates_do_not_stop_it(folders):
    assert np.isfinite(encoder(folders["mistral"]).encode(["broken \ud800 text"], Role.DOCUMENT)).all()


def test_a_limit_beyond_the_positions_is_refused(folders):
    for limit in (129, 0):
        with pytest.raises(R2medError, match="has places for 128 tokens"):
            encoder(folders["bert"], max_document=limit).encode(["fever"], Role.DOCUMENT)
    assert encoder(folders["xlm-roberta"], max_document=399).encode(["a" * 500], Role.DOCUMENT).shape == (
        1,
        tiny.HIDDEN,
    )
    with pytest.raises(R2medError, match="has places for 399 tokens"):
        encoder(folders["xlm-roberta"], max_document=400).encode(["fever"], Role.DOCUMENT)


def test_a_limit_that_leaves_no_room_is_refused(folders):
    with pytest.raises(R2medError, match="max_length of 2 tokens leaves none"):
        encoder(folders["bert"], max_document=2).encode(["fever"], Role.DOCUMENT)


def test_memory_that_runs_out_is_said_in_one_way(folders, monkeypatch):
    used = encoder(folders["bert"])
    used.load()

    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(type(used._runner(Role.DOCUMENT)), "_tokens", full)
    with pytest.raises(MemoryError):
        used.encode(["fever"], Role.DOCUMENT)
