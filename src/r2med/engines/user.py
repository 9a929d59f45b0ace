"""A user's own search engine: a function `search(queries, k)`, or a class or an object with that method.

Named in a spec as `my.module:my_search`, or by the name that `@r2med.retriever(name=...)` gives it. What it returns is
checked by `AnswerChecker`.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from r2med.data.run import Run
from r2med.engines.remote import latency
from r2med.errors import R2medError, SpecError, blame, debug
from r2med.models.http import FailedAttempts
from r2med.pipeline import user_code
from r2med.pipeline.joins import query_copies, search_texts
from r2med.pipeline.registry import check_free
from r2med.pipeline.spec import Call
from r2med.pipeline.stage import KINDS, Context, Retriever, note_incomplete
from r2med.retrieve.given_lists import AnswerChecker

if TYPE_CHECKING:
    from r2med.data.dataset import Collection

Target = TypeVar("Target")
Search = Callable[[list[str], int], Any]
HANDED = ("task", "documents")
"""What a function or a constructor is handed because it has a parameter of that name: the task, the texts by id."""
_OWN = ("depth", "batch", "join", "drop_self", "unknown")
"""Options that are r2med's; every other one goes to the function or the constructor."""
_HOPELESS = 5  # where none of so many first queries could be searched, no other one will be


_NAMED: dict[str, tuple[Any, str]] = {}  # the engines registered by `@r2med.retriever`, each with its stated version


@overload
def retriever(target: Target, *, name: str = "", version: str = "") -> Target: ...
@overload
def retriever(target: None = None, *, name: str = "", version: str = "") -> Callable[[Target], Target]: ...
def retriever(target: Any = None, *, name: str = "", version: str = "") -> Any:
    """Give a search function, or a class or object with `search`, a name in specs; it stays what it is.

    `version` is a text to change when what is behind the function changes, such as an index on a server.

    >>> @retriever(name="first-two")
    ... def my_search(queries, k):
    ...     return [["bio-d001", "bio-d002"][:k] for _ in queries]
    >>> str(from_object(my_search))
    'first-two'
    """
    if target is None:
        return partial(retriever, name=name, version=version)
    label = name or getattr(target, "__name__", "")
    check_free(label)
    _check_target(label, target)
    before, _ = _NAMED.get(label, (target, ""))
    if _place(before) != _place(target):
        raise SpecError(f"{label} is the name of {_place(before)} already; choose another")
    _NAMED[label] = target, version
    return target


def from_object(target: Any) -> UserEngine:
    """Return the stage of a function, a class or an object passed in Python."""
    for name, (engine, _) in _NAMED.items():
        if engine is target:
            return UserEngine(name, target=target)
    address = _place(target)
    if not user_code.is_class(address):
        raise SpecError(f"{address} has no name that a table can show; give it one: r2med.retriever(f, name='mine')")
    return UserEngine(address, target=target)


def find_engine(call: Call) -> UserEngine | None:
    """Return the stage of a call that names a user's engine, or None."""
    if call.name in _NAMED:
        return UserEngine.from_call(call, _NAMED[call.name][0])
    if not user_code.is_class(call.name):
        return None
    target = user_code.import_class(call.name)
    if inspect.isroutine(target):
        # A function with fewer parameters may make an encoder.
        options = {name for name, _ in call.options} - set(_OWN)
        searches = len(_required(target) - options) == 2 or "queries" in _parameters(target)
    else:
        encodes = any(callable(getattr(target, name, None)) for name in ("encode_queries", "encode"))
        searches = callable(getattr(target, "search", None)) and not encodes
    return UserEngine.from_call(call, target) if searches else None


