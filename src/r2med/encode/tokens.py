"""Late-interaction encoders: texts to the vectors of their tokens.

Such a model defines which tokens have a vector that counts. A marker is put before every text. A query is cut to its
length and, for most models, filled up to it with mask tokens, whose vectors count too. Of a document the vectors of
punctuation are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.encode.encoder import Role, Vectors
from r2med.encode.late_cards import INLINE, LateCard
from r2med.encode.loading import Build, accepted, inference, load_dense, load_transformer, positions_of, stored_weight
from r2med.errors import R2medError, require_extra
from r2med.models.memory import MODEL_CACHE, find_devices, release_memory
from r2med.models.source import ModelSource, locate
from r2med.models.tokenizer import Ids, Style, Tokenizer, check_limit, pretrained_tokenizer

_PROCESSOR_TOKENS = 4096
"""Tokens of a batch to begin with, padding included, on a processor."""
_DEVICE_TOKENS = 16_384
"""The same on a device of its own."""


class TokenBatch(NamedTuple):
    """Batch as the model reads it, and a mask of its tokens whose vectors count."""

    ids: Ids
    mask: Ids
    """1 for a token that others look at."""
    types: Ids
    counted: NDArray[np.bool_]


@dataclass(frozen=True)
class TokenEncoder:
    """A late-interaction model of a card. Construction is cheap; `load` does the heavy work."""

    card: LateCard
    device: str = "auto"

    @cached_property
    def source(self) -> ModelSource:
        """Return the location of the model's files."""
        return locate(self.card.id, self.card.revision)

    def settings(self, role: Role) -> Mapping[str, object]:
        """Return everything that the vectors of a role depend on: the key under which they are stored."""
        card = self.card
        found: dict[str, object] = {
            "model": self.source.label,
            "revision": self.source.version,
            "vectors": "tokens",
            "role": role.value,
            "prefix": self.prefix(role),
            "max_length": self.limit(role),
            "dense": list(card.dense),
            "inline": card.inline,
            "normalize": card.normalize,
            "dtype": card.dtype,
            "remote_code": card.remote_code,
            "lowercase": card.lowercase,
            "skiplist": "".join(card.skiplist) if self._skips(role) else "",
        }
        if role is Role.QUERY:
            found |= {"expansion": card.expansion, "attend": card.attend, "expansion_token": card.expansion_token}
        return found

    def prefix(self, role: Role) -> str:
        """Return the prefix of a text."""
        return self.card.query_prefix if role is Role.QUERY else self.card.document_prefix

    def limit(self, role: Role) -> int:
        """Return the most tokens of a text that the model reads; 0 for no limit."""
        if role is Role.DOCUMENT:
            return self.card.document_length
        return 0 if self.card.expansion == "min" else self.card.query_length

    def style(self, role: Role) -> Style:
        """Return the options of tokenization of a role."""
        return Style(self.prefix(role), self.limit(role) or self.source.max_length(self.card.subfolder))

    def prompted(self, text: str, role: Role) -> str:
        """Return the exact string that is encoded for a text."""
        return self.prefix(role) + text

    def _skips(self, role: Role) -> bool:
        return role is Role.DOCUMENT or self.card.skip_queries

    @property
    def batch_tokens(self) -> int:
        """Return the tokens, padding included, that a batch may hold to begin with."""
        return _PROCESSOR_TOKENS if find_devices(self.device)[0] == "cpu" else _DEVICE_TOKENS

    @cached_property
    def build(self) -> Build:
        """Return the build that is loaded. The files are downloaded if they are not on this machine."""
        card = self.card
        return Build(
            folder=str(self.source.folder()),
            subfolder=card.subfolder,
            pooling="tokens",
            normalize=card.normalize,
            dense=card.dense,
            dtype=card.dtype,
            remote_code=card.remote_code,
        )

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Load the model's tokenizer, which reads a marker as one token."""
        require_extra("torch", "torch", "transformers")
        build, card = self.build, self.card
        made = pretrained_tokenizer(build.transformer, append_eos=False, remote_code=build.remote_code)
        from tokenizers import AddedToken

        backend = made.backend
        for prefix in (card.query_prefix, card.document_prefix):
            for marker in dict.fromkeys((prefix, *prefix.split()[:1])):
                if marker.strip() and backend.token_to_id(marker) is not None:
                    if backend.encode(marker, add_special_tokens=False).tokens != [marker]:
                        backend.add_special_tokens([AddedToken(marker, normalized=False, special=True)])
                    break
        if card.lowercase:
            from tokenizers import normalizers

            first = made.backend.normalizer
            steps = [normalizers.Lowercase(), *([first] if first is not None else [])]
            made.backend.normalizer = normalizers.Sequence(steps)
        return made

    def lengths(self, texts: Sequence[str], role: Role) -> NDArray[np.int64]:
        """Return each text's length in the model's tokens, marker included, before truncation."""
        return self.tokenizer.lengths(texts, self.style(role))

    def batch(self, texts: Sequence[str], role: Role) -> TokenBatch:
        """Tokenize the texts as the model reads them."""
        padded = self.tokenizer.padded(texts, self.style(role), "right")
        counted = padded.mask.astype(np.bool_)
        read = TokenBatch(padded.ids, padded.mask, padded.types, counted)
        if role is Role.QUERY and self.card.expansion != "off":
            read = self._expanded(read)
        if self._skips(role) and len(self._skipped):
            read = read._replace(counted=read.counted & ~np.isin(read.ids, self._skipped))
        return read

    def offsets(self, text: str, role: Role) -> list[tuple[int, int]]:
        """Return the span of characters of each token in the prefixed text; special tokens have empty spans."""
        return self.tokenizer.offsets(text, self.style(role))

    def _expanded(self, read: TokenBatch) -> TokenBatch:
        """Expand queries with mask tokens, which count, and which the others attend to only if the card says so."""
        length = self.card.query_length
        missing = max(0, length - read.ids.shape[1])
        ids, mask, types = (np.pad(part, ((0, 0), (0, missing))) for part in read[:3])
        filled = (mask == 0) & (np.arange(ids.shape[1]) < length)
        ids = np.where(filled, self._filling, ids)
        counted = mask.astype(np.bool_) | filled
        return TokenBatch(ids, np.where(filled, 1, mask) if self.card.attend else mask, types, counted)

    @cached_property
    def _filling(self) -> int:
        token = self.card.expansion_token
        found = self.tokenizer.backend.token_to_id(token) if token else self.tokenizer.mask
        if found is None:
            raise R2medError(f"{self.source.name}: its tokenizer has no {token or 'mask token'} to expand queries with")
        return found

    @cached_property
    def _skipped(self) -> NDArray[np.int64]:
        """Return the ids of tokens without a vector that counts; a word that is not in the vocabulary is left out."""
        ids = (self.tokenizer.backend.token_to_id(word) for word in self.card.skiplist)
        return np.array(sorted({each for each in ids if each is not None}), dtype=np.int64)

    def load(self) -> None:
        """Load the model."""
        self._model()

    def _model(self) -> LoadedTokenModel:
        require_extra("torch", "torch", "transformers", "safetensors", "sentence_transformers")
        build, device = self.build, find_devices(self.device)[0]
        inline = self.card.inline
        return MODEL_CACHE.take((build, inline, device), build.size, lambda: LoadedTokenModel(build, inline, device))

    def encode(self, texts: Sequence[str], role: Role) -> list[Vectors]:
        """Return the vectors that count of each text of a batch."""
        model = self._model()
        check_limit(self.source.name, self.style(role).limit, model.positions, f"{role.value}_length")
        read = self.batch(texts, role)
        vectors = model.run(read)
        return [rows[here] for rows, here in zip(vectors, read.counted, strict=True)]


