"""Learned sparse encoders: a weight for each term of the model's vocabulary, from SPLADE and similar models.

In an inference-free model only documents are read so: a query's terms are its own tokens, and a table gives their
weights. The dimensions of a sparse autoencoder over a dense model's vector are not terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from r2med.encode.encoder import Role, Vectors
from r2med.encode.loading import stored_weight
from r2med.encode.transformer import TorchEncoder
from r2med.errors import R2medError, require_extra
from r2med.lexical.vectors import SparseVectors
from r2med.models.tokenizer import Tokenizer, pretrained_tokenizer


class SparseTextEncoder(TorchEncoder):
    """A learned sparse encoder of a card, run by torch."""

    @property
    def batch_tokens(self) -> int:
        """Return fewer tokens where each has a number for every term of the vocabulary before they are pooled."""
        return super().batch_tokens // (1 if self.card.autoencoder else 4)

    def load(self) -> None:
        """Load the model; if a table reads the queries, the model is loaded with the first document."""
        if not self.card.query_table:
            super().load()

    def encode(self, texts: Sequence[str], role: Role) -> Vectors:
        """Encode one batch, a column for each term."""
        if self._by_table(role):
            # The weights of the tokens in each text, whatever their frequency.
            batch = self._table_tokenizer.padded(texts, self.style(role), "right")
            weights = np.zeros((len(texts), len(self._table)), dtype=np.float32)
            owners, places = np.nonzero(batch.mask)
            tokens = batch.ids[owners, places]
            weights[owners, tokens] = self._table[tokens]
        else:
            weights = super().encode(texts, role)
        if not self.card.max_terms:
            return weights
        heaviest = SparseVectors.from_rows(weights).heaviest(self.card.max_terms)
        pruned = np.zeros_like(weights)
        pruned[heaviest.owners, heaviest.dimensions] = heaviest.weights
        return pruned

    def tokenizer(self, role: Role) -> Tokenizer:
        """Return the model's tokenizer, or that of the table."""
        return self._table_tokenizer if self._by_table(role) else super().tokenizer(role)

    def term_names(self, count: int) -> list[str]:
        """Return the terms of the dimensions, each unique and on one line; numbers in brackets for latents."""
        if self.card.autoencoder:
            return [f"[{number}]" for number in range(count)]
        tokens = map(self.tokenizer(Role.DOCUMENT).backend.id_to_token, range(count))
        names = [f"[{number}]" if token is None else token.replace("\n", "\\n") for number, token in enumerate(tokens)]
        seen: set[str] = set()
        for number, name in enumerate(names):
            names[number] = f"{name}[{number}]" if name in seen else name
            seen.add(name)
        return names

    def own_terms(self, text: str, role: Role) -> frozenset[int]:
        """Return the dimensions of the tokens in a text; all others are the model's additions."""
        if self.card.autoencoder:
            return frozenset()
        return frozenset(self.tokenizer(role).padded([text], self.style(role), "right").ids[0].tolist())

    def _by_table(self, role: Role) -> bool:
        return bool(self.card.query_table) and role is Role.QUERY

    @cached_property
    def _table_tokenizer(self) -> Tokenizer:
        require_extra("torch", "torch", "transformers")
        return pretrained_tokenizer(self._table_folder, append_eos=False, remote_code=self.card.remote_code)

    @property
    def _table_folder(self) -> Path:
        return self.sources[Role.QUERY].folder() / self.card.query_table

    @cached_property
    def _table(self) -> NDArray[np.float32]:
        """Read the weight of each token in a folder of SparseStaticEmbedding: tensors, or JSON."""
        require_extra("torch", "torch", "safetensors")
        folder = self._table_folder
        stated = orjson.loads(file.read_bytes()) if (file := folder / "config.json").is_file() else {}
        if listed := stated.get("path"):
            return _listed(folder / Path(str(listed)).name, self._table_tokenizer)
        weight = stored_weight(folder, "weight")
        if weight is None or weight.ndim != 1:
            raise R2medError(f"{folder}: its files hold no table of one weight per term")
        return np.asarray(weight.float().numpy())


def _listed(file: Path, tokenizer: Tokenizer) -> NDArray[np.float32]:
    """Read the table from a JSON file of tokens and weights, in this folder or at the top of the model."""
    file = file if file.is_file() else file.parent.parent / file.name
    if not file.is_file():
        raise R2medError(f"{file}: no such file of the weights of the terms")
    table = np.zeros(tokenizer.backend.get_vocab_size(with_added_tokens=True), dtype=np.float32)
    for token, weight in orjson.loads(file.read_bytes()).items():
        if (number := tokenizer.backend.token_to_id(token)) is not None:
            table[number] = weight
    return table
