"""Encoders by name: a card, the hub, a folder, a server or a user's own class, with the options of a spec."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2med.encode.api import ApiEncoder, card_at
from r2med.encode.cards import (
    BACKENDS,
    DTYPES,
    POOLINGS,
    SHORT_DTYPES,
    SIMILARITIES,
    EncoderCard,
    card_of,
    cards,
    read_modules,
    sparse_card_of,
)
from r2med.encode.encoder import Encoder, Prompts
from r2med.encode.onnx import OnnxEncoder, export, exported_card
from r2med.encode.sparse import SparseTextEncoder
from r2med.encode.static import WordLlamaEncoder
from r2med.encode.transformer import TorchEncoder
from r2med.encode.user import OwnEncoder
from r2med.errors import R2medError, SpecError, suggest
from r2med.models.source import ModelSource, as_path, existing_folder, is_folder, locate, looks_like_path
from r2med.models.templates import Template
from r2med.models.tokenizer import Style
from r2med.pipeline.user_code import is_class
from r2med.store.files import expanded

if TYPE_CHECKING:
    from r2med.data.tasks import Task


@dataclass(frozen=True)
class Option:
    """Option of a model in a spec: the type of its value, and the allowed values if they are few."""

    kind: type
    choices: tuple[str, ...] = ()
    backends: tuple[str, ...] = BACKENDS  # which backends know it


_MODELS = ("torch", "onnx")
OPTIONS: Mapping[str, Option] = {
    "query_prompt": Option(str),
    "document_prompt": Option(str),
    "max_length": Option(int),
    "max_query": Option(int, backends=_MODELS),
    "max_document": Option(int, backends=_MODELS),
    "similarity": Option(str, SIMILARITIES, (*_MODELS, "api")),
    "pooling": Option(str, POOLINGS, _MODELS),
    "normalize": Option(bool, backends=_MODELS),
    "attention": Option(str, ("bidirectional",), _MODELS),
    "exclude_prompt": Option(bool, backends=_MODELS),
    "append_eos": Option(bool, backends=_MODELS),
    "padding": Option(str, ("left", "right"), ("torch",)),
    "dtype": Option(str, (*DTYPES, *SHORT_DTYPES), _MODELS),
    "revision": Option(str, backends=_MODELS),
    "adapter": Option(str, backends=_MODELS),
    "remote_code": Option(bool, backends=_MODELS),
    "backend": Option(str, _MODELS, _MODELS),
    "device": Option(str, backends=("torch",)),
}
"""Everything that `NAME(option=...)` may change of a model with a card, from the hub, or in a folder."""


def encoder_for(name: str, options: Mapping[str, Any], task: Task, made: Any = None) -> Encoder:
    """Build the encoder of a name for a task; `made` is the user's object, if one was given instead of a class.

    >>> from r2med.data.tasks import task
    >>> from r2med.encode.encoder import Role
    >>> encoder_for("bge", {"max_length": 256}, task("Biology")).limit(Role.QUERY)
    256
    """
    if is_class(name):
        return OwnEncoder(name, options, task, made)
    card = card_for(name, options)
    prompts = card.prompts(task)
    match card.backend:
        case "torch":
            kind = SparseTextEncoder if card.sparse else TorchEncoder
            return kind(card, prompts, options.get("device", "auto"))
        case "onnx":
            folder = expanded(card.id)
            exported = looks_like_path(card.id) and (folder / "r2med.json").is_file()
            return OnnxEncoder(card, prompts, folder if exported else None)
        case "static":
            return WordLlamaEncoder(card.max_document, prompts)
    return ApiEncoder(card, prompts)


def known(name: str) -> bool:
    """Return whether a name can be an encoder, without reading anything: what a registry asks."""
    return name in cards() or name.startswith("hf:") or "@http" in name or is_class(name) or is_folder(name)


def sparse_encoder_for(name: str, options: Mapping[str, Any], task: Task) -> SparseTextEncoder:
    """Build the learned sparse encoder of a name for a task: a card's, `hf:ORG/NAME`, or a folder."""
    check_options(name, options)
    published = cards().get(name)
    if published is None and not (name.startswith("hf:") or is_folder(name)):
        raise SpecError(f"unknown sparse encoder {name!r}{suggest(name, sparse_names())} (or hf:ORG/NAME, ./FOLDER)")
    if published is not None and not published.sparse:
        raise SpecError(f"{name} is a dense encoder; it is a system by its own name")
    if published is None:
        card = sparse_card_of(_source(name, options), name)
    else:
        # The modules that the repository states count.
        modules = read_modules(locate(published.id, options.get("revision", published.revision)))
        names = ("pooling", "subfolder", "query_subfolder", "query_table", "autoencoder") if modules else ()
        card = replace(published, **{field: modules.get(field, "") for field in names})
    card = _changed(card, options)
    return SparseTextEncoder(card, card.prompts(task), options.get("device", "auto"))


def sparse_names() -> list[str]:
    """Return the cards of learned sparse encoders."""
    return [name for name, card in cards().items() if card.sparse]


