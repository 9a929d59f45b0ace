"""The contract of an encoder: what its vectors depend on, and one batch of texts to vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from r2med.pipeline.stage import Requirements
from r2med.usage import Usage

Vectors = NDArray[np.float32]
"""One row per text."""


class Role(Enum):
    """Side of the search on which a text is: models may have prompts, lengths or even encoders for each."""

    QUERY = "query"
    DOCUMENT = "document"


@dataclass(frozen=True)
class Prompts:
    """Prompts of a model for one task, ready to be put before a text."""

    query: str = ""
    document: str = ""

    def of(self, role: Role) -> str:
        """Return the prompt of a role."""
        return self.query if role is Role.QUERY else self.document


class Encoder(ABC):
    """A model that turns texts into vectors for one task. Construction is cheap; `load` does the heavy work."""

    prompts = Prompts()
    similarity = "cosine"  # or "dot"
    sparse = False  # whether its vectors have a dimension for each term of a vocabulary, nearly all of them zero
    spreads = True  # whether other hosts can do its work; a remote server is asked from this process
    billed = False  # whether a server encodes, which may bill it

    @abstractmethod
    def settings(self, role: Role) -> Mapping[str, object]:
        """Return everything that a vector of this role depends on: the key under which the vectors are stored."""

    def local_content(self) -> Mapping[str, str]:
        """Return the local folders and files that the vectors come from, with a hash of each."""
        return {}

    @property
    def requirements(self) -> Requirements:
        """Return what must be available before this encoder can run."""
        return Requirements()

    @abstractmethod
    def load(self) -> None:
        """Load the model; called once, and only if something must really be encoded."""

    @abstractmethod
    def lengths(self, texts: Sequence[str], role: Role) -> NDArray[np.int64]:
        """Return each text's length in the model's tokens, prompt included, before truncation."""

    @abstractmethod
    def limit(self, role: Role) -> int:
        """Return the most tokens of a text that the model reads; 0 for no limit."""

    @property
    def batch_tokens(self) -> int:
        """Return the tokens, padding included, that a batch may hold to begin with; out of memory halves it."""
        return 16_384

    @abstractmethod
    def encode(self, texts: Sequence[str], role: Role) -> Vectors | list[Vectors]:
        """Encode one batch, to a row per text or a matrix of its tokens, whatever the other texts of the batch."""

    def prompted(self, text: str, role: Role) -> str:
        """Return the exact string that is encoded for a text: what `r2med models show` prints and a result records."""
        return self.prompts.of(role) + text

    def for_passages(self) -> Encoder:
        """Return the encoder, in the role of a query, for texts that a model wrote to answer a query.

        The published protocol encodes these without the query's prompt, but for a few models that give it to both.
        """
        if not self.prompts.query:
            return self
        encoder = copy(self)  # what is loaded already is shared
        encoder.prompts = replace(self.prompts, query="")
        return encoder

    def take_bill(self) -> Usage | None:
        """Return what encoding took since the last call, if a server did it."""
        return None
