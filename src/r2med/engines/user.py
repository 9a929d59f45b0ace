"""A user's own search engine: a function `search(queries, k)`, or a class or an object with that method.

Named in a spec as `my.module:my_search`, or by the name that `@r2med.retriever(name=...)` gives it. What it returns is
checked by `answer_lists`.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

from r2med.data.run import Run
from r2med.engines.remote import latency
from r2med.errors import R2medError, SpecError, blame, debug
from r2med.models.http import FailedAttempts
from r2med.pipeline.joins import query_copies, search_texts
from r2med.pipeline.registry import check_free
from r2med.pipeline.spec import Call
from r2med.pipeline.stage import Context, Retriever, note_incomplete
from r2med.pipeline.user_code import check_arguments, class_content, import_class, is_class, live_hash, option_names
from r2med.retrieve.given_lists import AnswerChecker

if TYPE_CHECKING:
    from r2med.data.dataset import Collection

Target = TypeVar("Target")
Search = Callable[[list[str], int], Any]
HANDED = ("task", "documents")
"""What a function or a constructor is handed because it has a parameter of that name: the task, the texts by id."""
_OWN = ("depth", "batch", "join", "drop_self", "unknown")
"""Options that are r2med's; every other one goes to the function or the constructor."""
_HOPELESS = 5
"""Where none of so many first queries could be searched, no other one will be."""


class NamedEngine(NamedTuple):
    """A user's engine registered by `@r2med.retriever`, and its stated version."""

    target: Any
    version: str


_NAMED: dict[str, NamedEngine] = {}


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
    before = _NAMED.get(label)
    if before is not None and _place(before.target) != _place(target):
        raise SpecError(f"{label} is the name of {_place(before.target)} already; choose another")
    _NAMED[label] = NamedEngine(target, version)
    return target


def from_object(target: Any) -> UserEngine:
    """Return the stage of a function, a class or an object passed in Python."""
    for name, known in _NAMED.items():
        if known.target is target:
            return UserEngine(name, target=target)
    address = _place(target)
    if not is_class(address):
        raise SpecError(f"{address} has no name that a table can show; give it one: r2med.retriever(f, name='mine')")
    return UserEngine(address, target=target)


def find_engine(call: Call) -> UserEngine | None:
    """Return the stage of a call that names a user's engine, or None."""
    if call.name in _NAMED:
        return UserEngine.from_call(call, _NAMED[call.name].target)
    if not is_class(call.name):
        return None
    target = import_class(call.name)
    given = {name for name, _ in call.options} - set(_OWN)
    return UserEngine.from_call(call, target) if _searches(target, given) else None


