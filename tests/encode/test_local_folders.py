"""A folder of this machine is never looked up on the hub, however its path is written."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

sys.path.insert(0, str(Path(__file__).parents[1]))

import tiny_models as tiny

from hubserver import HubServer, run_python
from r2med.encode.cards import EncoderCard
from r2med.encode.resolve import card_for, export_model
from r2med.rerank.cross_encoder import CrossEncoder

ENCODE = """
import json, os, sys, time
time.sleep = lambda seconds: None  # the hub's client waits before every retry
import r2med
os.chdir(FOLDER)
scores = {}
for name in NAMES:
    report = r2med.evaluate([name, r2med.Dense(name)], "sample/Biology")
    scores[name] = [r.metrics["nDCG@10"] for r in report.results] or [f.message for f in report.failures]
print(json.dumps(scores))
"""


def test_every_way_to_write_a_folder_asks_the_hub_nothing(tmp_path, monkeypatch):
    source = tiny.save("bert", tmp_path / "st-mini")
    (source / "modules.json").write_text(
        json.dumps([{"type": "a.Transformer", "path": ""}, {"type": "a.Pooling", "path": "1_Pooling"}])
    )
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    card = EncoderCard("mine", str(source), max_query=90, max_document=90)
    monkeypatch.setattr("r2med.encode.resolve.cards", lambda: {"mine": card})
    export_model("mine", tmp_path / "onnx-min", int8=False)
    export_model("mine", tmp_path / "sub" / "onnx-min", int8=False)
    absolute = str(tmp_path / "onnx-min")
    names = ["./onnx-min", "onnx-min", "./sub/onnx-min", "sub/onnx-min", absolute, "./st-mini", "st-mini"]
    with HubServer() as hub:
        done = run_python(f"FOLDER = {str(tmp_path)!r}\nNAMES = {names}\n" + ENCODE, hub.environment(tmp_path / "home"))
        assert done.returncode == 0, done.stderr
        assert hub.requests == []
    scores = json.loads(done.stdout)
    for expected, several in ((absolute, names[:5]), ("./st-mini", names[5:])):
        assert [scores[name] for name in several] == [[scores[expected][0]] * 2] * len(several)


def test_adapters_and_rerankers_in_folders_keep_their_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("lora", "me/lora"):
        (tmp_path / name).mkdir(parents=True)
    folder = tiny.save("bert", tmp_path / "st-mini")
    for name in ("lora", "me/lora", "./lora"):
        path = f"./{name.removeprefix('./')}"
        assert card_for(f"./{folder.name}", {"pooling": "mean", "adapter": name}).adapter == path
    assert card_for("./st-mini", {"pooling": "mean", "adapter": "me/other"}).adapter == "me/other"
    for name in ("./st-mini", "st-mini"):
        stage = CrossEncoder(name, like="monobert", adapter="me/lora")
        assert stage.requirements.hub == ()
        assert stage.source.place == Path("st-mini")
        assert stage.adapter_source is not None
        assert stage.adapter_source.place == Path("me/lora")
