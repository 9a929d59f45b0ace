"""The page for those who come from the authors' code: each command of ours is planned as it stands there."""

from __future__ import annotations

import re
import shlex
import shutil

import pytest
from click.testing import CliRunner
from page_blocks import ROOT

from r2med.cli.main import app
from r2med.data.tasks import SAMPLE

_PAGE = (ROOT / "docs" / "how-to" / "authors-code.md").read_text("utf-8")
ROWS = [tuple(row.strip() for row in line.split("|")[1:3]) for line in _PAGE.splitlines() if "| `r2med run" in line]
RETRIEVERS = "bm25 contriever medcpt inst-l inst-xl bmr-410m bmr-2b bmr-7b bge e5 grit sfr voyage openai nv"
RERANKERS = "bge-reranker monobert rankllama"
LLMS = "qwen-7b qwen-32b qwen-72b llama-70b r1-qwen-32b r1-llama-70b huatuo-o1-70b qwq-32b qwen3-32b gpt4 o3-mini"


def _plan(*words: str) -> str:
    result = CliRunner().invoke(app, [*words, "--dry-run"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    shutil.copy(SAMPLE / "Biology" / "hyde" / "handwritten" / "query_with_hydoc.jsonl", tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)


def test_the_page_has_a_command_for_every_mode():
    assert len(ROWS) == 10
    assert {mode for theirs, _ in ROWS for mode in re.findall(r"--mode (\w+)", theirs)} == {
        "eval_retrieval",
        "eval_reranker",
        "generate_hydoc",
    }


@pytest.mark.parametrize("ours", [ours for _, ours in ROWS])
def test_our_command_is_planned(ours):
    _, *words = shlex.split(ours.strip("`"))
    assert "to compute" in _plan(*words)


@pytest.mark.parametrize("name", RETRIEVERS.split())
def test_every_retriever_of_theirs_is_ours(name):
    assert "to compute" in _plan("run", name, "--tasks", "sample/Biology")


@pytest.mark.parametrize("name", RERANKERS.split())
def test_every_reranker_of_theirs_is_ours(name):
    assert "to compute" in _plan("run", f"bm25 >> {name}(depth=100)", "--tasks", "sample/Biology")


@pytest.mark.parametrize("name", LLMS.split())
@pytest.mark.parametrize("method", ["hyde", "query2doc", "lamer"])
def test_every_generator_of_theirs_is_ours(method, name):
    assert "to compute" in _plan("run", f"{method}({name}) >> bm25", "--tasks", "sample/Biology")
