"""The contract of a stage: what it is, what its output depends on, what it needs, and the one thing it does.

A system is stages in a row: any number of expanders, one retriever, any number of rerankers. A stage knows the
one before it only through the data handed over, and it never sees judgements; an `Oracle` is the one exception,
says so by its type, and marks every result it touches.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from r2med.errors import R2medError
from r2med.formatting import counted
from r2med.pipeline.arguments import StageType
from r2med.pipeline.user_code import user_code
from r2med.runs.usage import Account, StepRecord
from r2med.store.cache import Cache
from r2med.store.hashes import cache_key
from r2med.store.progress import account

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from r2med.data.dataset import Collection, Generation, Gold
    from r2med.data.run import Run
    from r2med.pipeline.executor.local import Executor
    from r2med.pipeline.spec import Call
    from r2med.pipeline.system import System


@dataclass(frozen=True)
class Requirements:
    """What must be at hand before a stage can run; `--dry-run` and `doctor` show it."""

    extra: str = ""
    """The optional dependency group, as in `pip install 'r2med[extra]'`."""
    key: str = ""
    """The environment variable that must hold an API key."""
    hub: tuple[str, ...] = ()
    """Repositories that are fetched from the hub when they are not cached."""
    gpu: bool = False
    """Whether it is out of reach without an accelerator."""


class Timing:
    """Where a stage's time went: `load` a model, `index` the documents, `ask` a model and wait, or `search`.

    A moment belongs to one of them. What the systems inside a stage take (`inside`) is in their own timings, and what
    it takes to `check` an approximate search against the exact one is nobody's who only searches.

    >>> timing = Timing()
    >>> with timing.spent_on("index"), timing.spent_on("load"):
    ...     pass
    >>> sorted(timing.seconds)
    ['index', 'load', 'search']
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._current, self._since = "search", time.perf_counter()

    @contextmanager
    def spent_on(self, name: str) -> Iterator[None]:
        """Count the time of the block under a name; a block inside it counts under its own."""
        before = self._current
        self._switch(name)
        try:
            yield
        finally:
            self._switch(before)

    def _switch(self, name: str) -> None:
        now = time.perf_counter()
        self.add(self._current, now - self._since)
        self._current, self._since = name, now

    def add(self, name: str, seconds: float) -> None:
        """Count seconds under a name."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


@dataclass
class Notes:
    """What happened while a stage worked, for the result to remember."""

    warnings: list[str] = field(default_factory=list)
    """Sentences for the person, shown with the result."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Truncation, tokens, requests, index bytes, first prompts, ..."""
    incomplete: dict[str, str] = field(default_factory=dict)
    """Query id to the reason why the stage did not do for it what it should have."""

    written: dict[str, tuple[Generation, ...]] = field(default_factory=dict)
    """Query id to what was generated for it, also inside the systems that a stage is made of."""

    work: dict[str, StepRecord] = field(default_factory=dict)
    """What each step took (seconds by phase, a model's account), those inside a stage too; a shared step is here once,
    whichever system of the command computed it."""

    reused: list[str] = field(default_factory=list)
    """What was not computed for the queries but taken from the cache, so that the time is not all that it takes."""

    def absorb(self, label: str, other: Notes) -> None:
        """Add another stage's notes, its facts under its label."""
        self.warnings += [sentence for sentence in other.warnings if sentence not in self.warnings]
        self.incomplete |= other.incomplete
        self.work |= other.work
        if other.facts:
            self.facts[label] = other.facts
        for query, generations in other.written.items():
            known = self.written.get(query, ())
            self.written[query] = (*known, *(each for each in generations if each not in known))