@dataclass(frozen=True)
class UserEngine(Retriever):
    """Stage of a user's engine."""

    address: str  # `my.module:my_search`, or the name that it was given
    depth: int = 100  # how many documents are asked for and kept
    batch: int = 32  # how many queries are handed over at a time; with 1, how long each call took is recorded
    join: str = ""  # how generated texts join the query: replace, concat, "repeat(n)"; empty for the published way
    drop_self: bool | None = None
    """Whether the document whose id is the query's own is left out; None leaves it to the task."""
    unknown: float = 0.1
    """The share of returned ids that may be of documents that the task does not have; those are left out."""
    options: tuple[tuple[str, Any], ...] = ()
    target: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.target is None:
            object.__setattr__(self, "target", user_code.import_class(self.address))
        _check_target(self.address, self.target)
        if self.depth < 1 or self.batch < 1:
            raise SpecError(f"{self.address}: depth and batch must be at least 1, not {self.depth} and {self.batch}")
        if not 0 <= self.unknown <= 1:
            raise SpecError(f"{self.address}: unknown is a share between 0 and 1, not {self.unknown}")
        if self.join:
            query_copies(self.join)
        if _is_called(self.target):
            user_code.check_arguments(self.address, self.target, dict(self.options))
        elif self.options:
            raise SpecError(f"{self.address} is an object that is made already and takes no {self.options[0][0]!r}")

    @classmethod
    def from_call(cls, call: Call, target: Any) -> UserEngine:
        """Build the stage of `my.module:my_search(depth=50, option=...)`."""
        if call.args:
            raise SpecError(f"{call}: name the options, as in {call.name}(depth=10)")
        options = dict(call.options)
        ours: dict[str, Any] = {name: options.pop(name) for name in _OWN if name in options}
        for name, value in ours.items():
            kind = KINDS[bool if name == "drop_self" else type(getattr(cls, name))]
            if not kind.fits(value):
                raise SpecError(f"{call.name}: {name} must be {kind.words}, not {value}")
        return cls(call.name, **ours, options=tuple(options.items()), target=target)

    @property
    def spec(self) -> Call:
        """Return the stage in the spec language."""
        ours = [(name, getattr(self, name)) for name in _OWN if getattr(self, name) != getattr(type(self), name)]
        return Call(self.address, (), (*ours, *self.options))

    def fingerprint(self) -> Mapping[str, object]:
        """Return a hash of the code and content of the function or class, and its version if it states one."""
        version = _NAMED[self.address][1] if self.address in _NAMED else str(getattr(self.target, "version", "") or "")
        return {"code": user_code.live_hash(self.target, version), **({"version": version} if version else {})}

    def local_content(self) -> Mapping[str, str]:
        """Return the file of the function or class. Values that it holds differ between processes and do not count."""
        kind = self.target if _is_called(self.target) else type(self.target)
        return user_code.class_content(self.address, kind, _NAMED.get(self.address, (None, ""))[1])

    def describe(self) -> Mapping[str, object]:
        """Return what a plan shows."""
        ours = {name: getattr(self, name) for name in _OWN if name != "join"} | {"drop_self": self.self_rule}
        options = {name: str(value) for name, value in self.options}
        return {"engine": self.address, **ours, "join": self.join or "as published", "options": options}

    @property
    def user_options(self) -> frozenset[str]:
        """Return the options of the constructor, or of the function apart from queries and k."""
        if not _is_called(self.target):
            return frozenset()
        handed = _required(self.target) if inspect.isroutine(self.target) else set()
        return user_code.option_names(self.target, dict(self.options)) - {*HANDED, *_OWN, *handed}

    def forecast(self, collection: Collection, context: Context) -> Mapping[str, object]:
        """Return the number of queries to search."""
        return {"queries to search": len(collection.queries)}

    def retrieve(self, collection: Collection, context: Context) -> Run:
        """Pass the queries to the engine, a batch at a time, and check the answers."""
        copies = self.drop_copies(collection, context)
        with context.timed("index" if "documents" in _parameters(self.target) else "load"):
            asked = _Asked(self.address, self._search(collection), self.depth + bool(copies))
        queries = list(zip(collection.queries.ids, search_texts(collection, self.join), strict=True))
        checker = AnswerChecker(self.address, collection, self.unknown)
        with context.executor.progress(self.address, len(queries)) as bar:
            for start in range(0, len(queries), self.batch):
                batch = queries[start : start + self.batch]
                for query, answer in asked.answers(batch):
                    checker.add(query, answer)
                bar.advance(len(batch))
        note_incomplete(self, asked.failed, len(queries), context, kept="could not be searched")
        context.notes.facts |= {**asked.record(), **checker.record()}
        return checker.run(context).without_self(copies).cut(self.depth)

    def _search(self, collection: Collection) -> Search:
        """Return the function, or the method of the object, ready to be called."""
        options: dict[str, Any] = dict(self.options)
        if "task" in _parameters(self.target):
            options["task"] = collection.task
        if "documents" in _parameters(self.target):
            options["documents"] = dict(collection.documents)
        if inspect.isroutine(self.target):
            return partial(self.target, **options)
        engine = self.target
        if inspect.isclass(engine):
            engine = user_code.construct(self.address, engine, options)
        search: Search = engine.search
        return search


