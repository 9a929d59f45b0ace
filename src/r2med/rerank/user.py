"""A user's own reranker, named in a spec as `my.module:MyReranker`: a class with `score(query, documents)`.

It may also have `version`, a text that changes when its scores do; without one, its file counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from r2med.data.dataset import Collection
from r2med.data.run import Run
from r2med.errors import SpecError, blame, debug
from r2med.pipeline import user_code
from r2med.pipeline.spec import Call
from r2med.pipeline.stage import Context, Reranker
from r2med.rerank.candidates import CandidateList, Outcome, candidates, check_depth, checked, reranked
from r2med.rerank.cards import scores_pairs


@dataclass(frozen=True)
class OwnReranker(Reranker):
    """Reranker that runs a user's class. `depth` is r2med's; every other option goes to the class."""

    address: str
    depth: int = 100
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        check_depth(self.address, self.depth)
        if not scores_pairs(self.kind_of_user):
            raise SpecError(f"{self.address} has no method score; a reranker has score(query, documents)")
        user_code.check_arguments(self.address, self.kind_of_user, dict(self.options))

    @classmethod
    def from_call(cls, call: Call) -> OwnReranker:
        """Build the stage of `my.module:MyReranker(option=...)`."""
        if call.args:
            raise SpecError(f"{call}: name the options of a class of your own, as in {call.name}(depth=10)")
        options = dict(call.options)
        depth = options.pop("depth", 100)
        if type(depth) is not int:
            raise SpecError(f"{call.name}: depth must be a whole number, not {depth}")
        return cls(call.name, depth, tuple(options.items()))

    @cached_property
    def kind_of_user(self) -> Any:
        """Import the user's class."""
        return user_code.import_class(self.address)

    @property
    def spec(self) -> Call:
        """Return the stage in the spec language."""
        depth = (("depth", self.depth),) if self.depth != 100 else ()
        return Call(self.address, (), (*depth, *self.options))

    @property
    def user_options(self) -> frozenset[str]:
        """Return the options that the constructor takes."""
        return user_code.option_names(self.kind_of_user, dict(self.options)) - {"depth"}

    def fingerprint(self) -> Mapping[str, object]:
        """Return the version that the class states, or else a hash of its file."""
        return {"version": user_code.class_version(self.kind_of_user)}

    def local_content(self) -> Mapping[str, str]:
        """Return the file of the class, with a hash of it."""
        return user_code.class_content(self.address, self.kind_of_user)

    def describe(self) -> Mapping[str, object]:
        """Return the settings that a plan shows."""
        return {"class": self.address, "depth": self.depth, "options": {name: str(v) for name, v in self.options}}

    def rerank(self, collection: Collection, run: Run, context: Context) -> Run:
        """Score every query's candidates with the class, and order the lists by the scores."""
        lists = candidates(collection, run, self.depth)
        with context.timed("load"):
            reranker = user_code.construct(self.address, self.kind_of_user, dict(self.options))

        def outcome(row: CandidateList) -> Outcome:
            try:
                return checked(reranker.score(row.text, list(row.texts)), row)
            except Exception as error:  # a query on which a user's code fails must not take the others with it
                debug(error)
                return f"{self.address} failed: {blame(error)}"

        return reranked(self, run, lists, context.executor.map(str(self), outcome, lists), context)