@dataclass(frozen=True)
class UserEngine(Retriever):
    """Stage of a user's engine."""

    address: str
    """`my.module:my_search`, or the name that it was given."""
    depth: int = 100
    """How many documents are asked for and kept."""
    batch: int = 32
    """How many queries are handed over at a time; with 1, how long each call took is recorded."""
    join: str = ""
    """How generated texts join the query: replace, concat, "repeat(n)"; empty for the published way."""
    drop_self: bool | None = None
    """Whether the document whose id is the query's own is left out; None leaves it to the task."""
    unknown: float = 0.1
    """The share of returned ids that may be of documents that the task does not have; those are left out."""
    options: tuple[tuple[str, Any], ...] = ()
    target: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.target is None:
            object.__setattr__(self, "target", import_class(self.address))
        _check_target(self.address, self.target)
        if self.depth < 1 or self.batch < 1:
            raise SpecError(f"{self.address}: depth and batch must be at least 1, not {self.depth} and {self.batch}")
        if not 0 <= self.unknown <= 1:
            raise SpecError(f"{self.address}: unknown is a share between 0 and 1, not {self.unknown}")
        if self.join:
            query_copies(self.join)
        if inspect.isroutine(self.target) or inspect.isclass(self.target):
            check_arguments(self.address, self.target, dict(self.options))
        elif self.options:
            raise SpecError(f"{self.address} is an object that is made already and takes no {self.options[0][0]!r}")

    @classmethod
    def from_call(cls, call: Call, target: Any) -> UserEngine:
        """Build the stage of `my.module:my_search(depth=50, option=...)`."""
        if call.args:
            raise SpecError(f"{call}: name the options, as in {call.name}(depth=10)")
        given = dict(call.options)
        options: dict[str, Any] = {name: given.pop(name) for name in _OWN if name in given}
        for name, value in options.items():
            kind = bool if name == "drop_self" else type(getattr(cls, name))
            fits = type(value) in ((int, float) if kind is float else (kind,))
            if not fits:
                raise SpecError(f"{call.name}: {name} must be {_KINDS[kind]}, not {value}")
        return cls(call.name, **options, options=tuple(given.items()), target=target)

    @property
    def spec(self) -> Call:
        """Return the stage in the spec language."""
        own = [(name, getattr(self, name)) for name in _OWN if getattr(self, name) != getattr(type(self), name)]
        return Call(self.address, (), (*own, *self.options))

    def fingerprint(self) -> Mapping[str, object]:
        """Return a hash of the code and content of the function or class, and its version if it states one."""
        named = _NAMED.get(self.address)
        stated = named.version if named else str(getattr(self.target, "version", "") or "")
        return {"code": live_hash(self.target, stated), **({"version": stated} if stated else {})}

    def local_content(self) -> Mapping[str, str]:
        """Return the file of the function or class. Values that it holds differ between processes and do not count."""
        kind = self.target if inspect.isroutine(self.target) or inspect.isclass(self.target) else type(self.target)
        named = _NAMED.get(self.address)
        return class_content(self.address, kind, named.version if named else "")

    def describe(self) -> Mapping[str, object]:
        """Return what a plan shows."""
        own = {name: getattr(self, name) for name in _OWN if name != "join"} | {"drop_self": self.self_rule}
        options = {name: str(value) for name, value in self.options}
        return {"engine": self.address, **own, "join": self.join or "as published", "options": options}

    @property
    def user_options(self) -> frozenset[str]:
        """Return the options of the constructor, or of the function apart from queries and k."""
        if not inspect.isroutine(self.target) and not inspect.isclass(self.target):
            return frozenset()
        handed = _required(self.target) if inspect.isroutine(self.target) else set()
        return option_names(self.target, dict(self.options)) - {*HANDED, *_OWN, *handed}

    def forecast(self, collection: Collection, context: Context) -> Mapping[str, object]:
        """Return the number of queries to search."""
        return {"queries to search": len(collection.queries)}

    def retrieve(self, collection: Collection, context: Context) -> Run:
        """Pass the queries to the engine, a batch at a time, and check the answers."""
        copies = self.drop_copies(collection, context)
        with context.timed("index" if "documents" in _parameters(self.target) else "load"):
            asked = _Asked(str(self.address), self._search(collection), self.depth + bool(copies))
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
        run = checker.run(context)
        return run.without_self(copies).cut(self.depth)

    def _search(self, collection: Collection) -> Search:
        """Return the function, or the method of the object, ready to be called."""
        given: dict[str, Any] = dict(self.options)
        if "task" in _parameters(self.target):
            given["task"] = collection.task
        if "documents" in _parameters(self.target):
            given["documents"] = dict(collection.documents)
        if inspect.isroutine(self.target):
            return partial(self.target, **given)
        made = self._made(given) if inspect.isclass(self.target) else self.target
        search: Search = made.search
        return search

    def _made(self, given: Mapping[str, Any]) -> Any:
        try:
            return self.target(**given)
        except R2medError:
            raise
        except Exception as error:  # whatever a user's code may raise is the user's to see, as one line
            raise R2medError(f"{self.address} cannot be made: {blame(error)}") from error


_KINDS = {int: "a whole number", str: "a name or text", bool: "true or false", float: "a number"}