class _Asked:
    """Calls to a user's code, with their latency and the queries on which they failed."""

    def __init__(self, name: str, search: Search, k: int) -> None:
        self._name, self._search, self._k = name, search, k
        self._seconds: list[float] = []
        self._calls = self._answered = 0
        self.failed: dict[str, str] = {}
        self._attempts = FailedAttempts()

    def answers(self, batch: Sequence[tuple[str, str]]) -> Iterator[tuple[str, Any]]:
        """Yield the answer to each query of a batch; if the call fails, each query is sent alone."""
        started = time.perf_counter()
        self._calls += 1
        try:
            answers = self._search([text for _, text in batch], self._k)
            if len(batch) == 1:
                self._seconds.append(time.perf_counter() - started)
            if isinstance(answers, str | bytes | Mapping) or not hasattr(answers, "__iter__"):
                raise R2medError(f"{self._name} returned {type(answers).__name__}, not a list for each query")
            answers = list(answers)
        except R2medError:
            raise
        except (Exception, SystemExit) as error:  # a query that fails must not take the others with it
            debug(error)
            self._attempts.count(error)
            failure = error
        else:
            if len(answers) != len(batch):
                count = f"{len(answers)} lists for {len(batch)} queries"
                raise R2medError(f"{self._name} returned {count}; one for each is due")
            self._answered += len(batch)
            yield from ((query, answer) for (query, _), answer in zip(batch, answers, strict=True))
            return
        if len(batch) > 1:
            for pair in batch:
                yield from self.answers([pair])
            return
        query = batch[0][0]
        self.failed[query] = f"{self._name} failed: {blame(failure)}"
        if not self._answered and len(self.failed) >= _HOPELESS:
            raise R2medError(self.failed[query]) from failure

    def record(self) -> dict[str, Any]:
        """Return calls, unanswered queries, errors and timeouts, and the latency of calls with one query."""
        if self.failed and not self._answered:
            raise R2medError(next(iter(self.failed.values())))
        return {"calls": self._calls, "unsearched": list(self.failed), **vars(self._attempts), **latency(self._seconds)}


def _check_target(name: str, target: Any) -> None:
    """Refuse a target that cannot be called with queries and a number."""
    method = target if inspect.isroutine(target) else getattr(target, "search", None)
    if not callable(method):
        raise SpecError(f"{name} has no method search; an engine is a function search(queries, k), or has that method")
    if inspect.iscoroutinefunction(method):
        raise SpecError(f"{name} is async; an engine is a plain function search(queries, k)")
    if not inspect.isclass(target) and len(_required(method)) < 2:
        try:
            inspect.signature(method).bind([], 1)
        except TypeError:
            raise SpecError(f"{name} does not take queries and k; an engine is a function search(queries, k)") from None
        except ValueError:  # a function written in C says nothing of its parameters
            pass


def _required(function: Any) -> set[str]:
    """Return the required positional parameters, without those that r2med passes by name."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = _parameters(function).items()
    return {name for name, one in parameters if one.kind in kinds and one.default is one.empty} - set(HANDED)


def _is_called(target: Any) -> bool:
    """Return whether a target is a function or a class, not an object that is made already."""
    return inspect.isroutine(target) or inspect.isclass(target)


def _parameters(target: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(target).parameters if _is_called(target) else {}
    except (TypeError, ValueError):
        return {}


def _place(target: Any) -> str:
    """Return the place at which a function, or the class of an object, is defined: `module:name`."""
    kind = target if _is_called(target) else type(target)
    return f"{kind.__module__}:{kind.__name__}"
