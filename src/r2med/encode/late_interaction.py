"""Late-interaction models: texts to the vectors of their tokens, and the stages that search or rerank by these.

Such a model defines which tokens have a vector that counts. A marker is put before every text. A query is cut to its
length and, for most models, filled up to it with mask tokens, whose vectors count too. Of a document the vectors of
punctuation are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.encode.cards import SHORT_DTYPES
from r2med.encode.encoder import Encoder, Prompts, Role, Vectors
from r2med.encode.late_cards import DTYPES, EXPANSIONS, LateCard, card_from_files, late_card, late_cards
from r2med.encode.loading import Build
from r2med.encode.transformer import LoadedEncoder
from r2med.encode.vectors import TOKEN_PRECISIONS, TokenStore
from r2med.errors import R2medError, SpecError, require_extra, suggest
from r2med.models.memory import MODEL_CACHE, find_devices, tokens_of
from r2med.models.source import ModelSource, existing_folder, locate, looks_like_path, spelled_folder
from r2med.models.tokenizer import Padded, Style, Tokenizer, check_limit
from r2med.pipeline.registry import spec_of
from r2med.pipeline.spec import Call
from r2med.pipeline.stage import Context, Requirements, Stage
from r2med.store.columns import text_hashes

NAME = "colbert"


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


@dataclass(frozen=True)
class LateInteraction(Stage):
    """Late-interaction model of a stage, with the settings that a spec may change."""

    model: str
    """A card's name, `hf:ORG/NAME`, or a folder: sentence-transformers, PyLate or Stanford."""
    _: KW_ONLY
    depth: int = 100
    """How many documents are kept, or reranked."""
    query_length: int = 0
    """Tokens that a query is cut to, and filled up to if queries are expanded; 0 as the checkpoint says."""
    document_length: int = 0
    """Tokens that are read of a document; 0 as the checkpoint says."""
    expansion: str = ""
    """How queries are filled up with mask tokens: off, fixed or min; empty as the checkpoint says."""
    dtype: str = ""
    """The precision the model runs in: float32, bfloat16, float16."""
    store: str = "float16"
    """What documents' vectors are kept as: float16, int8 or float32."""
    revision: str = ""
    """The hub's commit or branch, in place of the card's."""
    device: str = "auto"
    """Where torch runs the model: cpu, cuda, cuda:1, mps."""
    remote_code: bool = False
    """Whether Python code of the model's repository may run: only for those you trust."""

    def __post_init__(self) -> None:
        if self.model not in late_cards():
            object.__setattr__(self, "model", spelled_folder(self.model))
        if self.depth < 1:
            raise SpecError(f"{self.model}: depth must be 1 or more, not {self.depth}")
        if min(self.query_length, self.document_length) < 0:
            raise SpecError(f"{self.model}: query_length and document_length must not be negative")
        choices = {"expansion": EXPANSIONS, "dtype": (*DTYPES, *SHORT_DTYPES), "store": TOKEN_PRECISIONS}
        for option, names in choices.items():
            if (value := getattr(self, option)) and value not in names:
                hint = suggest(value, names) or f"; known: {', '.join(names)}"
                raise SpecError(f"{self.model}: unknown {option} {value!r}{hint}")
        # A wrong name is an error before anything runs.
        if not (self.model in late_cards() or "/" in self.model or looks_like_path(self.model)):
            late_card(self.model)

    @property
    def spec(self) -> Call:
        """Return the stage in the spec language."""
        return spec_of(self, NAME)

    def check_files(self) -> None:
        """Refuse a folder that does not exist."""
        if looks_like_path(self.model):
            existing_folder(self.model)

    @cached_property
    def source(self) -> ModelSource:
        """Return the location of the model's files."""
        if published := late_cards().get(self.model):
            return locate(published.id, self.revision or published.revision)
        return locate(self.model.removeprefix("hf:"), self.revision or "main")

    @cached_property
    def card(self) -> LateCard:
        """Return the card from the checkpoint's own files, which take precedence, with the changes of the spec."""
        changes: dict[str, Any] = {}
        if published := late_cards().get(self.model):
            facts = ("licence", "parameters", "dimension", "notes", "dtype", "remote_code")
            changes = {name: getattr(published, name) for name in facts}
        options = ("query_length", "document_length", "expansion", "dtype", "remote_code")
        changes |= {name: getattr(self, name) for name in options if getattr(self, name)}
        if self.dtype:
            changes["dtype"] = SHORT_DTYPES.get(self.dtype, self.dtype)
        return replace(card_from_files(self.source, self.model), **changes)

    @cached_property
    def encoder(self) -> TokenEncoder:
        """Build the encoder with this stage's settings; not loaded."""
        if self.card.remote_code and not self.remote_code:
            raise SpecError(f"{self.card.id} runs Python code of its own; add remote_code=true if you trust it")
        return TokenEncoder(self.card, self.device)

    @property
    def requirements(self) -> Requirements:
        """Return the extra, and the repositories on the hub."""
        return Requirements(extra="torch", hub=() if self.source.place else (self.source.name,))

    def fingerprint(self) -> Mapping[str, object]:
        """Return what the vectors of queries and documents depend on, and how they are compared."""
        settings: dict[str, object] = {
            role.value: [list(pair) for pair in sorted(self.encoder.settings(role).items())] for role in Role
        }
        return settings | {"use": self.kind, "similarity": self.card.similarity}

    def local_content(self) -> Mapping[str, str]:
        """Return the folder of the model, with a hash of it."""
        return self.source.local_content()

    def describe(self) -> Mapping[str, object]:
        """Return every setting that affects the results."""
        card = self.card
        expansion = f"{card.expansion}, attended to" if card.attend and card.expansion != "off" else card.expansion
        return {
            "model": card.id,
            **({} if self.source.place else {"revision": self.source.revision}),
            "query prefix": card.query_prefix,
            "document prefix": card.document_prefix,
            "query length": card.query_length,
            "document length": card.document_length,
            "expansion": expansion,
            "skipped": "".join(card.skiplist) or "none",
            "similarity": card.similarity,
            "dtype": card.dtype,
            "store": self.store,
            "depth": self.depth,
        }

    def compare_card(self, context: Context) -> None:
        """Warn if the checkpoint differs from its published card; the checkpoint's own files count."""
        published = late_cards().get(self.model)
        if published is None:
            return
        checkpoint = card_from_files(self.source, self.model)
        for name in ("query_length", "document_length", "expansion", "attend", "query_prefix", "document_prefix"):
            expected, stated = getattr(published, name), getattr(checkpoint, name)
            if expected and expected != stated:
                line = f"{published.id} has {name} {stated!r}, its card {expected!r}; the checkpoint's own counts"
                context.warn(line)


