"""A card from a model's own files, for a cross-encoder that has none: `ce:ORG/NAME`, or a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from r2med.encode.folders import max_length, read_json
from r2med.encode.sources import Source
from r2med.errors import R2medError
from r2med.rerank.cards import Card, card

_CLASSIFIER, _LANGUAGE_MODEL = "ForSequenceClassification", "ForCausalLM"


def card_of(source: Source, name: str, like: str = "") -> Card:
    """The card of a folder or repository: what its files say, in the format of the card that it is `like`."""
    adapter = read_json(source, "adapter_config.json")
    if adapter is not None:
        return _adapter_card(source, name, adapter, like)
    config = read_json(source, "config.json")
    if config is None:
        raise R2medError(f"{source.name}: not a model (no config.json)")
    if like:
        return replace(card(like), name=name, id=source.name, revision=source.revision, adapter="", parameters=0)
    architecture = _architecture(config)
    if architecture.endswith(_LANGUAGE_MODEL):
        raise R2medError(f"{source.name} is a language model: say which card's format it takes with like=NAME")
    if not architecture.endswith(_CLASSIFIER):
        raise R2medError(f"{source.name} is no cross-encoder: it is a {architecture or 'model of no known class'}")
    return Card(name, source.name, source.revision, max_length=max_length(source))


def _adapter_card(source: Source, name: str, adapter: Mapping[str, Any], like: str) -> Card:
    base = str(adapter.get("base_model_name_or_path") or "")
    if not base:
        raise R2medError(f"{source.name}: the adapter does not name its base model")
    found = card(like) if like else Card(name, base)
    return replace(
        found,
        name=name,
        id=base,
        revision="main",
        adapter=source.name,
        adapter_revision=source.revision,
        parameters=0,
    )


def folder_is_reranker(folder: Path) -> bool:
    """Whether a folder holds a classifier of texts, as far as its small files tell; an encoder does not."""
    source = Source(str(folder), place=folder)
    adapter = read_json(source, "adapter_config.json")
    if adapter is not None:
        return bool(adapter.get("task_type") == "SEQ_CLS")
    return _architecture(read_json(source, "config.json") or {}).endswith(_CLASSIFIER)


def _architecture(config: Mapping[str, Any]) -> str:
    return str((config.get("architectures") or [""])[0])