@dataclass
class Context:
    """What a stage may use while it works: the cache, the executor, and a place to note what happened."""

    cache: Cache
    executor: Executor
    notes: Notes = field(default_factory=Notes)
    memo: dict[Any, Any] = field(default_factory=dict)
    """Stages already computed in this command, shared by its systems."""
    strict: bool = False
    """Whether a query that a stage could not do what it should for is an error instead of a count."""
    fresh: bool = False
    """Whether what an engine of somebody else answered before is asked for again."""
    timing: Timing = field(default_factory=Timing)

    def for_stage(self) -> Context:
        """The same context with notes of its own."""
        return replace(self, notes=Notes())

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Count the time of the block as loading a model (`load`), preparing the documents (`index`), or `check`.

        All else that a stage does counts as searching.
        """
        with self.timing.spent_on(name):
            yield

    def asked_for(self, seconds: float) -> None:
        """Count some of the time as waiting for a model's answers, whose own times are in its account."""
        self.timing.add("search", -seconds)
        self.timing.add("ask", seconds)

    def book(self, bill: Account) -> None:
        """Add a server's bill to those of this stage."""
        before = self.notes.facts.get("account")
        self.notes.facts["account"] = (bill if before is None else Account.from_json(before).plus(bill)).as_json()

    def reuse(self, what: str) -> None:
        """Note that a part of the queries' work was taken from the cache: the time is not all that it takes."""
        if what not in self.notes.reused:
            self.notes.reused.append(what)

    def warn(self, sentence: str) -> None:
        """Tell the person something, once."""
        if sentence not in self.notes.warnings:
            self.notes.warnings.append(sentence)
            account.warn(sentence)


class Stage(metaclass=StageType):
    """One step of a system. Construction is cheap and offline; the work happens in the one method of each kind."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def spec(self) -> Call:
        """The stage in the spec language, with every argument that is not at its default."""

    def fingerprint(self) -> Mapping[str, object]:
        """What the output depends on beyond the spec: code version, model revision, prompt text, file content.

        Of a class outside this package, the code is part of it, here and in `key` whatever a subclass says.
        """
        return self._code()

    def _code(self) -> dict[str, object]:
        code = user_code(type(self))
        return {"code": code} if code else {}

    def local_content(self) -> Mapping[str, str]:
        """Return the files, folders and code on this machine that the spec names: where they are, and a hash of each.

        Two runs of one spec are runs of one system only if these hashes are the same.
        """
        return {f"{type(self).__module__}:{type(self).__name__}": str(code) for code in self._code().values()}

    @property
    def requirements(self) -> Requirements:
        """What must be at hand before this stage can run."""
        return Requirements()

    def describe(self) -> Mapping[str, object]:
        """What a plan shows of this stage: the resolved settings, defaults included."""
        return {}

    @property
    def billed(self) -> bool:
        """Whether it asks servers that may bill what they are asked: what it takes is foreseen and booked."""
        return False

    @property
    def user_options(self) -> frozenset[str]:
        """The options that go to a user's own function or class, which are kept in the field `options`."""
        return frozenset()

    def inputs(self, collection: Collection) -> Mapping[str, object]:
        """What the output depends on that lies beside the data and is not part of it, such as published generations."""
        return {}

    def forecast(self, collection: Collection, context: Context) -> Mapping[str, object]:
        """What running would compute (requests, tokens, texts to encode) and what is there; computes nothing."""
        return {}

    def is_ready(self, collection: Collection, context: Context) -> bool:
        """Return whether nothing has to be made of the documents before a query can be answered."""
        return not self.forecast(collection, context).get("documents to encode")

    def passes(self, inner: System, collection: Collection) -> Collection:
        """What a system inside this stage is handed of a collection at the most; all of it unless the stage chooses."""
        return collection

    def key(self) -> str:
        """A hash of everything the output depends on, apart from the input."""
        return cache_key(spec=str(self.spec), parts=sorted({**self._code(), **self.fingerprint()}.items()))

    def check_files(self) -> None:
        """Refuse a stage whose files are not there, where that can be told without a network."""

    def __rshift__(self, other: Stage | System | str) -> System:
        return self._alone() >> other

    def __rrshift__(self, other: str) -> System:
        return other >> self._alone()

    def _alone(self) -> System:
        """The stage as a system; a system is made of stages."""
        from r2med.pipeline.system import System

        return System((self,))

    def __str__(self) -> str:
        return str(self.spec)


