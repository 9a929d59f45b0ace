"""The two published search agents: Search-R1 reads documents as they are, Search-o1 has them condensed first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from r2med.expand.agent import Agent, Log, Search
from r2med.expand.moves import Tags
from r2med.expand.prompts import bundled, numbered
from r2med.llm import Reply, Request

NOTHING = "Nothing was found. Try other words."
_REASONING_SHOWN = 500
"""Words of the reasoning, the latest ones, that the reader of documents is shown."""


@dataclass(frozen=True)
class SearchR1(Agent):
    """Reason, search and answer in tags; documents come back as they are (arXiv 2503.09516).

    >>> str(SearchR1("search-r1-7b", turns=3))
    'search-r1(search-r1-7b, turns=3)'
    """

    name = "search-r1"
    tags = Tags(("<search>", "</search>"), ("<information>", "</information>"), anywhere=True)

    def read(self, searches: Sequence[Search], log: Log) -> list[str]:
        """The documents, numbered and cut."""
        return [numbered(search.documents, self.words) or NOTHING for search in searches]


@dataclass(frozen=True)
class SearchO1(Agent):
    """Searches inside the reasoning; a request of its own condenses what was found (arXiv 2501.05366).

    >>> str(SearchO1("qwq-32b", docs=5))
    'search-o1(qwq-32b, docs=5)'
    """

    turns: int = 10
    docs: int = 10

    name = "search-o1"
    tags = Tags(
        ("<|begin_search_query|>", "<|end_search_query|>"), ("<|begin_search_result|>", "<|end_search_result|>")
    )

    def fingerprint(self) -> Mapping[str, object]:
        """The prompt of the reader counts too."""
        return {**super().fingerprint(), "condense": bundled("search-o1.condense").hash}

    def read(self, searches: Sequence[Search], log: Log) -> list[str]:
        """What the model itself, asked apart, finds useful in the documents."""
        reading = [search for search in searches if search.documents]
        replies = iter(log.ask([self._condense(search) for search in reading]))
        return [self._useful(next(replies), log) if search.documents else NOTHING for search in searches]

    def _condense(self, search: Search) -> Request:
        trajectory = search.trajectory
        values = {
            "query": trajectory.question,
            "reasoning": " ".join(trajectory.reasoning.split()[-_REASONING_SHOWN:]),
            "search": search.query,
            "documents": numbered(search.documents, self.words),
        }
        request = self.model.request(bundled("search-o1.condense").fill(values))
        return replace(request, sample=trajectory.sample)

    def _useful(self, reply: object, log: Log) -> str:
        if isinstance(reply, Reply) and not reply.incomplete:
            return reply.text
        log.counts["condensing_failed"] += 1
        return "The documents could not be read. Go on without them, or try other words."
