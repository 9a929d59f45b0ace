"""What `r2med models` shows and does: the list of cards, one model in full, and the export to ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2med.encode.base import Role
from r2med.encode.cards import Card, cards
from r2med.encode.prompts import Prompts
from r2med.encode.resolve import card_for, is_class
from r2med.encode.tokens import Style
from r2med.errors import R2medError, SpecError

if TYPE_CHECKING:
    from r2med.data.tasks import Task


def list_models() -> list[Card]:
    """Every card, the paper's models first."""
    return list(cards().values())


@dataclass(frozen=True)
class Description:
    """A model as it would be used for a task."""

    card: Card
    task: str
    query: str
    """The exact string that is encoded for a query, which stands for itself in angle brackets."""
    document: str
    """The same for a document."""
    passage: str
    """The same for a passage that a language model wrote to answer a query."""


def describe_model(name: str, task: Task, options: Mapping[str, Any] | None = None) -> Description:
    """A model with the exact strings that would be encoded for a task.

    >>> from r2med.data.tasks import task
    >>> describe_model("bmr-2b", task("MedQA-Diag")).query
    'Given a Medical Exam, retrieve relevant passages that help answer the exam\\nQuery: <query>'
    """
    if is_class(name):
        raise SpecError(f"{name} is a class of your own: what it encodes, it decides itself")
    card = card_for(name, options or {})
    prompts = Prompts(card.query_prompt.render(task), card.document_prompt.render(task))
    query = Style(prompts.of(Role.QUERY), lowercase=card.lowercase)
    document = Style(prompts.of(Role.DOCUMENT), lowercase=card.lowercase)
    passage = query if card.prompt_passages else replace(query, prompt="")
    return Description(
        card, task.name, query.prompted("<query>"), document.prompted("<document>"), passage.prompted("<passage>")
    )


def export_model(name: str, folder: Path | None = None, *, int8: bool = False) -> Path:
    """Write a model as ONNX, and return the folder: the given one, or that from which `backend=onnx` takes it.

    A folder of one's own is a model from then on: `r2med run ./FOLDER`.
    """
    from r2med.encode.onnx_backend import OnnxEncoder
    from r2med.encode.onnx_export import export

    card = card_for(name, {"backend": "onnx", "dtype": "int8" if int8 else "float32"})
    encoder = OnnxEncoder(card, Prompts())
    if folder is None:
        return encoder.folder
    if folder.exists() and any(folder.iterdir()):
        raise R2medError(f"{folder}: not empty; give a folder that does not exist yet")
    export(card, encoder.build(), folder)
    return folder
