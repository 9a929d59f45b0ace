"""Loading: adapters, remote code, weights that are missing, devices, several processes, and what waits in memory."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import tiny_models as tiny
import torch

from r2med.data.tasks import task
from r2med.encode.cards import EncoderCard
from r2med.encode.encoder import Prompts, Role
from r2med.encode.resolve import encoder_for
from r2med.encode.transformer import TorchEncoder
from r2med.errors import R2medError
from r2med.models.memory import MODEL_CACHE, ModelCache, find_devices

CLOSE = {"atol": 1e-5, "rtol": 0}


@pytest.fixture(scope="module")
def mistral(tmp_path_factory):
    yield tiny.save("mistral", tmp_path_factory.mktemp("mistral"))
    MODEL_CACHE.clear()


def encoder(folder, device="cpu", prompt="", **fields) -> TorchEncoder:
    return TorchEncoder(EncoderCard("tiny", str(folder), **{"pooling": "last", **fields}), Prompts("", prompt), device)


def adapter(base, folder, wrap=lambda model: model):
    """A LoRA adapter with random weights; returns its folder and the vectors of the wrapped model."""
    from peft import LoraConfig, get_peft_model

    model, tokenizer = tiny.load(base)
    torch.manual_seed(5)
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    wrapped = get_peft_model(wrap(model), config).eval()
    wrapped.save_pretrained(folder)
    return wrapped, tokenizer


def test_an_adapter_is_merged(mistral, tmp_path):
    pytest.importorskip("peft")
    wrapped, tokenizer = adapter(mistral, tmp_path / "lora")
    wanted = np.stack([tiny.hidden(wrapped, tokenizer(text)["input_ids"])[-1] for text in tiny.TEXTS])
    used = encoder_for(
        str(mistral), {"pooling": "last", "adapter": str(tmp_path / "lora"), "device": "cpu"}, task("Biology")
    )
    made = used.encode(tiny.TEXTS, Role.DOCUMENT)
    plain = encoder(mistral)
    np.testing.assert_allclose(made, wanted, **CLOSE)
    assert np.abs(made - plain.encode(tiny.TEXTS, Role.DOCUMENT)).max() > 1e-2
    assert "lora" in str(used.settings(Role.QUERY)["adapter"])
    assert "adapter" not in plain.settings(Role.QUERY)
    assert used.requirements.extra == "torch,lora"


def test_an_adapter_for_another_model_is_refused_and_not_ignored(mistral, tmp_path):
    pytest.importorskip("peft")

    class Wrapper(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.config = model.config

    adapter(mistral, tmp_path / "lora", Wrapper)
    with pytest.raises(R2medError, match="the adapter does not fit the model"):
        encoder(mistral, adapter=str(tmp_path / "lora")).load()
    with pytest.raises(R2medError, match="not an adapter"):
        encoder(mistral, adapter=str(mistral)).load()


REMOTE = """
import torch
from transformers import MistralModel

from .configuration_odd import OddConfig

class Odd(MistralModel):
    config_class = OddConfig

    def encode(self, prompts, instruction="", max_length=512):
        rows = [[len(prompt), len(instruction), max_length] for prompt in prompts]
        return torch.tensor(rows, dtype=torch.float16)
