"""Models from the hub, against a small server that speaks its protocol."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

sys.path.insert(0, str(Path(__file__).parents[1]))

import tiny_models as tiny

from hubserver import Fault, HubServer, run_python
from r2med.data.tasks import task
from r2med.encode.encoder import Role
from r2med.encode.resolve import encoder_for

REPOSITORY = "me/tiny"
SHOW = """
import json, sys, time
time.sleep = lambda seconds: None  # the hub's client waits before every retry
from r2med.data.tasks import task
from r2med.encode.encoder import Role
from r2med.encode.resolve import encoder_for
from r2med.errors import R2medError
try:
    made = encoder_for("hf:me/tiny", {"device": "cpu", **OPTIONS}, task("Biology"))
    settings = dict(made.settings(Role.DOCUMENT))
    shown = {"folder": made.build(Role.DOCUMENT).folder, "settings": settings}
    assert made.settings(Role.DOCUMENT) == settings
except R2medError as error:
    shown = {"error": str(error)}
print(json.dumps(shown))
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tiny.save("bert", tmp_path_factory.mktemp("bert"))
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    modules = [{"type": "a.Transformer", "path": ""}, {"type": "a.Pooling", "path": "1_Pooling"}]
    stated = {
        "modules.json": json.dumps(modules).encode(),
        "1_Pooling/config.json": b'{"pooling_mode": "cls"}',
        "onnx/model.onnx": b"large",
        "pytorch_model.bin": b"older",
        "README.md": b"words",
    }
    return found | stated


def show(hub, home, options="{}", **environment):
    done = run_python(f"OPTIONS = {options}\n" + SHOW, hub.environment(home, **environment))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_model_of_the_hub_runs_at_a_commit_and_then_without_requests(files, tmp_path):
    with HubServer() as hub:
        commit = hub.add(REPOSITORY, files, kind="models")
        first = show(hub, tmp_path)
        assert (first["settings"]["model"], first["settings"]["revision"]) == (REPOSITORY, commit)
        assert first["settings"]["pooling"] == "cls"
        fetched = [request for request in hub.requests if request.startswith("GET") and "/resolve/" in request]
        assert any("model.safetensors" in request for request in fetched)
        assert not any(name in request for request in fetched for name in ("onnx", ".bin", "README"))
        asked = len(hub.requests)
        assert show(hub, tmp_path) == first
        assert len(hub.requests) == asked
    here = tmp_path / "copy"
    for name, content in files.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(content)
    fetched, copied = (
        encoder_for(str(folder), {"device": "cpu"}, task("Biology")).encode(["fever"], Role.DOCUMENT)
        for folder in (first["folder"], here)
    )
    np.testing.assert_array_equal(fetched, copied)


@pytest.mark.parametrize(
    ("fault", "options", "message"),
    [
        (Fault("me/tiny", status=403, code="GatedRepo"), "{}", "me/tiny is gated at"),
        (None, '{"revision": "v9"}', "me/tiny has no revision v9"),
        (Fault("/api/models", status=403), "{}", "answered 403 for me/tiny; check HF_TOKEN"),
        (Fault("/api/models", status=404), "{}", "answered 404 for me/tiny; try again later"),
        (Fault("model.safetensors", drop_after=20), "{}", "(peer closed connection"),
    ],
)
def test_what_goes_wrong_on_the_way_is_one_line(files, tmp_path, fault, options, message):
    with HubServer() as hub:
        hub.add(REPOSITORY, files, kind="models")
        if fault is not None:
            hub.faults.append(fault)
        shown = show(hub, tmp_path, options)
    assert message in shown["error"]
    assert "\n" not in shown["error"]
    assert "/datasets/" not in shown["error"]


def test_a_cache_that_cannot_be_written(files, tmp_path):
    (tmp_path / "hf").write_text("a file where the cache should be")
    with HubServer() as hub:
        hub.add(REPOSITORY, files, kind="models")
        shown = show(hub, tmp_path)
    assert shown["error"].startswith(f"cannot keep me/tiny in {tmp_path / 'hf' / 'hub'}: Not a directory")


def test_nobody_there(tmp_path):
    with HubServer() as hub:
        environment = hub.environment(tmp_path)
    done = run_python("OPTIONS = {}\n" + SHOW, environment)
    assert "refused); check the connection" in json.loads(done.stdout)["error"]


def test_a_repository_that_is_not_there(tmp_path):
    with HubServer() as hub:
        shown = show(hub, tmp_path)
        offline = show(hub, tmp_path, HF_HUB_OFFLINE="1")
    assert "me/tiny does not exist at" in shown["error"]
    assert "HF_HUB_OFFLINE is set" in offline["error"]
