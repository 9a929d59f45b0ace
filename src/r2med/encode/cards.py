"""Cards: everything that is to be known of an encoder, as data. The bundled ones, the user's own, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from r2med.cards import Deck, Reader, is_text
from r2med.encode.prompts import NO_PROMPT, Template
from r2med.errors import SpecError

BACKENDS = ("torch", "onnx", "static", "api")
POOLINGS = ("cls", "mean", "last", "max", "weighted", "own")
SIMILARITIES = ("cosine", "dot")
DTYPES = ("float32", "bfloat16", "float16", "int8")
_GPU_MILLIONS = 3000  # from here on a model is out of reach of a processor in any useful time


@dataclass(frozen=True)
class Card:
    """A model and how it is used. `cards.toml` says what each field means.

    >>> card("bge").pooling, card("bge").max_document
    ('cls', 512)
    """

    name: str
    id: str
    revision: str = "main"
    query_id: str = ""
    query_revision: str = "main"
    package: str = ""
    subfolder: str = ""
    backend: str = "torch"
    pooling: str = "mean"
    attention: str = ""
    normalize: bool = False
    max_query: int = 512
    max_document: int = 512
    query_prompt: Template = NO_PROMPT
    document_prompt: Template = NO_PROMPT
    exclude_prompt: bool = False
    prompt_passages: bool = False
    lowercase: bool = False
    pair: bool = False
    append_eos: bool = False
    padding: str = "right"
    dense: tuple[str, ...] = ()
    similarity: str = "cosine"
    dtype: str = "float32"
    remote_code: bool = False
    adapter: str = ""
    adapter_revision: str = "main"
    url: str = ""
    input_types: bool = False
    tokenizer: str = ""
    parameters: float = 0
    licence: str = ""
    gated: bool = False
    notes: str = ""
    published: str = ""

    def __post_init__(self) -> None:
        self._check("backend", BACKENDS)
        self._check("pooling", POOLINGS)
        self._check("attention", ("", "bidirectional"))
        self._check("padding", ("left", "right"))
        self._check("similarity", SIMILARITIES)
        self._check("dtype", DTYPES)
        if self.dtype == "int8" and self.backend != "onnx":
            raise SpecError(f"{self.name}: dtype=int8 needs backend=onnx")
        if self.pooling == "own" and not self.remote_code:
            raise SpecError(f"{self.name}: pooling=own runs code of the model's own, which needs remote_code=true")
        if self.pooling == "weighted" and self.exclude_prompt:
            raise SpecError(f"{self.name}: exclude_prompt and pooling=weighted do not go together")
        if min(self.max_query, self.max_document) < 0:
            raise SpecError(f"{self.name}: a max length of {min(self.max_query, self.max_document)} tokens")

    def _check(self, field: str, allowed: tuple[str, ...]) -> None:
        value = getattr(self, field)
        if value not in allowed:
            known = ", ".join(word for word in allowed if word)
            raise SpecError(f"{self.name}: {field} must be one of {known}, not {value!r}")

    @property
    def needs_gpu(self) -> bool:
        """Whether encoding a task without an accelerator would take days."""
        return self.backend == "torch" and self.parameters >= _GPU_MILLIONS


def _is_wording(value: Any) -> bool:
    return is_text(value) or (isinstance(value, dict) and all(map(is_text, value.values())))


_WORDING = Reader("a text, or a table of texts by family", _is_wording, Template.of)
_DECK = Deck(Card, "r2med.encode", "encoders.toml", readers={Template: _WORDING})


def card(name: str) -> Card:
    """The card of a name."""
    return _DECK.find(name)


def cards() -> Mapping[str, Card]:
    """Every card by name: the bundled ones in their order, then the user's; of two with a name, the user's."""
    return _DECK.cards()
