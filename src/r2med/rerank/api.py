"""Rerankers of a server that speaks `/rerank`: the shape of Cohere, Jina, vLLM, llama.cpp and others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from r2med.data.dataset import Collection
from r2med.data.run import Run
from r2med.errors import SpecError
from r2med.models.http import AttemptError, RequestLimits, check_url, server_name
from r2med.models.server import JsonServer, RequestFailed
from r2med.models.templates import cut_words
from r2med.pipeline.registry import NamedStage
from r2med.pipeline.stage import Context, Requirements, Reranker
from r2med.rerank.candidates import Outcome, candidates, check_depth, checked, reranked
from r2med.rerank.cards import ApiCard, api_card, api_cards
from r2med.rerank.pair_scores import Scored, ScoreStore, WantedPair, wanted_pairs
from r2med.settings import prices
from r2med.usage import Usage

_OWN_KEY = "R2MED_RERANK_KEY"
_SAMPLED = 500  # from about how many documents a price is reckoned
_CHARACTERS = 4  # of a token, about


def api_model(address: str) -> ApiCard:
    """Build the model of a card's name or of `NAME@URL`. A key goes to the host that it belongs to and to no other.

    >>> api_model("bge-reranker-v2-m3@http://localhost:8000/v1").key_env
    'R2MED_RERANK_KEY'
    """
    name, mark, url = address.partition("@")
    if not mark:
        return api_card(address)
    if not name:
        raise SpecError(f"cannot read the model {address!r}; write NAME@http://host:port/v1")
    url = check_url(name, url, _OWN_KEY).removesuffix("/rerank")
    hosts = {urlsplit(card.url).hostname: card for card in api_cards().values()}
    host_card = hosts.get(urlsplit(url).hostname, ApiCard("", "", "", _OWN_KEY, needs_key=False))
    return replace(host_card, name=address, id=name, url=url)


class RerankServer(JsonServer[NDArray[np.float64]]):
    """The connection to a reranking server."""

    path = "rerank"
    made = "scores"
    retry_unreadable = False

    def read(self, answer: Any, body: Mapping[str, Any]) -> NDArray[np.float64]:
        """Parse the scores, in the order of the documents, whatever the order of the results."""
        count = len(body["documents"])
        rows = answer.get("results") or answer.get("data") or []
        scores = {int(row["index"]): float(row.get("relevance_score", row.get("score"))) for row in rows}
        if sorted(scores) != list(range(count)):
            raise AttemptError(f"{self.url} sent {len(scores)} scores for {count} documents", retry=False)
        return np.array([scores[place] for place in range(count)], dtype=np.float64)


@dataclass(frozen=True)
class ApiRerank(NamedStage, Reranker):
    """Reranker of a server's `/rerank`: a card's name (cohere, jina, voyage), or `NAME@http://host:port/v1`.

    >>> str(ApiRerank("rerank-v3.5@https://api.cohere.com/v2", depth=50))
    'api-rerank(rerank-v3.5@https://api.cohere.com/v2, depth=50)'
    """

    model: str
    _: KW_ONLY
    depth: int = 100  # how many documents of a list are reranked
    batch: int = 100  # how many documents are sent at a time
    words: int = 0  # how many words of a document are sent, for servers that refuse long ones; 0 for all

    name = "api-rerank"
    billed = True

    def __post_init__(self) -> None:
        check_depth("api-rerank", self.depth)
        if self.batch < 1 or self.words < 0:
            raise SpecError(f"api-rerank: batch must be positive and words not negative: {self.batch}, {self.words}")
        # A wrong name is an error before anything runs.
        api_model(self.model)

    @cached_property
    def card(self) -> ApiCard:
        """Return the card of the model, with its server."""
        return api_model(self.model)

    @property
    def requirements(self) -> Requirements:
        """Return the HTTP library, and the key if the host is known to need one."""
        return Requirements(extra="api", key=self.card.key_env if self.card.needs_key else "")

    def fingerprint(self) -> Mapping[str, object]:
        """Return what scores depend on besides the two texts: the key under which they are stored."""
        return {"model": self.card.id, "url": server_name(self.card.url), "backend": "api", "words": self.words}

    def describe(self) -> Mapping[str, object]:
        """Return the settings that a plan shows."""
        return {"model": self.card.id, "url": self.card.url, "depth": self.depth, "words": self.words or "all"}

    def forecast(self, collection: Collection, context: Context) -> Mapping[str, object]:
        """Return the most requests that this may take; which pairs are stored already is known only with the lists."""
        texts, queries = collection.documents.texts, collection.queries.texts
        depth = min(self.depth, len(texts))
        requests = -(-depth // self.batch) * len(queries)
        some = texts[:: max(1, len(texts) // _SAMPLED)]
        size = sum(len(cut_words(text, self.words) if self.words else text) for text in some) / max(1, len(some))
        asked = sum(map(len, queries)) / max(1, len(queries))
        # The query is read with every document.
        tokens = round(len(queries) * depth * (size + asked) / _CHARACTERS)
        per_token, per_request = self._prices
        cost = None if per_token is None else tokens * per_token / 1e6
        cost = cost if per_request is None else requests * per_request / 1e3
        return {"requests at most": requests, "tokens": tokens, "dollars": cost}

    @property
    def _prices(self) -> tuple[float | None, float | None]:
        stated, card = prices(), self.card
        names = (card.id, urlsplit(card.url).netloc)
        return stated.of_tokens(card.id, card.price), stated.of_requests(names, card.request_price)

    def rerank(self, collection: Collection, run: Run, context: Context) -> Run:
        """Ask for every query's scores, several queries at a time, and order the lists by them."""
        lists = candidates(collection, run, self.depth)
        pairs = wanted_pairs(lists)
        problems: dict[str, str] = {}
        with ScoreStore(self.fingerprint()) as store:
            stored = store.scored(pair.digest for row in pairs for pair in row)
            scores = dict(stored)
            if stored:
                context.reuse("scores of pairs")
            asked: list[list[WantedPair]] = []
            for row in pairs:
                # A text is sent once.
                missing = list({pair.digest: pair for pair in row if pair.digest not in stored}.values())
                asked += [missing[start : start + self.batch] for start in range(0, len(missing), self.batch)]
            if not asked:
                context.book(Usage(whole=False))
            else:
                card, limits = self.card, RequestLimits.configured()
                server = RerankServer(card.id, card.url, card.key_env, limits, needs_key=card.needs_key)
                with context.executor.progress(str(self), len(asked)) as bar:
                    for place, answer in server.ask_each(list(map(self._body, asked))):
                        bar.advance()
                        if isinstance(answer, RequestFailed):
                            problems[asked[place][0].query] = str(answer)
                            continue
                        digests = (pair.digest for pair in asked[place])
                        scored = dict(zip(digests, map(Scored, answer.tolist()), strict=True))
                        store.keep(scored)
                        scores |= scored
                context.book(replace(server.bill(*self._prices), whole=not stored))
        context.notes.facts |= {"pairs": sum(map(len, pairs)), "scored": sum(map(len, asked))}
        outcomes: list[Outcome] = [
            problems[one.query] if one.query in problems else checked([scores[pair.digest].score for pair in row], one)
            for one, row in zip(lists, pairs, strict=True)
        ]
        return reranked(self, run, lists, outcomes, context)

    def _body(self, part: Sequence[WantedPair]) -> dict[str, Any]:
        texts = [cut_words(pair.pair.document, self.words) if self.words else pair.pair.document for pair in part]
        return {"model": self.card.id, "query": part[0].pair.query, "documents": texts, self.card.top: len(texts)}