class Expander(Stage):
    """Queries in, queries out: adds generations to each query."""

    kind = "expander"

    @abstractmethod
    def expand(self, collection: Collection, context: Context) -> Collection:
        """The collection with this stage's generations added."""


class Oracle(Expander):
    """An expander that is shown the gold: a ceiling, never a system."""

    def expand(self, collection: Collection, context: Context) -> Collection:
        """Not possible: an oracle works only with the gold."""
        raise TypeError(f"{self} needs gold answers")

    @abstractmethod
    def expand_with(self, collection: Collection, gold: Gold, context: Context) -> Collection:
        """The collection with generations made from the gold."""


class Retriever(Stage):
    """Queries in, run out."""

    kind = "retriever"
    searches: ClassVar[bool] = True
    """Whether it finds documents for any text; stored lists are there for a task's own queries only."""
    vectors: ClassVar[bool] = False
    """Whether it compares what a trained model makes of the texts, so that a task's rule for dense systems holds."""
    depth: int
    """How many documents a list holds at the most."""
    drop_self: bool | None = None
    """Whether the document with the query's own id is left out of its list; None leaves it to the task."""

    @property
    def self_rule(self) -> object:
        """The setting `drop_self` as a plan shows it."""
        return "as the task says" if self.drop_self is None else self.drop_self

    def dropped_copies(self, collection: Collection) -> frozenset[str]:
        """Return the queries whose own document this stage leaves out of their lists."""
        rule = collection.task.drop_self
        drops = (rule == "all" or (rule == "dense" and self.vectors)) if self.drop_self is None else self.drop_self
        return collection.shared_ids if drops else frozenset()

    def drop_copies(self, collection: Collection, context: Context) -> frozenset[str]:
        """Return the same, and say how many there are."""
        dropped = self.dropped_copies(collection)
        if dropped:
            why = "as the task says" if self.drop_self is None else "as asked"
            context.warn(f"{own_documents(len(dropped))} left out of its list, {why}; --keep-self keeps them")
        return dropped

    def as_reranker(self) -> Reranker | None:
        """The same model as a reranker, for a place after another retriever; None for one that only searches."""
        return None

    @abstractmethod
    def retrieve(self, collection: Collection, context: Context) -> Run:
        """Each query's best documents, `depth` of them at most; every query of the collection has a list."""


def own_documents(count: int) -> str:
    """Name documents that have the id of a query.

    >>> own_documents(1)
    "1 document with the query's own id"
    """
    return f"{counted(count, 'document')} with the query's own id"


class Reranker(Stage):
    """Run in, run out."""

    kind = "reranker"

    @abstractmethod
    def rerank(self, collection: Collection, run: Run, context: Context) -> Run:
        """The same documents in a better order; what lies below the depth keeps its order under it."""


class Signal(Stage):
    """Queries and their lists in, a number a query out: how hard each query seems, told without judgements."""

    kind = "signal"
    harder: ClassVar[str] = "low"
    """Which end of the scale is the hard one: `low` or `high`."""

    @abstractmethod
    def values(self, collection: Collection, run: Run, context: Context) -> NDArray[np.float64]:
        """A number for each query of the collection, in its order; not a number where there is nothing to tell by."""


def note_incomplete(
    stage: Stage, reasons: Mapping[str, str], queries: int, context: Context, kept: str = "keep the order they had"
) -> None:
    """Count queries that a stage did not do all it should for; an error where the context is strict."""
    if not reasons:
        return
    query, reason = next(iter(reasons.items()))
    line = f"{stage}: {len(reasons)} of {queries} queries {kept}; the first is {query}: {reason}"
    if context.strict:
        raise R2medError(line)
    context.notes.incomplete |= reasons
    context.warn(line)
