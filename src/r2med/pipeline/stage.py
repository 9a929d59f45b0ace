"""The contract of a stage: its spec, the dependencies of its output, its requirements, and its one method.

A system is stages in a row: any number of expanders, one retriever, any number of rerankers. A stage knows the
one before it only through the data passed on, and it never sees judgements; an `Oracle` is the one exception,
which its type declares, and marks every result it touches.
"""

from __future__ import annotations

import time
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import Field, dataclass, field, fields, replace
from functools import cache
from inspect import Signature, get_annotations, signature
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from r2med.errors import R2medError, SpecError
from r2med.formatting import counted
from r2med.pipeline.user_code import user_code
from r2med.runs.record import StepRecord
from r2med.store.cache import Cache
from r2med.store.hashes import cache_key
from r2med.store.jobs import reporter
from r2med.usage import Usage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from r2med.data.dataset import Collection, Generation, Gold
    from r2med.data.run import Run
    from r2med.pipeline.executor.local import Executor
    from r2med.pipeline.spec import Call
    from r2med.pipeline.system import System


class Kind(NamedTuple):
    """Kind of plain value: its name in messages, and its test."""

    words: str
    fits: Callable[[Any], bool]


KINDS: Mapping[type, Kind] = {
    bool: Kind("true or false", lambda value: isinstance(value, bool)),
    int: Kind("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    float: Kind("a number", lambda value: isinstance(value, int | float) and not isinstance(value, bool)),
    str: Kind("a name or text", lambda value: isinstance(value, str)),
}
_NAMES = {plain.__name__: kind for plain, kind in KINDS.items()}


class StageType(ABCMeta):
    """Metaclass of all stages: invalid arguments of built-in stages are refused in one sentence.

    >>> from r2med import BM25
    >>> BM25(k1="high")
    Traceback (most recent call last):
    r2med.errors.SpecError: BM25: k1 must be a number, not 'high'
    """

    def __call__(cls, *args: Any, **options: Any) -> Any:
        """Build a stage."""
        if cls.__module__.startswith("r2med."):
            declared, kinds = _declared(cls)
            try:
                given = declared.bind(*args, **options).arguments
            except TypeError as error:
                raise SpecError(f"{cls.__name__}: {error}; it takes {', '.join(declared.parameters)}") from None
            for name, value in (given | dict(options)).items():
                if name in kinds and value is not None and not kinds[name].fits(value):
                    raise SpecError(f"{cls.__name__}: {name} must be {kinds[name].words}, not {value!r}")
        return super().__call__(*args, **options)


@cache
def _declared(cls: type) -> tuple[Signature, dict[str, Kind]]:
    """Return the signature of the constructor, and its arguments or fields that are plain values."""
    # The signature of the class would be the metaclass's, which takes anything.
    whole = signature(cls.__init__)  # type: ignore[misc]  # only its signature is read, it is never called
    declared = whole.replace(parameters=list(whole.parameters.values())[1:])
    hints = {name: hint for base in reversed(cls.__mro__) for name, hint in get_annotations(base).items()}
    hints |= {name: parameter.annotation for name, parameter in declared.parameters.items()}
    plain = {name: _NAMES.get(str(hint).removesuffix(" | None")) for name, hint in hints.items()}
    return declared, {name: kind for name, kind in plain.items() if kind is not None}


Changed = TypeVar("Changed")


def settings_of(stage: Any) -> list[Field[Any]]:
    """Return the fields of a stage, or of its class, that a spec may set: every stage is a dataclass."""
    return [field for field in fields(stage) if field.init]


def with_fields(stage: Changed, changes: Mapping[str, Any]) -> Changed:
    """Return the same stage with other values in some of its fields."""
    declared = settings_of(stage)
    values = {field.name: getattr(stage, field.name) for field in declared} | dict(changes)
    rest = next((field.name for field in declared if field.metadata.get("rest")), None)
    return type(stage)(*values.pop(rest), **values) if rest is not None else type(stage)(**values)


@dataclass(frozen=True)
class Requirements:
    """Requirements of a stage before it can run, shown by `--dry-run` and `doctor`."""

    extra: str = ""
    """The optional dependency group, as in `pip install 'r2med[extra]'`."""
    key: str = ""
    """The environment variable that must hold an API key."""
    hub: tuple[str, ...] = ()
    """Repositories that are fetched from the hub if they are not cached."""
    gpu: bool = False
    """Whether it needs an accelerator."""


class Timing:
    """Timing of a stage: `load` a model, `index` the documents, `ask` a model and wait, or `search`.

    A moment belongs to one of them. Seconds of the systems inside a stage (`inside`) are in their timings, and those
    to `check` an approximate search against the exact one do not count as search.

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
        """Count the time of the block under a name; a block inside it counts under its own name."""
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
    """Notes of a stage while it worked, stored with the result."""

    warnings: list[str] = field(default_factory=list)
    """Sentences for the user, shown with the result."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Truncation, tokens, requests, index bytes, first prompts, ..."""
    incomplete: dict[str, str] = field(default_factory=dict)
    """Reason why the stage did not fully process a query, by query id."""
    written: dict[str, tuple[Generation, ...]] = field(default_factory=dict)
    """Generations by query id, also those inside the systems that a stage is made of."""
    work: dict[str, StepRecord] = field(default_factory=dict)
    """Usage of each step (seconds by phase, a model's account), also inside a stage; a shared step is here once,
    no matter which system of the command computed it."""
    reused: list[str] = field(default_factory=list)
    """Parts that were taken from the cache instead of computed for the queries, so that their time is missing."""

    def absorb(self, label: str, other: Notes) -> None:
        """Add another stage's notes, its facts under its label."""
        self.warnings += [sentence for sentence in other.warnings if sentence not in self.warnings]
        self.incomplete |= other.incomplete
        self.work |= other.work
        if other.facts:
            self.facts[label] = other.facts
        for query, generations in other.written.items():
            before = self.written.get(query, ())
            self.written[query] = (*before, *(generation for generation in generations if generation not in before))


@dataclass
class Context:
    """Context in which a stage works: the cache, the executor, and a place for notes."""

    cache: Cache
    executor: Executor
    notes: Notes = field(default_factory=Notes)
    memo: dict[Any, Any] = field(default_factory=dict)
    """Stages already computed in this command, shared by its systems."""
    strict: bool = False
    """Whether a query that a stage cannot fully process is an error instead of a count."""
    fresh: bool = False
    """Whether cached replies of external engines are requested again."""
    timing: Timing = field(default_factory=Timing)

    def for_stage(self) -> Context:
        """Return the same context with separate notes."""
        return replace(self, notes=Notes())

    def timed(self, name: str) -> AbstractContextManager[None]:
        """Count the time of the block as loading a model (`load`), preparing the documents (`index`), or `check`."""
        return self.timing.spent_on(name)

    def asked_for(self, seconds: float) -> None:
        """Count some of the time as waiting for a model's answers, whose own times are in its account."""
        self.timing.add("search", -seconds)
        self.timing.add("ask", seconds)

    def book(self, bill: Usage) -> None:
        """Add a server's bill to those of this stage."""
        before = self.notes.facts.get("account")
        self.notes.facts["account"] = (bill if before is None else Usage(**before) + bill).as_json()

    def reuse(self, what: str) -> None:
        """Note that a part of the queries' work was taken from the cache, so that its time is missing."""
        if what not in self.notes.reused:
            self.notes.reused.append(what)

    def warn(self, sentence: str) -> None:
        """Warn the user, once per sentence."""
        if sentence not in self.notes.warnings:
            self.notes.warnings.append(sentence)
            reporter.warn(sentence)


class Stage(metaclass=StageType):
    """Step of a system. Construction is cheap and offline; the work happens in the one method of each kind."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def spec(self) -> Call:
        """Return the stage in the spec language, with every argument that is not at its default."""

    def fingerprint(self) -> Mapping[str, object]:
        """Return what the output depends on beyond the spec: code version, model revision, prompt text, file content.

        For a class outside this package, its code is part of it.
        """
        return self._code()

    def _code(self) -> dict[str, object]:
        code = "" if type(self).__module__.startswith("r2med.") else user_code(type(self))
        return {"code": code} if code else {}

    def local_content(self) -> Mapping[str, str]:
        """Return the files, folders and code on this machine that the spec names: their paths, and a hash of each."""
        return {f"{type(self).__module__}:{type(self).__name__}": str(code) for code in self._code().values()}

    @property
    def requirements(self) -> Requirements:
        """Return the requirements of this stage."""
        return Requirements()

    def describe(self) -> Mapping[str, object]:
        """Return the settings that a plan shows of this stage, defaults included."""
        return {}

    @property
    def billed(self) -> bool:
        """Return whether it asks servers that may bill requests: its usage is then forecast and recorded."""
        return False

    @property
    def user_options(self) -> frozenset[str]:
        """Return the options that go to a user's function or class, which are kept in the field `options`."""
        return frozenset()

    def inputs(self, collection: Collection) -> Mapping[str, object]:
        """Return what the output depends on beside the data, such as published generations."""
        return {}

    def forecast(self, collection: Collection, context: Context) -> Mapping[str, object]:
        """Return what running would compute (requests, tokens, texts to encode) and what is cached; compute nothing."""
        return {}

    def is_ready(self, collection: Collection, context: Context) -> bool:
        """Return whether no document has to be processed before a query can be answered."""
        return not self.forecast(collection, context).get("documents to encode")

    def passes(self, inner: System, collection: Collection) -> Collection:
        """Return the largest collection that a system inside this stage may receive: all of it unless overridden."""
        return collection

    def key(self) -> str:
        """Return a hash of everything the output depends on, apart from the input."""
        return cache_key(spec=str(self.spec), parts=sorted({**self._code(), **self.fingerprint()}.items()))

    def check_files(self) -> None:
        """Refuse a stage whose files are missing, if that can be checked without a network."""

    def __rshift__(self, other: Stage | System | str) -> System:
        return self._alone() >> other

    def __rrshift__(self, other: str) -> System:
        return other >> self._alone()

    def _alone(self) -> System:
        from r2med.pipeline.system import System

        return System((self,))

    def __str__(self) -> str:
        return str(self.spec)


class Expander(Stage):
    """Expander: queries in, queries out; adds generations to each query."""

    kind = "expander"

    @abstractmethod
    def expand(self, collection: Collection, context: Context) -> Collection:
        """Return the collection with this stage's generations added."""


class Oracle(Expander):
    """Expander that is shown the gold: a ceiling, never a system."""

    def expand(self, collection: Collection, context: Context) -> Collection:
        """Raise an error: an oracle works only with the gold."""
        raise TypeError(f"{self} needs gold answers")

    @abstractmethod
    def expand_with(self, collection: Collection, gold: Gold, context: Context) -> Collection:
        """Return the collection with generations made from the gold."""


class Retriever(Stage):
    """Retriever: queries in, run out."""

    kind = "retriever"
    searches: ClassVar[bool] = True
    """Whether it finds documents for any text; stored lists exist for a task's queries only."""
    vectors: ClassVar[bool] = False
    """Whether it compares vectors of a trained model, so that a task's rule for dense systems applies."""
    depth: int
    """Documents in a list at most."""
    drop_self: bool | None = None
    """Whether the document with the query's own id is left out of its list; None leaves it to the task."""

    @property
    def self_rule(self) -> object:
        """Return the setting `drop_self` as a plan shows it."""
        return "as the task says" if self.drop_self is None else self.drop_self

    def dropped_copies(self, collection: Collection) -> frozenset[str]:
        """Return the queries whose own document this stage leaves out of their lists."""
        rule = collection.task.drop_self
        drops = (rule == "all" or (rule == "dense" and self.vectors)) if self.drop_self is None else self.drop_self
        return collection.shared_ids if drops else frozenset()

    def drop_copies(self, collection: Collection, context: Context) -> frozenset[str]:
        """Return the same queries, and warn how many there are."""
        dropped = self.dropped_copies(collection)
        if dropped:
            why = "as the task says" if self.drop_self is None else "as asked"
            context.warn(f"{own_documents(len(dropped))} left out of its list, {why}; --keep-self keeps them")
        return dropped

    def as_reranker(self) -> Reranker | None:
        """Return the same model as a reranker, for a place after another retriever; None if it can only search."""
        return None

    @abstractmethod
    def retrieve(self, collection: Collection, context: Context) -> Run:
        """Return each query's best documents, at most `depth`; every query of the collection has a list."""


def own_documents(count: int) -> str:
    """Return the words for documents that have the id of a query.

    >>> own_documents(1)
    "1 document with the query's own id"
    """
    return f"{counted(count, 'document')} with the query's own id"


class Reranker(Stage):
    """Reranker: run in, run out."""

    kind = "reranker"

    @abstractmethod
    def rerank(self, collection: Collection, run: Run, context: Context) -> Run:
        """Return the same documents in a better order; those below the depth keep their order."""


class Signal(Stage):
    """Query performance predictor: queries and their lists in, one number per query out, without judgements."""

    kind = "signal"
    harder: ClassVar[str] = "low"
    """The hard end of the scale: `low` or `high`."""

    @abstractmethod
    def values(self, collection: Collection, run: Run, context: Context) -> NDArray[np.float64]:
        """Return a number per query of the collection, in its order; not a number if there is no basis for one."""


def note_incomplete(
    stage: Stage, reasons: Mapping[str, str], queries: int, context: Context, kept: str = "keep the order they had"
) -> None:
    """Count queries that a stage did not fully process; raise an error if the context is strict."""
    if not reasons:
        return
    query, reason = next(iter(reasons.items()))
    line = f"{stage}: {len(reasons)} of {queries} queries {kept}; the first is {query}: {reason}"
    if context.strict:
        raise R2medError(line)
    context.notes.incomplete |= reasons
    context.warn(line)
