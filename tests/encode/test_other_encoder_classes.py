"""Encoder classes as other code has them run as they are: the benchmark's, BEIR's, MTEB's, sentence-transformers'."""

from __future__ import annotations

import sys

import pytest

import r2med
from r2med.pipeline.plan import plan
from r2med.pipeline.system import System

CLASSES = '''
from typing import Dict, List, Union

import numpy as np

LETTERS = "aeioustrnlcdm"


def count(texts):
    return np.array([[text.lower().count(letter) + 0.1 for letter in LETTERS] for text in texts])


class Ours:
    def encode_queries(self, texts):
        return count(texts)

    encode_documents = encode_queries


class CustomModel:
    """As the README of the benchmark's code has it."""

    def __init__(self, load_mode: str = "Automodel", model_name_or_path: str = None, batch_size: int = 512):
        self.batch_size = batch_size

    def encode_queries(self, queries: List[str], **kwargs) -> np.ndarray:
        print("# Instruction for query is : None")
        return self.encode(queries)

    def encode_corpus(self, corpus: List[Union[Dict[str, str], str]], **kwargs) -> np.ndarray:
        return self.encode([doc["text"] for doc in corpus] if isinstance(corpus[0], dict) else corpus)

    def encode(self, sentences: List[str], **kwargs) -> np.ndarray:
        return count(sentences)


class Beir:
    """As BEIR asks for it: the size of a batch has no default, documents are rows."""

    def encode_queries(self, queries: List[str], batch_size: int, **kwargs) -> np.ndarray:
        assert batch_size > 0
        return count(queries)

    def encode_corpus(self, corpus: List[Dict[str, str]], batch_size: int, **kwargs) -> np.ndarray:
        return count([f"{row['title']} {row['text']}".strip() for row in corpus])


class OldMteb:
    """As MTEB asked for it before its second version."""

    def encode(self, sentences, *, task_name, prompt_type=None, **kwargs):
        assert isinstance(sentences[0], str) and task_name == "sample/Biology" and prompt_type is not None
        return count(sentences)


class Transformer:
    """As sentence-transformers calls the two methods; `similarity` is a method there."""

    def encode_query(self, sentences, **kwargs):
        import torch

        return torch.tensor(count(sentences), dtype=torch.float64, requires_grad=True)

    encode_document = encode_query

    def similarity(self, one, other): ...
'''

MTEB = """
from mteb.models.abs_encoder import AbsEncoder
from mteb.types import PromptType

from classes import count


class Mteb(AbsEncoder):
    def __init__(self, model_name="none", revision=None, **kwargs): ...

    def encode(self, inputs, *, task_metadata, hf_split, hf_subset, prompt_type=None, **kwargs):
        assert task_metadata.type == "Retrieval" and task_metadata.name == "R2MEDBiologyRetrieval"
        assert prompt_type in (PromptType.query, PromptType.document)
        return count([text for batch in inputs for text in batch["text"]])
"""


@pytest.fixture
def classes(tmp_path, monkeypatch):
    (tmp_path / "classes.py").write_text(CLASSES)
    (tmp_path / "mteb_class.py").write_text(MTEB)
    monkeypatch.chdir(tmp_path)
    yield
    for name in ("classes", "mteb_class"):
        sys.modules.pop(name, None)


def _scores(system):
    report = r2med.evaluate(system, "sample/Biology")
    assert not report.failures
    return report.per_query().sort("query")["nDCG@10"].to_list()


@pytest.mark.parametrize(
    "name", ["classes:CustomModel", "classes:Beir", "classes:OldMteb", "classes:Transformer", "mteb_class:Mteb"]
)
def test_a_class_of_other_code_runs_as_it_is(classes, name):
    assert _scores(name) == _scores("classes:Ours")


def test_options_of_the_benchmarks_class_are_options_of_the_spec(classes):
    assert _scores("classes:CustomModel(model_name_or_path=x, batch_size=8)") == _scores("classes:Ours")


def test_an_object_of_the_benchmarks_class_is_a_system(classes, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    from classes import CustomModel

    assert _scores(CustomModel()) == _scores("classes:Ours")


def test_a_class_that_encodes_no_documents_is_one_line(classes, tmp_path):
    (tmp_path / "half.py").write_text("class Half:\n    def encode_query(self, texts): ...\n")
    (failure,) = r2med.evaluate("half:Half", "sample/Biology").failures
    assert failure.message.startswith("half:Half has no method encode_documents; ")


@pytest.mark.parametrize("name", ["medcpt", "inst-l", "inst-xl"])
def test_a_model_whose_commit_only_the_hub_knows_is_planned_without_it(name, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (one,) = plan([System.parse(name)], ["sample/Biology"])
    assert one.stages[0].needs["hub"]
    assert one.tasks[0].state == "to compute; without the hub it is not known what is here already"