def _source(name: str, options: Mapping[str, Any]) -> ModelSource:
    if not name.startswith("hf:"):
        return locate(as_path(name))
    if not re.fullmatch(r"hf:\w[\w.-]*(/\w[\w.-]*)?", name):
        raise SpecError(f"{name}: not the name of a repository; write hf:ORG/NAME")
    return ModelSource(name.removeprefix("hf:"), options.get("revision", "main"))


def card_for(name: str, options: Mapping[str, Any]) -> EncoderCard:
    """Return the card of a name, bundled, the user's or made from the model's own files, with the changes of a spec."""
    check_options(name, options)
    if name.startswith("hf:"):
        card = card_of(_source(name, options), name, pooling_given="pooling" in options)
    elif "@http" in name:
        card = card_at(name)
    elif name in cards():
        card = cards()[name]
    elif is_folder(name):
        folder = as_path(name)
        exported = exported_card(existing_folder(folder), name, folder)
        card = exported or card_of(locate(folder), name, pooling_given="pooling" in options)
    else:
        ways = "hf:ORG/NAME, ./FOLDER, module:Class or NAME@http://host/v1 for one without a card"
        raise SpecError(f"unknown model {name!r}{suggest(name, cards())} ({ways})")
    for option in options:
        if card.backend not in OPTIONS[option].backends:
            raise SpecError(f"{name}: a model of the backend {card.backend} has no {option}")
    return _changed(card, options)


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuse options that no model has, and values of the wrong kind."""
    for option, value in options.items():
        if option not in OPTIONS:
            raise SpecError(f"{name} has no option {option!r}{suggest(option, OPTIONS)}")
        expected = OPTIONS[option]
        is_devices = option == "device" and isinstance(value, tuple) and all(isinstance(name, str) for name in value)
        if not is_devices and type(value) is not expected.kind:
            word = {str: "a name or text", int: "a whole number", bool: "true or false"}[expected.kind]
            raise SpecError(f"{name}: {option} must be {word}, not {value}")
        if expected.choices and value not in expected.choices:
            raise SpecError(f"{name}: {option} must be one of {', '.join(expected.choices)}, not {value!r}")


def _changed(card: EncoderCard, options: Mapping[str, Any]) -> EncoderCard:
    limits: dict[str, Any] = (
        dict.fromkeys(("max_query", "max_document"), options["max_length"]) if "max_length" in options else {}
    )
    values = limits | {name: value for name, value in options.items() if name not in ("device", "max_length")}
    for prompt in ("query_prompt", "document_prompt"):
        if prompt in values:
            values[prompt] = Template.of(values[prompt])
    if "adapter" in values:
        values["adapter"] = as_path(values["adapter"])
    if "dtype" in values:
        values["dtype"] = SHORT_DTYPES.get(values["dtype"], values["dtype"])
    dtype = values.get("dtype", card.dtype)
    if dtype == "int8" and options.get("backend") is None:
        values["backend"] = "onnx"
    if values.get("backend") == "onnx" and dtype in ("bfloat16", "float16"):
        if "dtype" in options:
            raise SpecError(f"{card.name}: backend=onnx runs float32 or int8, not {dtype}")
        values["dtype"] = "float32"
    if "revision" in values:
        # A package or a second model has no part in a revision of the first.
        values["package"] = ""
    return replace(card, **values)


def list_models() -> list[EncoderCard]:
    """Return every card, the paper's models first."""
    return list(cards().values())


@dataclass(frozen=True)
class ModelDescription:
    """A model as it would be used for a task."""

    card: EncoderCard
    task: str
    query: str  # the exact string that is encoded for a query, which stands for itself in angle brackets
    document: str  # the same for a document
    passage: str  # the same for a passage that a language model wrote to answer a query


def describe_model(name: str, task: Task, options: Mapping[str, Any] | None = None) -> ModelDescription:
    """Describe a model with the exact strings that would be encoded for a task."""
    if is_class(name):
        raise SpecError(f"{name} is a class of your own: what it encodes, it decides itself")
    card = card_for(name, options or {})
    prompts = card.prompts(task)
    query, document = (Style(prompt, lowercase=card.lowercase) for prompt in (prompts.query, prompts.document))
    passage = query if card.prompt_passages else replace(query, prompt="")
    return ModelDescription(
        card, task.name, query.prompted("<query>"), document.prompted("<document>"), passage.prompted("<passage>")
    )


def export_model(name: str, folder: Path | None = None, *, int8: bool = False) -> Path:
    """Write a model as ONNX, and return the folder: the given one, or the one from which `backend=onnx` reads it."""
    card = card_for(name, {"backend": "onnx", "dtype": "int8" if int8 else "float32"})
    encoder = OnnxEncoder(card, Prompts())
    if folder is None:
        return encoder.folder
    if folder.exists() and any(folder.iterdir()):
        raise R2medError(f"{folder}: not empty; give a folder that does not exist yet")
    export(card, encoder.build(), folder)
    return folder