class _Asked:
    """Calls to a user's code, with their latency and the queries on which they failed."""

    def __init__(self, name: str, search: Search, wanted: int) -> None:
        self._name, self._search, self._wanted = name, search, wanted
        self._seconds: list[float] = []
        self._calls = self._answered = 0
        self.failed: dict[str, str] = {}
        self._attempts = FailedAttempts()

    def answers(self, batch: Sequence[tuple[str, str]]) -> Iterator[tuple[str, Any]]:
        """Yield the answer to each query of a batch; if the call fails, each query is sent alone."""
        try:
            yield from self._call(batch)
            return
        except R2medError:
            raise
        except (
            Exception,
            SystemExit,
        ) as error:  # a query on which a user's code fails must not take the others with it
            debug(error)
            self._attempts.count(error)
            failure = error
        if len(batch) == 1:
            self._fail(batch[0][0], failure)
            return
        for query in batch:
            yield from self.answers([query])

    def _call(self, batch: Sequence[tuple[str, str]]) -> list[tuple[str, Any]]:
        started = time.perf_counter()
        self._calls += 1
        answers = self._search([text for _, text in batch], self._wanted)
        if len(batch) == 1:
            self._seconds.append(time.perf_counter() - started)
        if isinstance(answers, str | bytes | Mapping) or not hasattr(answers, "__iter__"):
            raise R2medError(f"{self._name} returned {type(answers).__name__}, not a list for each query")
        listed = list(answers)
        if len(listed) != len(batch):
            raise R2medError(f"{self._name} returned {len(listed)} lists for {len(batch)} queries; one for each is due")
        self._answered += len(batch)
        return [(query, answer) for (query, _), answer in zip(batch, listed, strict=True)]

    def _fail(self, query: str, error: BaseException) -> None:
        self.failed[query] = f"{self._name} failed: {blame(error)}"
        if not self._answered and len(self.failed) >= _HOPELESS:
            raise R2medError(self.failed[query]) from error

    def record(self) -> dict[str, Any]:
        """Return calls, unanswered queries, errors and timeouts, and the latency of calls with one query."""
        if self.failed and not self._answered:
            raise R2medError(next(iter(self.failed.values())))
        return {"calls": self._calls, "unsearched": list(self.failed), **vars(self._attempts), **latency(self._seconds)}


def _searches(target: Any, taken: set[str]) -> bool:
    """Return whether a name stands for an engine; a function with fewer parameters may make an encoder."""
    if inspect.isroutine(target):
        return len(_required(target) - taken) == 2 or "queries" in _parameters(target)
    encodes = any(callable(getattr(target, name, None)) for name in ("encode_queries", "encode"))
    return callable(getattr(target, "search", None)) and not encodes


def _check_target(name: str, target: Any) -> None:
    """Refuse a target that cannot be called with queries and a number."""
    method = target if inspect.isroutine(target) else getattr(target, "search", None)
    if not callable(method):
        raise SpecError(f"{name} has no method search; an engine is a function search(queries, k), or has that method")
    if inspect.iscoroutinefunction(method):
        raise SpecError(f"{name} is async; an engine is a plain function search(queries, k)")
    if not inspect.isclass(target) and len(_required(method)) < 2 and not _takes_two(method):
        raise SpecError(f"{name} does not take queries and k; an engine is a function search(queries, k)")


def _takes_two(method: Any) -> bool:
    try:
        inspect.signature(method).bind([], 1)
    except TypeError:
        return False
    except ValueError:  # a function written in C says nothing of its parameters
        pass
    return True


def _required(function: Any) -> set[str]:
    """Return the required positional parameters, without those that r2med passes by name."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = _parameters(function).values()
    return {
        parameter.name for parameter in parameters if parameter.kind in kinds and parameter.default is parameter.empty
    } - set(HANDED)


def _parameters(target: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function or a constructor."""
    if not inspect.isroutine(target) and not inspect.isclass(target):
        return {}
    try:
        return inspect.signature(target).parameters
    except (TypeError, ValueError):
        return {}


def _place(target: Any) -> str:
    """Return the place at which a function, or the class of an object, is defined: `module:name`."""
    kind = target if inspect.isroutine(target) or inspect.isclass(target) else type(target)
    return f"{kind.__module__}:{kind.__name__}"