"""


@pytest.fixture
def remote(mistral, tmp_path):
    """A model like NV-Embed: code of its own with an `encode` method, under a type that the library does not know."""
    folder = tmp_path / "remote"
    shutil.copytree(mistral, folder)
    (folder / "modeling_odd.py").write_text(REMOTE)
    (folder / "configuration_odd.py").write_text(
        "from transformers import MistralConfig\n\nclass OddConfig(MistralConfig):\n    model_type = 'odd'\n"
    )
    config = json.loads((folder / "config.json").read_text())
    names = {"AutoConfig": "configuration_odd.OddConfig", "AutoModel": "modeling_odd.Odd"}
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "odd", "auto_map": names}))
    return folder


def test_remote_code_runs_only_when_it_is_named(remote):
    with pytest.raises(R2medError, match="runs Python code of its own; add remote_code=true"):
        encoder(remote).load()
    with pytest.raises(R2medError, match="needs remote_code=true"):
        encoder_for(str(remote), {"pooling": "own"}, task("Biology"))
    allowed = {"pooling": "own", "remote_code": True, "normalize": False, "max_length": 77, "document_prompt": "keep"}
    used = encoder_for(str(remote), {**allowed, "device": "cpu"}, task("Biology"))
    assert used.encode(["fever", "a cough"], Role.DOCUMENT).tolist() == [[5, 4, 77], [7, 4, 77]]
    assert used.settings(Role.DOCUMENT)["remote_code"] is True
    assert used.lengths(["fever"], Role.DOCUMENT).tolist() == [1 + len("keepfever")]


def test_weights_that_are_not_there_are_not_made_up(mistral, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "torn"
    shutil.copytree(mistral, folder)
    weights = load_file(folder / "model.safetensors")
    del weights["layers.1.self_attn.q_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(R2medError, match=r"its files lack 1 weight of the model, layers.1.self_attn.q_proj.weight"):
        encoder(folder).load()


@pytest.mark.parametrize("spoil", ["config", "weights", "tokenizer", "type"])
def test_a_folder_that_is_no_model_is_one_line(mistral, tmp_path, spoil):
    folder = tmp_path / "broken"
    shutil.copytree(mistral, folder)
    if spoil == "config":
        (folder / "config.json").write_text("{")
    elif spoil == "type":
        (folder / "config.json").write_text('{"model_type": "no-such-thing"}')
    elif spoil == "weights":
        (folder / "model.safetensors").write_bytes(b"no weights")
    else:
        (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(R2medError, match="broken") as caught:
        encoder(folder).encode(["fever"], Role.DOCUMENT)
    assert "\n" not in str(caught.value)


def test_two_processes_give_what_one_gives(mistral):
    texts = [*tiny.TEXTS, "one more, so that the shares are not equal", "lone \ud800 surrogate"]
    alone = encoder(mistral, prompt="keep: ").encode(texts, Role.DOCUMENT)
    pooled = encoder(mistral, ("cpu", "cpu"), prompt="keep: ")
    try:
        pooled.load()
        np.testing.assert_allclose(pooled.encode(texts, Role.DOCUMENT), alone, **CLOSE)
        np.testing.assert_allclose(pooled.encode(texts[:1], Role.DOCUMENT), alone[:1], **CLOSE)
        assert pooled.batch_tokens == 2 * encoder(mistral).batch_tokens
        assert pooled.settings(Role.DOCUMENT) == encoder(mistral, prompt="keep: ").settings(Role.DOCUMENT)
        # What goes wrong over there is said here, and the next batch is answered rightly all the same.
        with pytest.raises(R2medError, match="leaves none for the text"):
            TorchEncoder(
                EncoderCard("tiny", str(mistral), pooling="last", max_document=1), Prompts(), ("cpu", "cpu")
            ).encode(texts, Role.DOCUMENT)
        np.testing.assert_allclose(pooled.encode(texts, Role.DOCUMENT), alone, **CLOSE)
        worker = pooled._runner(Role.DOCUMENT)._workers[1].process._process
        os.kill(worker.pid, 9)
        worker.wait()
        with pytest.raises(R2medError, match="the encoding process on cpu ended unexpectedly"):
            pooled.encode(tiny.TEXTS, Role.DOCUMENT)
    finally:
        MODEL_CACHE.clear()
    assert worker.returncode == -9


def test_devices():
    assert find_devices("cpu") == ("cpu",)
    assert find_devices(["cpu", "cpu"]) == ("cpu", "cpu")
    assert find_devices("auto")
    for wrong in ("cuda:99", "gpu", ["cpu", "tpu"]):
        with pytest.raises(R2medError, match="is not here; this machine has"):
            find_devices(wrong)
    with pytest.raises(R2medError, match="empty list"):
        find_devices([])


class _Loaded:
    def __init__(self, log, name):
        self.log, self.name = log, name

    def run(self, texts, style):
        raise NotImplementedError

    def close(self):
        self.log.append(self.name)


def test_the_cache_keeps_what_fits_and_lets_the_oldest_go():
    log: list[str] = []
    models = ModelCache(limit=10)
    first = models.take("a", 4, lambda: _Loaded(log, "a"))
    models.take("b", 4, lambda: _Loaded(log, "b"))
    assert models.take("a", 4, lambda: _Loaded(log, "other a")) is first
    models.take("c", 5, lambda: _Loaded(log, "c"))
    assert log == ["b"]
    models.take("huge", 50, lambda: _Loaded(log, "huge"))
    assert log == ["b", "a", "c"]
    models.clear()
    assert log[-1] == "huge"


def test_tasks_share_one_model_in_memory(mistral):
    one = encoder_for(str(mistral), {"pooling": "last", "device": "cpu"}, task("Biology"))
    other = encoder_for(
        str(mistral), {"pooling": "last", "device": "cpu", "query_prompt": "{noun}: "}, task("MedQA-Diag")
    )
    assert one._runner(Role.QUERY) is other._runner(Role.DOCUMENT) is other.for_passages()._runner(Role.QUERY)
    assert other.prompted("x", Role.QUERY) == "Medical Exam: x"
    assert other.for_passages().prompted("x", Role.QUERY) == "x"
    assert one.for_passages() is one
