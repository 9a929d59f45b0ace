"""Cards of rerankers: local models, servers, and served language models, with their checks.

A cross-encoder without a card, `ce:ORG/NAME` or a folder, has one built from its own files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from r2med.errors import R2medError, SpecError, suggest
from r2med.models.cards import CardRegistry
from r2med.models.source import ModelSource
from r2med.models.templates import NO_PROMPT, Template
from r2med.pipeline.registry import bind, named
from r2med.pipeline.spec import Call
from r2med.pipeline.stage import Reranker
from r2med.pipeline.user_code import import_class, is_class
from r2med.store.files import expanded

PREFIX = "ce:"  # before the name of a cross-encoder of the hub that has no card
_CLASSIFIER, _LANGUAGE_MODEL = "ForSequenceClassification", "ForCausalLM"


def card_of(source: ModelSource, name: str, like: str = "") -> RerankerCard:
    """Build the card of a folder or repository from its files, in the format of the card that it is `like`."""
    adapter = source.read_json("adapter_config.json")
    if adapter is not None:
        base = str(adapter.get("base_model_name_or_path") or "")
        if not base:
            raise R2medError(f"{source.name}: the adapter does not name its base model")
        model = card(like) if like else RerankerCard(name, base)
        model = replace(model, adapter=source.name, adapter_revision=source.revision, parameters=0)
        return replace(model, name=name, id=base, revision="main")
    config = source.read_json("config.json")
    if config is None:
        raise R2medError(f"{source.name}: not a model (no config.json)")
    if like:
        return replace(card(like), name=name, id=source.name, revision=source.revision, adapter="", parameters=0)
    architecture = _architecture(config)
    if architecture.endswith(_LANGUAGE_MODEL):
        raise R2medError(f"{source.name} is a language model: say which card's format it takes with like=NAME")
    if not architecture.endswith(_CLASSIFIER):
        raise R2medError(f"{source.name} is not a cross-encoder: it is a {architecture or 'model of an unknown class'}")
    return RerankerCard(name, source.name, source.revision, max_length=source.max_length())


def folder_is_reranker(folder: Path) -> bool:
    """Return whether a folder holds a classifier of texts, according to its small files; an encoder does not."""
    source = ModelSource(str(folder), place=folder)
    adapter = source.read_json("adapter_config.json")
    if adapter is not None:
        return bool(adapter.get("task_type") == "SEQ_CLS")
    return _architecture(source.read_json("config.json") or {}).endswith(_CLASSIFIER)


def _architecture(config: Mapping[str, Any]) -> str:
    return str((config.get("architectures") or [""])[0])


HEADS = ("auto", "one", "second", "margin")
DTYPES = ("float32", "bfloat16", "float16")
_GPU_MILLIONS = 3000  # from here on a model is out of reach of a processor in any useful time


@dataclass(frozen=True)
class RerankerCard:
    """A model of pairs and its settings. `cards.toml` says what each field means.

    >>> card("bge-reranker").head, card("rankllama").query
    ('one', 'query: {query}')
    """

    name: str
    id: str
    revision: str = "main"
    adapter: str = ""
    adapter_revision: str = "main"
    query: str = "{query}"
    document: str = "{document}"
    pieces: tuple[str, ...] = ()
    instruction: Template = NO_PROMPT
    head: str = "auto"
    answers: tuple[str, ...] = ()
    max_length: int = 512
    dtype: str = "float32"
    remote_code: bool = False
    parameters: int | float = 0
    licence: str = ""
    gated: bool = False
    notes: str = ""

    def __post_init__(self) -> None:
        for name, allowed in (("head", HEADS), ("dtype", DTYPES)):
            if getattr(self, name) not in allowed:
                raise SpecError(f"{self.name}: {name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}")
        if self.max_length < 8:
            raise SpecError(f"{self.name}: a max_length of {self.max_length} tokens leaves no room for a pair")
        if bool(self.pieces) != bool(self.answers):
            raise SpecError(f"{self.name}: a language model has both pieces and answers, any other neither")
        texts = "".join(self.pieces) if self.pieces else self.query + self.document
        for place in ("{query}", "{document}"):
            if texts.count(place) != 1:
                raise SpecError(f"{self.name}: what the model reads must have {place} in it once")

    @property
    def needs_gpu(self) -> bool:
        """Return whether reranking a task without an accelerator would take days."""
        return self.parameters >= _GPU_MILLIONS


@dataclass(frozen=True)
class ApiCard:
    """A reranker of a server."""

    name: str
    id: str
    url: str
    key_env: str
    needs_key: bool = True
    top: str = "top_n"
    price: float | None = None  # US dollars per million tokens; None if unknown
    request_price: float | None = None  # US dollars per thousand requests, if these are billed


_MODELS = CardRegistry(RerankerCard, "r2med.rerank", "rerankers.toml", what="reranker")
_WAYS = " (or NAME@http://host:port/v1)"
_SERVERS = CardRegistry(ApiCard, "r2med.rerank", "rerankers.toml", table="api", what="reranking server", ways=_WAYS)


card = _MODELS.find
cards = _MODELS.cards
"""Every card of a local model by name: the bundled ones, then the user's, which win over bundled ones."""
api_card, api_cards = _SERVERS.find, _SERVERS.cards


def find_reranker(call: Call) -> Reranker | None:
    """Return the reranker of a call whose name is a reranker's, or None.

    >>> str(find_reranker(Call("monobert", (), (("depth", 10),)))), find_reranker(Call("bge"))
    ('monobert(depth=10)', None)
    """
    name = call.name
    folder = expanded(name)
    if name in cards() or name.startswith(PREFIX) or (folder.is_dir() and folder_is_reranker(folder)):
        kind: type[Reranker] = named("r2med.rerank.cross_encoder:CrossEncoder")
        return bind(kind, Call(name, (name, *call.args), call.options))
    if is_class(name) and scores_pairs(import_class(name)):
        stage: Reranker = named("r2med.rerank.user:OwnReranker").from_call(call)
        return stage
    return None


def scores_pairs(kind: Any) -> bool:
    """Return whether a class has the one method of a reranker."""
    return callable(getattr(kind, "score", None))


ANSWERS = {
    "ranking": "listwise",
    "tied ranking": "listwise",
    "grades": "groupwise",
    "true or false": "pointwise",
    "whole number": "pointwise",
}
"""Every form of an answer, and the stage that reads it."""


@dataclass(frozen=True)
class ServedCard:
    """Format in which a served reranker is asked and answers."""

    name: str
    stage: str
    prompt: str  # the bundled prompt
    answer: str
    parameters: int | float = 0
    licence: str = ""
    notes: str = ""

    def __post_init__(self) -> None:
        if ANSWERS.get(self.answer) != self.stage:
            forms = ", ".join(f"{answer} ({stage})" for answer, stage in ANSWERS.items())
            raise SpecError(f"{self.name}: {self.stage} cannot read {self.answer!r}; known: {forms}")


_DECK = CardRegistry(ServedCard, "r2med.rerank", "rerankers.toml", table="served", what="served reranker")
served_cards = _DECK.cards


def served_card(stage: str, llm: str, like: str = "") -> ServedCard | None:
    """Return the format of a model in a stage: its own, or that of the model `like`; None for any other model."""
    served = served_cards()
    if like and like not in served:
        raise SpecError(f"{stage}: unknown format {like!r}{suggest(like, served)}")
    match = served.get(like or llm.partition("@")[0])
    if match is not None and match.stage != stage:
        raise SpecError(f"{stage}: {match.name} was trained for {match.stage}: write {match.stage}({llm})")
    return match
