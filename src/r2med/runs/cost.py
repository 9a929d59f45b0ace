"""Cost of a system: requests, tokens and money of the models it asked, and its time, of one run or of several.

What a run's record does not state is unknown (None), and a sum with an unknown part is unknown: never zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from r2med.formatting import dollars_text, seconds_text
from r2med.runs.record import RunRecord, StageRecord
from r2med.settings import prices

if TYPE_CHECKING:
    from r2med.runs.ledger import Entry

UNKNOWN = "?"  # the text of an unknown cost, everywhere
COST_HEADINGS = ("requests", "tokens", "reasoning", "$", "s/query")  # column headings of a system's costs
_STORED = ("replay", "candidates")  # stages that read results of other tools, whose time is not recorded


@dataclass(frozen=True)
class Cost:
    """Costs of a system; None if the records do not state them.

    >>> cost = Cost(requests=12, prompt_tokens=3000, dollars=None, searching=6.0, queries=3)
    >>> (cost + Cost(queries=1)).dollars is None, cost.seconds_per_query
    (True, 2.0)
    """

    requests: int | None = 0
    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0
    reasoning_tokens: int | None = 0
    dollars: float | None = 0.0
    """US dollars; None if a price is unknown."""
    seconds: float = 0.0
    """Wall-clock time of the whole run."""
    loading: float | None = 0.0
    """Of these, seconds to load models."""
    indexing: float | None = 0.0
    """Of these, seconds to encode or index the documents."""
    searching: float | None = 0.0
    """Seconds to answer the queries, each request to a model counted as long as it took when first answered; None if
    a part of it was taken from an earlier run's cache, or is not recorded."""
    queries: int = 0

    @classmethod
    def of_runs(cls, entries: Sequence[Entry]) -> Self:
        """Compute the costs of several runs together."""
        seconds, queries = sum(entry.seconds for entry in entries), sum(len(entry.queries) for entry in entries)
        return cls.of([entry.record for entry in entries], seconds, queries)

    @classmethod
    def of(cls, records: Sequence[RunRecord], seconds: float, queries: int) -> Self:
        """Sum up the costs in records of runs; what is unknown in one record is unknown in the sum."""
        accounts = [step.account for record in records for step in record.work or () if step.account is not None]
        works = [record.work for record in records]
        steps = None if None in works else [step for work in works if work for step in work]
        unpriced = any(map(_unpriced, records)) or not all(account.whole for account in accounts)
        bills = [account.cost for account in accounts if account.cost is not None]
        counted = all(account.counted for account in accounts)

        def count(name: str) -> int | None:
            stated = not unpriced and (counted or name == "requests")
            return sum(getattr(account, name) for account in accounts) if stated else None

        def phase(name: str) -> float | None:
            return None if steps is None else sum(getattr(step, name) for step in steps)

        searched = None if any(map(_partial, records)) else phase("search")
        searching = None if searched is None else searched + sum(account.seconds for account in accounts)
        dollars = None if unpriced or len(bills) < len(accounts) else float(sum(bills))
        times = (phase("load"), phase("index"), searching)
        if dollars is not None and (hour := prices().hour) is not None:  # the user's hardware has a price
            spent = [time for time in times if time is not None]
            dollars = dollars + hour * sum(spent) / 3600 if len(spent) == len(times) else None
        return cls(
            count("requests"),
            count("prompt_tokens"),
            count("completion_tokens"),
            count("reasoning_tokens"),
            dollars,
            seconds,
            *times,
            queries,
        )

    def __add__(self, other: Self) -> Self:
        columns: Any = zip(vars(self).values(), vars(other).values(), strict=True)
        totals: Any = (None if None in column else sum(column) for column in columns)
        return type(self)(*totals)

    @property
    def tokens(self) -> int | None:
        """Return the tokens read and written, reasoning included."""
        stated = self.prompt_tokens is not None and self.completion_tokens is not None
        return (self.prompt_tokens or 0) + (self.completion_tokens or 0) if stated else None

    @property
    def seconds_per_query(self) -> float | None:
        """Return the average seconds to answer a query, with models loaded and documents indexed."""
        return None if self.searching is None else self.searching / self.queries if self.queries else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the cost for JSON."""
        return {**asdict(self), "seconds_per_query": self.seconds_per_query}

    def cells(self) -> list[str]:
        """Return the cost as cells of a table, under `COST_HEADINGS`; a dash if no model was asked.

        >>> Cost(requests=12, prompt_tokens=3000, dollars=None, searching=6.0, queries=3).cells()
        ['12', '3,000', '0', '?', '2.000']
        >>> Cost(searching=0.00042, queries=1).cells()
        ['-', '-', '-', '-', '0.00042']
        """
        asked = self.requests != 0 or bool(self.dollars)

        def cell(value: float | None, write: Callable[[Any], str]) -> str:
            return UNKNOWN if value is None else write(value) if asked else "-"

        counts = [cell(count, "{:,}".format) for count in (self.requests, self.tokens, self.reasoning_tokens)]
        seconds = self.seconds_per_query
        return [*counts, cell(self.dollars, dollars_text), UNKNOWN if seconds is None else seconds_text(seconds)]


def _unpriced(record: RunRecord) -> bool:
    """Return whether requests and prices are missing in a record: another tool's lists, stored texts, sold vectors."""
    billed = {step.stage for step in record.work or () if step.account is not None}
    return record.stages is None or any(
        stage.imported or stage.name == "replay" or (_served(stage) and stage.spec not in billed)
        for stage in record.stages
    )


def _partial(record: RunRecord) -> bool:
    """Return whether a record's time lacks a part of answering the queries."""
    foreign = record.stages is None or any(stage.imported or stage.name in _STORED for stage in record.stages)
    return foreign or any(step.reused for step in record.work or ())


def _served(stage: StageRecord) -> bool:
    """Return whether a stage asks a server that sells vectors, scores or searches."""
    encoder = stage.settings.get("encoder")
    backend = encoder.get("backend") if isinstance(encoder, dict) else stage.settings.get("backend")
    return stage.name == "api-rerank" or backend == "api"
