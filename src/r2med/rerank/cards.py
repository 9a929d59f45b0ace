"""Cards: everything that is to be known of a reranker, as data. The bundled ones, the user's own, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from r2med.cards import Deck, Reader, is_text
from r2med.encode.prompts import Template
from r2med.errors import SpecError

HEADS = ("auto", "one", "second", "margin")
DTYPES = ("float32", "bfloat16", "float16")
_GPU_MILLIONS = 3000  # from here on a model is out of reach of a processor in any useful time


@dataclass(frozen=True)
class Card:
    """A model of pairs and how it is used. `cards.toml` says what each field means.

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
    instruction: Template = field(default_factory=Template)
    head: str = "auto"
    answers: tuple[str, ...] = ()
    max_length: int = 512
    dtype: str = "float32"
    remote_code: bool = False
    parameters: float = 0
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
        """Whether reranking a task without an accelerator would take days."""
        return self.parameters >= _GPU_MILLIONS


@dataclass(frozen=True)
class ApiCard:
    """A reranker of a server.

    >>> api_card("jina").url
    'https://api.jina.ai/v1'
    """

    name: str
    id: str
    url: str
    key_env: str
    needs_key: bool = True
    top: str = "top_n"


_INSTRUCTION = Reader("a text", is_text, Template)
_MODELS = Deck(Card, "r2med.rerank", "rerankers.toml", what="reranker", readers={Template: _INSTRUCTION})
_SERVERS = Deck(ApiCard, "r2med.rerank", "rerankers.toml", table="api", what="reranking server")


def card(name: str) -> Card:
    """The card of a model that runs here."""
    return _MODELS.find(name)


def api_card(name: str) -> ApiCard:
    """The card of a model of a server."""
    return _SERVERS.find(name, " (or NAME@http://host:port/v1)")


def cards() -> Mapping[str, Card]:
    """Every card of a model by name: the bundled ones, then the user's; of two with a name, the user's."""
    return _MODELS.cards()


def api_cards() -> Mapping[str, ApiCard]:
    """Every card of a server by name, the same way."""
    return _SERVERS.cards()
