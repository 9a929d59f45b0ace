"""The three published rows by their own names: fetched from a hub, merged, run and measured, with tiny weights."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

sys.path.insert(0, str(Path(__file__).parents[1]))

import tiny

import r2med
from hubserver import HubServer, run_python
from r2med.rerank.cards import card

ROWS = ("bge-reranker", "monobert", "rankllama")
RUN = """
import json
import torch
torch.set_num_threads(1)
import r2med
report = r2med.evaluate([f"bm25 >> {name}(depth=10, max_length=60)" for name in NAMES], "sample/Biology")
shown = {
    "failures": [failure.message for failure in report.failures],
    "scored": [list(result.record.notes.values())[-1]["scored"] for result in report.results],
    "stages": [result.record.stages[1].as_json() for result in report.results],
}
print(json.dumps(shown))
"""


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".md"}


def test_the_rows_run_from_the_hub_and_then_without_it(tmp_path: Path) -> None:
    base = tiny.llama_base(tmp_path / "llama")
    adapter = files(tiny.llama_adapter(base, tmp_path / "adapter"))
    # An adapter of the hub names its base there.
    config = json.loads(adapter["adapter_config.json"]) | {"base_model_name_or_path": card("rankllama").id}
    adapter["adapter_config.json"] = json.dumps(config).encode()
    with HubServer() as hub:
        wanted = [
            (card("bge-reranker").id, files(tiny.xlm_roberta(tmp_path / "xlmr"))),
            (card("monobert").id, files(tiny.bert(tmp_path / "bert", labels=2))),
            (card("rankllama").id, files(base)),
            (card("rankllama").adapter, adapter),
        ]
        commits = {name: hub.add(name, found, kind="models") for name, found in wanted}
        # The card's commit is the real one, which this hub does not have.
        home = tmp_path / "home"
        home.mkdir()
        (home / "rerankers.toml").write_text(
            f'[model.bge-reranker]\nlike = "bge-reranker"\nrevision = "{commits[card("bge-reranker").id]}"\n'
        )
        environment = hub.environment(tmp_path / "hub") | {"R2MED_HOME": str(home)}
        done = run_python(f"NAMES = {ROWS!r}\n{RUN}", environment)
        assert done.returncode == 0, done.stderr
        first = json.loads(done.stdout)
        asked = len(hub.requests)
        again = run_python(f"NAMES = {ROWS!r}\n{RUN}", environment)
        assert json.loads(again.stdout) == first
        assert len(hub.requests) == asked, "a model that is here was asked for again"
    assert first["failures"] == []
    assert first["scored"] == [90, 90, 90]
    for stage, name in zip(first["stages"], ROWS, strict=True):
        assert stage["revision"] == commits[card(name).id]
    assert first["stages"][2]["adapter"] == f"{card('rankllama').adapter} {commits[card('rankllama').adapter]}"


def test_the_commands_of_the_documentation_are_systems() -> None:
    for name in ROWS:
        for depth in (10, 100):
            system = r2med.System.parse(f"nv >> {name}(depth={depth})")
            system.check()
            assert system.stages[1].requirements.gpu == (name == "rankllama")
