"""Base of the encoders of a transformer, for torch and ONNX alike: the card, the prompts, the settings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from r2med.encode.cards import EncoderCard
from r2med.encode.encoder import Encoder, Prompts, Role
from r2med.models.source import ModelSource, locate
from r2med.models.tokenizer import Style, Tokenizer


class ModelEncoder(Encoder):
    """An encoder of a card, with its prompts for one task."""

    def __init__(self, card: EncoderCard, prompts: Prompts) -> None:
        self.card = card
        self.prompts = prompts

    @cached_property
    def sources(self) -> Mapping[Role, ModelSource]:
        """Return the location of the files of each role's model; mostly the same for both."""
        document = locate(self.card.id, self.card.revision, self.card.package)
        query = locate(self.card.query_id, self.card.query_revision) if self.card.query_id else document
        return {Role.QUERY: query, Role.DOCUMENT: document}

    @cached_property
    def adapter(self) -> ModelSource | None:
        """Return the location of the adapter's files, or None for a model without an adapter."""
        return locate(self.card.adapter, self.card.adapter_revision) if self.card.adapter else None

    def local_content(self) -> dict[str, str]:
        """Return the folders of models and adapters that are not from the hub."""
        sources = [*self.sources.values(), *([self.adapter] if self.adapter else [])]
        return {place: digest for source in sources for place, digest in source.local_content().items()}

    def style(self, role: Role) -> Style:
        """Return the options of tokenization of a role."""
        card = self.card
        return Style(
            prompt=self.prompts.of(role),
            limit=self.limit(role),
            pair=card.pair and role is Role.DOCUMENT,
            exclude_prompt=card.exclude_prompt,
            lowercase=card.lowercase,
            bare=bool(card.query_table) and role is Role.QUERY,
        )

    @property
    def sparse(self) -> bool:
        """Return whether the card's vectors are sparse."""
        return self.card.sparse

    def settings(self, role: Role) -> Mapping[str, object]:
        """Return all settings of the card that a vector depends on, with the commit or content hash of the files."""
        card, source = self.card, self.sources[role]
        found: dict[str, object] = {
            "model": source.label,
            "revision": source.version,
            "backend": card.backend,
            "role": role.value,
            "prompt": self.prompts.of(role),
            "max_length": self.limit(role),
            "pooling": card.pooling,
            "normalize": card.normalize,
            "dtype": card.dtype,
            "remote_code": card.remote_code,
        }
        # What most models do not have is left out, so that a later field does not change the key of all others.
        rare = {
            "attention": card.attention,
            "exclude_prompt": card.exclude_prompt,
            "append_eos": card.append_eos,
            "pair": self.style(role).pair,
            "lowercase": card.lowercase,
            "padding": card.padding if card.padding != "right" else "",
            "dense": list(card.dense),
            "subfolder": (card.query_subfolder if role is Role.QUERY else "") or card.subfolder,
            "max_terms": card.max_terms,
            "autoencoder": card.autoencoder,
            "table": card.query_table if role is Role.QUERY else "",
            "adapter": f"{self.adapter.label} {self.adapter.version}" if self.adapter else "",
        }
        return found | {name: value for name, value in rare.items() if value}

    @property
    def similarity(self) -> str:
        """Return the similarity of the card."""
        return self.card.similarity

    def limit(self, role: Role) -> int:
        """Return the maximum length of the card for a role."""
        return self.card.max_query if role is Role.QUERY else self.card.max_document

    def prompted(self, text: str, role: Role) -> str:
        """Return the text after its prompt."""
        return self.style(role).prompted(text)

    def lengths(self, texts: Sequence[str], role: Role) -> NDArray[np.int64]:
        """Count tokens with the model's own tokenizer."""
        return self.tokenizer(role).lengths(texts, self.style(role))

    @abstractmethod
    def tokenizer(self, role: Role) -> Tokenizer:
        """Return the tokenizer of a role's model."""

    @abstractmethod
    def with_prompts(self, prompts: Prompts) -> Self:
        """Return an encoder of the same model with other prompts."""

    def for_passages(self) -> Encoder:
        """Return the encoder without the query's prompt, unless the card says that passages get it too."""
        if self.card.prompt_passages or not self.prompts.query:
            return self
        return self.with_prompts(replace(self.prompts, query=""))
