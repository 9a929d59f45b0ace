"""Late-interaction encoders: texts to the vectors of their tokens.

Such a model defines which tokens have a vector that counts. A marker is put before every text. A query is cut to its
length and, for most models, filled up to it with mask tokens, whose vectors count too. Of a document the vectors of
punctuation are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.encode.encoder import Encoder, Prompts, Role, Vectors
from r2med.encode.late_cards import LateCard
from r2med.encode.loading import Build
from r2med.encode.transformer import LoadedEncoder
from r2med.errors import R2medError, require_extra
from r2med.models.memory import MODEL_CACHE, find_devices, tokens_of
from r2med.models.source import ModelSource, locate
from r2med.models.tokenizer import Padded, Style, Tokenizer, check_limit


class TokenBatch(NamedTuple):
    """Batch as the model reads it, and a mask of its tokens whose vectors count."""

    tokens: Padded
    counted: NDArray[np.bool_]


class TokenEncoder(Encoder):
    """A late-interaction model of a card."""

    def __init__(self, card: LateCard, device: str = "auto") -> None:
        self.card, self.device = card, device
        self.prompts = Prompts(card.query_prefix, card.document_prefix)

    @cached_property
    def source(self) -> ModelSource:
        """Return the location of the model's files."""
        return locate(self.card.id, self.card.revision)

    def settings(self, role: Role) -> Mapping[str, object]:
        """Return everything that the vectors of a role depend on: the key under which they are stored."""
        card = self.card
        settings: dict[str, object] = {
            "model": self.source.label,
            "revision": self.source.version,
            "vectors": "tokens",
            "role": role.value,
            "prefix": self.prompts.of(role),
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
            settings |= {"expansion": card.expansion, "attend": card.attend, "expansion_token": card.expansion_token}
        return settings

    def limit(self, role: Role) -> int:
        """Return the most tokens of a text that the model reads; 0 for no limit."""
        if role is Role.DOCUMENT:
            return self.card.document_length
        return 0 if self.card.expansion == "min" else self.card.query_length

    def style(self, role: Role) -> Style:
        """Return the options of tokenization of a role."""
        return Style(self.prompts.of(role), self.limit(role) or self.source.max_length(self.card.subfolder))

    def _skips(self, role: Role) -> bool:
        return role is Role.DOCUMENT or self.card.skip_queries

    @property
    def batch_tokens(self) -> int:
        """Return the tokens, padding included, that a batch may hold to begin with."""
        return tokens_of(find_devices(self.device)[0])

    @cached_property
    def build(self) -> Build:
        """Return the build that is loaded. The files are downloaded if they are not on this machine."""
        return Build.of(self.card, folder=str(self.source.folder()), pooling="tokens")

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Load the model's tokenizer, which reads a marker as one token."""
        require_extra("torch", "torch", "transformers")
        from tokenizers import AddedToken, normalizers

        card, tokenizer = self.card, self.build.tokenizer()
        backend = tokenizer.backend
        for prefix in (card.query_prefix, card.document_prefix):
            for marker in dict.fromkeys((prefix, *prefix.split()[:1])):
                if marker.strip() and backend.token_to_id(marker) is not None:
                    if backend.encode(marker, add_special_tokens=False).tokens != [marker]:
                        backend.add_special_tokens([AddedToken(marker, normalized=False, special=True)])
                    break
        if card.lowercase:
            steps = [normalizers.Lowercase(), *filter(None, [backend.normalizer])]
            backend.normalizer = normalizers.Sequence(steps)
        return tokenizer

    def lengths(self, texts: Sequence[str], role: Role) -> NDArray[np.int64]:
        """Return each text's length in the model's tokens, marker included, before truncation."""
        return self.tokenizer.lengths(texts, self.style(role))

    def batch(self, texts: Sequence[str], role: Role) -> TokenBatch:
        """Tokenize the texts as the model reads them."""
        ids, mask, types = self.tokenizer.padded(texts, self.style(role), "right")
        counted = mask.astype(np.bool_)
        if role is Role.QUERY and self.card.expansion != "off":
            # Mask tokens count; the others attend to them only if the card says so.
            length, token = self.card.query_length, self.card.expansion_token
            filling = self.tokenizer.backend.token_to_id(token) if token else self.tokenizer.mask
            if filling is None:
                token = token or "mask token"
                raise R2medError(f"{self.source.name}: its tokenizer has no {token} to expand queries with")
            missing = max(0, length - ids.shape[1])
            ids, mask, types = (np.pad(part, ((0, 0), (0, missing))) for part in (ids, mask, types))
            filled = (mask == 0) & (np.arange(ids.shape[1]) < length)
            ids, counted = np.where(filled, filling, ids), mask.astype(np.bool_) | filled
            mask = np.where(filled, 1, mask) if self.card.attend else mask
        if self._skips(role) and len(self._skipped):
            counted = counted & ~np.isin(ids, self._skipped)
        return TokenBatch(Padded(ids, mask, types), counted)

    def offsets(self, text: str, role: Role) -> list[tuple[int, int]]:
        """Return the span of characters of each token in the prefixed text; special tokens have empty spans."""
        return self.tokenizer.offsets(text, self.style(role))

    @cached_property
    def _skipped(self) -> NDArray[np.int64]:
        """Return the ids of tokens without a vector that counts; a word that is not in the vocabulary is left out."""
        ids = (self.tokenizer.backend.token_to_id(word) for word in self.card.skiplist)
        return np.array(sorted({number for number in ids if number is not None}), dtype=np.int64)

    def load(self) -> None:
        """Load the model; it is shared by all encoders of the same build."""
        self._runner()

    def _runner(self) -> LoadedEncoder:
        require_extra("torch", "torch", "transformers", "safetensors", "sentence_transformers")
        build, device = self.build, find_devices(self.device)[0]
        return MODEL_CACHE.take((build, device), build.size, lambda: LoadedEncoder(build, device))

    def encode(self, texts: Sequence[str], role: Role) -> list[Vectors]:
        """Return the vectors that count of each text of a batch."""
        model = self._runner()
        check_limit(self.source.name, self.style(role).limit, model.positions, f"{role.value}_length")
        batch = self.batch(texts, role)
        return [rows[counted] for rows, counted in zip(model.run_tokens(batch.tokens), batch.counted, strict=True)]