class TokenPiece(NamedTuple):
    """Span of characters of a token that has a vector."""

    text: str
    start: int
    end: int
    """Both -1 for a token that no text has: a marker, a mask, a beginning or an end."""


@dataclass(frozen=True)
class TokenMatch:
    """Pair of a query's token and the token of a document that matches it best."""

    query: str
    document: str
    similarity: float
    """What it adds to the score."""
    written: bool
    """Whether the query's token stands in its text; markers and masks do not."""
    start: int
    """Where the document's token is in the text, in characters; -1 for a marker."""
    end: int


def align(encoder: TokenEncoder, query: str, documents: Mapping[str, str], store: str) -> dict[str, list[TokenMatch]]:
    """Return, for each document with stored vectors, the best match of every token of a query, in the query's order."""
    query_vectors = _kept(encoder, [query], Role.QUERY, "float32")[0]
    if query_vectors is None:
        return {}
    pieces = token_pieces(encoder, query, Role.QUERY)
    stored = _kept(encoder, list(documents.values()), Role.DOCUMENT, store)
    matches: dict[str, list[TokenMatch]] = {}
    for (name, text), vectors in zip(documents.items(), stored, strict=True):
        if vectors is not None:
            document = token_pieces(encoder, text, Role.DOCUMENT)
            product = query_vectors.astype(np.float64) @ vectors.astype(np.float64).T
            best = product.argmax(axis=1)
            matches[name] = []
            for piece, place, row in zip(pieces, best.tolist(), product, strict=True):
                text, start, end = document[place]
                match = TokenMatch(piece.text, text, round(float(row[place]), 6), piece.start >= 0, start, end)
                matches[name].append(match)
    return matches


def _kept(encoder: TokenEncoder, texts: Sequence[str], role: Role, precision: str) -> list[Vectors | None]:
    store = TokenStore(encoder.settings(role), precision)
    places = store.find(text_hashes(texts))
    return [None if place < 0 else store.vectors(np.array([place])).of(0) for place in places.tolist()]


def token_pieces(encoder: TokenEncoder, text: str, role: Role) -> list[TokenPiece]:
    """Return the tokens of a text that have a vector, in the order of the vectors."""
    batch, before = encoder.batch([text], role), len(encoder.prompts.of(role))
    offsets = encoder.tokenizer.offsets(text, encoder.style(role))
    pieces = []
    for place in np.flatnonzero(batch.counted[0]).tolist():
        first, last = offsets[place] if place < len(offsets) else (0, 0)
        # A token of bytes may begin with the space before its word, be it the prefix's.
        start, end = max(0, first - before), last - before
        while start < end and text[start : start + 1].isspace():
            start += 1
        special = encoder.tokenizer.backend.id_to_token(int(batch.tokens.ids[0, place])) or ""
        pieces.append(TokenPiece(text[start:end], start, end) if start < end else TokenPiece(special, -1, -1))
    return pieces
