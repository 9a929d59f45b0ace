"""Vectors from a server that speaks the OpenAI protocol's `/embeddings`: hosted or local."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from r2med.encode.cards import EncoderCard
from r2med.encode.encoder import Encoder, Prompts, Role, Vectors
from r2med.errors import R2medError, SpecError
from r2med.models.http import AttemptError, RequestLimits, check_url, server_name
from r2med.models.server import JsonServer
from r2med.pipeline.stage import Requirements
from r2med.settings import prices
from r2med.usage import Usage

KEYS: Mapping[str, str] = {"api.openai.com": "OPENAI_API_KEY", "api.voyageai.com": "VOYAGE_API_KEY"}
"""Which key goes to which host. Any other host is sent `R2MED_EMBED_KEY` if that is set, and never one of these."""
_OWN_KEY = "R2MED_EMBED_KEY"
_LONGEST = 8000  # tokens of a text that are sent to a model without a card
_USUAL_BYTES = 4  # of a token, for a guess
_BYTES_PER_TOKEN = 3  # English has four to five, so a text that passes this count passes the server's


def card_at(address: str) -> EncoderCard:
    """Build the card of `NAME@URL`."""
    name, _, url = address.partition("@")
    if not name:
        raise SpecError("a model of a server needs a name; write NAME@http://host:port/v1")
    url = check_url(name, url, _OWN_KEY)
    return EncoderCard(address, name, backend="api", url=url, max_query=_LONGEST, max_document=_LONGEST)


class EmbeddingServer(JsonServer[Vectors]):
    """The connection to an embedding server."""

    path = "embeddings"
    made = "vectors"

    def read(self, answer: Any, body: Mapping[str, Any]) -> Vectors:
        """Parse the vectors, in the order of the texts."""
        rows = sorted(answer["data"], key=lambda row: row["index"])
        vectors = np.array([row["embedding"] for row in rows], dtype=np.float32)
        count = len(body["input"])
        if [row["index"] for row in rows] != list(range(count)) or vectors.ndim != 2:
            raise AttemptError(f"{self.url} sent {len(rows)} vectors for {count} texts")
        return vectors


class ApiEncoder(Encoder):
    """An encoder behind HTTP; the server does the work, from whichever host it is asked."""

    spreads, billed = False, True
    request_texts = 128  # the most texts in a request
    request_tokens = 16_000  # the most tokens in a request of more than one text

    def __init__(self, card: EncoderCard, prompts: Prompts, limits: RequestLimits | None = None) -> None:
        self.card, self.prompts, self.similarity = card, prompts, card.similarity
        self.limits = limits or RequestLimits.configured()
        self.url = check_url(card.id, card.url, _OWN_KEY)
        self.key_env = KEYS.get(urlsplit(self.url).hostname or "", _OWN_KEY)
        # The tiktoken encoding that counts tokens if that package is installed; else bytes are counted.
        self.tokenizer = card.tokenizer if importlib.util.find_spec("tiktoken") else ""

    def settings(self, role: Role) -> Mapping[str, object]:
        """Return what is sent, the server, and the cut-off; never the key."""
        return {
            "model": self.card.id,
            "url": server_name(self.url),
            "backend": "api",
            "role": role.value,
            "prompt": self.prompts.of(role),
            "max_length": self.limit(role),
            "tokens": self.tokenizer or f"{_BYTES_PER_TOKEN} bytes",
            "input_type": role.value if self.card.input_types else "",
        }

    @property
    def requirements(self) -> Requirements:
        """Return the HTTP library, and the key if the host is known to need one."""
        return Requirements(extra="api", key=self.key_env if self.key_env in KEYS.values() else "")

    @property
    def batch_tokens(self) -> int:
        """Return the tokens of as many requests as may be under way: what a kill can lose."""
        return self.limits.concurrency * self.request_tokens

    def load(self) -> None:
        """Check for the library and the key; nothing is sent yet."""
        _ = self._server

    @cached_property
    def _server(self) -> EmbeddingServer:
        needs_key = self.key_env in KEYS.values()
        return EmbeddingServer(self.card.id, self.url, self.key_env, self.limits, needs_key=needs_key)

    def lengths(self, texts: Sequence[str], role: Role) -> NDArray[np.int64]:
        """Count tokens with the tokenizer if it is known, or else by bytes."""
        return np.array([self._count(self.prompted(text, role)) for text in texts], dtype=np.int64)

    def limit(self, role: Role) -> int:
        """Return the number of tokens that are sent of a text."""
        return self.card.max_document

    def encode(self, texts: Sequence[str], role: Role) -> Vectors:
        """Encode a batch in as many requests as it takes, several at a time."""
        cut = [self._cut(self.prompted(text, role)) for text in texts]
        extra = {"input_type": role.value} if self.card.input_types else {}
        bodies = [{"model": self.card.id, "input": cut[some], **extra} for some in self._requests(cut)]
        return np.concatenate(self._server.ask_all(bodies))

    def take_bill(self) -> Usage | None:
        """Return the requests answered since the last call, and the tokens that the server counted in them."""
        bill = self._server.bill(self._token_price) if "_server" in vars(self) else None
        return bill if bill and bill.requests else None

    def price(self, tokens: int) -> float | None:
        """Return the cost of so many tokens at the price of the user's files or the card."""
        return None if self._token_price is None else tokens * self._token_price / 1e6

    def expect(self, texts: Sequence[str], role: Role, count: int) -> tuple[int, int]:
        """Estimate the number of requests and tokens that `count` texts take, of which some are given."""
        if not texts or not count:
            return 0, 0
        sent = [self._cut(self.prompted(text, role)) for text in texts]
        sizes = [self._count(text) if self.tokenizer else -(-len(text.encode()) // _USUAL_BYTES) for text in sent]
        tokens = round(sum(sizes) * count / len(texts))
        return max(-(-count // self.request_texts), -(-tokens // self.request_tokens)), tokens

    @property
    def _token_price(self) -> float | None:
        return prices().of_tokens(self.card.id, self.card.price)

    def _count(self, text: str) -> int:
        if not self.tokenizer:
            return -(-len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN)
        return len(_encoding(self.tokenizer).encode_ordinary(text))

    def _cut(self, text: str) -> str:
        most, data = self.card.max_document, text.encode("utf-8", "replace")
        # A token has at least a byte.
        if not most or len(data) <= most:
            return data.decode("utf-8")
        if not self.tokenizer:
            return data[: most * _BYTES_PER_TOKEN].decode("utf-8", "ignore")
        encoding = _encoding(self.tokenizer)
        return str(encoding.decode_bytes(encoding.encode_ordinary(text)[:most]), "utf-8", "ignore")

    def _requests(self, texts: Sequence[str]) -> Iterator[slice]:
        """Yield the spans of texts that go into one request each."""
        start, used = 0, 0
        for place, text in enumerate(texts):
            tokens = -(-len(text.encode("utf-8")) // _BYTES_PER_TOKEN)
            full = used + tokens > self.request_tokens or place - start >= self.request_texts
            if place > start and full:
                yield slice(start, place)
                start, used = place, 0
            used += tokens
        yield slice(start, len(texts))


@cache
def _encoding(name: str) -> Any:
    tiktoken = importlib.import_module("tiktoken")
    try:
        return tiktoken.get_encoding(name)
    except (OSError, ValueError) as error:
        raise R2medError(
            f"tiktoken cannot get its vocabulary {name}; set TIKTOKEN_CACHE_DIR to a folder that has it,"
            " or uninstall tiktoken to count bytes instead"
        ) from error