class LoadedTokenModel:
    """A transformer with its projection, on one device."""

    def __init__(self, build: Build, inline: bool, device: str) -> None:
        import torch

        self.build, self.device = build, torch.device(device)
        self.model = load_transformer(build, other_weights=(INLINE,) if inline else ()).to(self.device)
        layers = [_inline_projection(build)] if inline else load_dense(build, "token_embeddings")
        self.dense = [layer.to(self.device) for layer in layers]
        self.takes, self.positions = accepted(self.model), positions_of(self.model)

    def close(self) -> None:
        """Release the weights."""
        del self.model, self.dense
        release_memory()

    def run(self, read: TokenBatch) -> Vectors:
        """Return a vector for every token of a batch, padding included; raise `MemoryError` if memory runs out."""
        import torch

        with inference(self.build, self.device):
            features = {"token_embeddings": self.model(**self._inputs(read)).last_hidden_state.float()}
            for layer in self.dense:
                features = layer(features)
            vectors = features["token_embeddings"]
            if self.build.normalize:
                vectors = torch.nn.functional.normalize(vectors, dim=-1)
            found: Vectors = vectors.cpu().numpy()
        return found

    def _inputs(self, read: TokenBatch) -> dict[str, Any]:
        import torch

        inputs = {"input_ids": read.ids, "attention_mask": read.mask}
        if read.types.any() and "token_type_ids" in self.takes:
            inputs["token_type_ids"] = read.types
        return {name: torch.from_numpy(np.ascontiguousarray(part)).to(self.device) for name, part in inputs.items()}


def _inline_projection(build: Build) -> Any:
    """Load the projection that is stored among the transformer's own weights."""
    import torch
    from sentence_transformers.base.modules import Dense

    weight = stored_weight(build.transformer, INLINE)
    if weight is None:
        raise R2medError(f"{Path(build.folder)}: no {INLINE} among its weights, which would be its projection")
    layer = Dense(
        weight.shape[1],
        weight.shape[0],
        bias=False,
        activation_function=torch.nn.Identity(),
        init_weight=weight.float(),
        module_input_name="token_embeddings",
    )
    return layer.eval().requires_grad_(False)
