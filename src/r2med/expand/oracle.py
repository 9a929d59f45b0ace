"""The ceiling: search with the gold answer. No system, and marked as such wherever its results are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from r2med.data.model import Generation
from r2med.errors import R2medError
from r2med.expand.joins import check_join
from r2med.expand.kept import keep
from r2med.registry import spec_of
from r2med.stage import Context, Oracle

if TYPE_CHECKING:
    from r2med.data.model import Collection, Gold
    from r2med.spec import Call


@dataclass(frozen=True)
class OracleAnswer(Oracle):
    """The gold answer as if a model had written it.

    >>> str(OracleAnswer(join="concat"))
    'oracle-answer(join=concat)'
    """

    join: str = ""
    """How the answer joins the query; empty for the retriever's own way."""

    def __post_init__(self) -> None:
        check_join("oracle-answer", self.join)

    @property
    def spec(self) -> Call:
        """The stage in the spec language."""
        return spec_of(self, "oracle-answer")

    def expand_with(self, collection: Collection, gold: Gold, context: Context) -> Collection:
        """Add each query's gold answer; a query without one is counted."""
        if not any(answer.strip() for answer in gold.answers.values()):
            raise R2medError(f"{collection.task.name} has no gold answers, which {self} searches with")
        rows = [(self._generation(gold.answers.get(query, "").strip()),) for query in collection.queries.ids]
        return keep(self, collection, rows, context)

    def _generation(self, answer: str) -> Generation:
        missing = "" if answer else "the task has no answer to it"
        return Generation(answer, "oracle-answer", "gold", join=self.join, incomplete=missing)
