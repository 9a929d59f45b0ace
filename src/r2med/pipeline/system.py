"""`System`: a chain of stages, checked before anything runs, and run over a dataset."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from r2med.data.dataset import Texts
from r2med.errors import R2medError, SpecError
from r2med.pipeline.spec import Chain
from r2med.pipeline.stage import Context, Expander, Oracle, Reranker, Retriever, Stage, Timing, settings_of, with_fields
from r2med.runs.record import PHASES, StepRecord
from r2med.store.hashes import cache_key
from r2med.store.processes import foreign_output
from r2med.usage import Usage

if TYPE_CHECKING:
    from r2med.data.dataset import Collection, Gold
    from r2med.data.run import Ranking, Run

Value = TypeVar("Value")
_ADDRESS = re.compile(r"(?!hf:)[\w.]+:[A-Za-z_]\w*")
"""Address of a user's class or function."""
_QUESTION = "question"
"""Id of a single question."""


@dataclass(frozen=True, repr=False)
class System:
    """Chain of any number of expanders, one retriever, any number of rerankers.

    >>> str(System.parse("bm25(k1=1.2)"))
    'bm25(k1=1.2)'
    """

    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        placed: list[Stage] = []
        for stage in self.stages:
            follows = any(isinstance(other, Retriever) for other in placed)
            # A retriever that can also rerank does so after another retriever.
            placed.append((stage.as_reranker() if follows and isinstance(stage, Retriever) else None) or stage)
        object.__setattr__(self, "stages", tuple(placed))

    @classmethod
    def parse(cls, text: str) -> System:
        """Build a system from its spec, and check it."""
        system = _built(text)
        system.check()
        return system

    def __rshift__(self, other: Stage | System | str) -> System:
        return System(self.stages + _built(other).stages)

    def __rrshift__(self, other: str) -> System:
        return _built(other) >> self

    @property
    def chain(self) -> Chain:
        """Return the spec as a tree."""
        return Chain(tuple(stage.spec for stage in self.stages))

    @property
    def spec(self) -> str:
        """Return the spec as a line: the key of this system's results and the label of its row."""
        return str(self.chain)

    def __str__(self) -> str:
        return self.spec

    def __repr__(self) -> str:
        return f"System({self.spec!r})"

    def check(self) -> None:
        """Refuse an impossible order before anything runs."""
        kinds = [stage.kind for stage in self.stages]
        if kinds.count("retriever") != 1:
            for stage in self.stages:
                stage.check_files()
            names = [stage.spec.name for stage in self.stages if isinstance(stage, Retriever)]
            if name := next(filter(_ADDRESS.fullmatch, names[1:]), ""):
                advice = "after a retriever a class is a reranker, with score(query, documents)"
                raise SpecError(f"{self}: {name} has no method score; {advice}")
            count = f"{kinds.count('retriever')} retrievers" if "retriever" in kinds else "no retriever"
            raise SpecError(f"{self} has {count}; a system is expanders >> one retriever >> rerankers")
        middle = kinds.index("retriever")
        sides = (("before", "expander", self.stages[:middle]), ("after", "reranker", self.stages[middle + 1 :]))
        for side, kind, stages in sides:
            for stage in stages:
                if stage.kind != kind:
                    raise SpecError(f"{self}: {stage} ({stage.kind}) cannot come {side} the retriever")

    @property
    def retriever(self) -> Retriever:
        """Return the one stage that searches."""
        return next(stage for stage in self.stages if isinstance(stage, Retriever))

    def with_option(self, option: str, value: object) -> System:
        """Set an option in every stage that has it, including those inside other stages."""
        stages = []
        for stage in self.stages:
            changes: dict[str, Any] = {}
            for name in (declared.name for declared in settings_of(stage)):
                current = getattr(stage, name)
                if name == option:
                    changes[name] = value
                elif isinstance(current, System):
                    changes[name] = current.with_option(option, value)
                elif isinstance(current, tuple) and current and isinstance(current[0], System):
                    changes[name] = tuple(system.with_option(option, value) for system in current)
            if option in stage.user_options:
                changes["options"] = tuple({**dict(vars(stage)["options"]), option: value}.items())
            stages.append(with_fields(stage, changes) if changes else stage)
        return System(tuple(stages))

    @property
    def option_names(self) -> frozenset[str]:
        """Return the options that `with_option` can set in any stage."""
        return frozenset(
            name
            for stage in self.walk()
            for name in {declared.name for declared in settings_of(stage)} - _NOT_OPTIONS - dict(_inside(stage)).keys()
            | stage.user_options
        )

    @property
    def oracle(self) -> bool:
        """Return whether any stage is shown the gold."""
        return any(isinstance(stage, Oracle) for stage in self.walk())

    def walk(self) -> Iterator[Stage]:
        """Yield every stage, including those inside other stages' arguments."""
        for stage in self.stages:
            yield stage
            for _, inner in _inside(stage):
                yield from inner.walk()

    def handed(self, collection: Collection) -> Iterator[tuple[Stage, Collection]]:
        """Yield every stage with the largest collection that it may receive, as far as known before anything runs."""
        for stage in self.stages:
            yield stage, collection
            for _, inner in _inside(stage):
                yield from inner.handed(stage.passes(inner, collection))

    def key(self) -> str:
        """Return a hash of everything this system's output depends on, apart from the data."""
        return cache_key(spec=self.spec, stages=[stage.key() for stage in self.walk()])

    def local_content(self) -> dict[str, str]:
        """Return the files, folders and code on this machine that the spec names, with a hash of each."""
        return {place: digest for stage in self.walk() for place, digest in stage.local_content().items()}

    def search(self, collection: Collection, question: str, context: Context) -> Ranking:
        """Return the ranked list of a single question over a collection's documents."""
        if self.oracle:
            raise R2medError(f"{self} searches with gold answers, and a question of your own has none")
        asked = replace(collection, queries=Texts([_QUESTION], [question]), generations=(), copies=frozenset())
        return self.run(asked, context)[_QUESTION]

    def run(self, collection: Collection, context: Context) -> Run:
        """Return the ranked lists of a collection's queries."""
        return self.work(collection, context).ranked

    def work(self, collection: Collection, context: Context, gold: Gold | None = None) -> State:
        """Run every stage; reuse what another system of this command has already computed."""
        state = State(collection)
        done: tuple[str, ...] = (collection.state,)
        for stage in self.stages:
            done = (*done, stage.key())
            with foreign_output.apart():
                state = as_step(stage, done, context, partial(_stepped, stage, state, gold))
        return state


def _built(value: Any) -> System:
    from r2med.pipeline.registry import build_system

    return build_system(value)


def as_step(stage: Stage, done: tuple[str, ...], context: Context, do: Callable[[Context], Value]) -> Value:
    """Run a stage's work with separate notes and timing, or reuse what this command has already computed.

    `done` names all that the outcome depends on.
    """
    if done not in context.memo:
        inner = replace(context.for_stage(), timing=Timing())
        with context.timed("inside"), inner.timed("search"):
            outcome = do(inner)
        seconds = {phase: max(0.0, inner.timing.seconds.get(phase, 0.0)) for phase in PHASES}
        facts = inner.notes.facts
        bills: Any = {name: Usage(**facts[name]) for name in ("account", "foreseen") if name in facts}
        step = StepRecord(str(stage), reused=tuple(inner.notes.reused), **(bills | seconds))
        inner.notes.work[cache_key(done=done)[:16]] = step
        context.memo[done] = (outcome, inner.notes)
    outcome, notes = context.memo[done]
    context.notes.absorb(str(stage), notes)
    return outcome


def foreseeing(stage: Stage, collection: Collection, context: Context, do: Callable[[], Value]) -> Value:
    """Run a stage's work, and note its forecast if servers may bill it."""
    foreseen = Usage.from_forecast(stage.forecast(collection, context)) if stage.billed else None
    outcome = do()
    if foreseen is not None and "account" in context.notes.facts:
        context.notes.facts["foreseen"] = foreseen.as_json()
    return outcome


def canonical_spec(name: str) -> str:
    """Return the canonical spec of a system in any spelling; empty if there is no such system.

    >>> canonical_spec("bm25( k1 = 1.20 )"), canonical_spec("bm52")
    ('bm25(k1=1.2)', '')
    """
    try:
        return System.parse(name).spec
    except R2medError:
        return ""


_NOT_OPTIONS = frozenset(("address", "options", "target", "made"))
"""Fields that define the user's code that a stage runs."""


def _inside(stage: Stage) -> Iterator[tuple[str, System]]:
    """Yield the systems that a stage is made of, each with the name of its field."""
    for name, value in vars(stage).items():
        for inner in value if isinstance(value, tuple) else (value,):
            if isinstance(inner, System):
                yield name, inner


class State(NamedTuple):
    """Data passed from stage to stage, and the output of a whole system."""

    collection: Collection
    """The collection with all generations."""
    run: Run | None = None

    @property
    def ranked(self) -> Run:
        """Return the run, which exists once a retriever has worked."""
        if self.run is None:
            raise SpecError("nothing has been retrieved yet")
        return self.run


def _stepped(stage: Stage, state: State, gold: Gold | None, context: Context) -> State:
    """Run a stage on the state that the one before left, and note its generations."""
    after = foreseeing(stage, state.collection, context, lambda: _step(stage, state, context, gold))
    if after.collection.generations is not state.collection.generations:
        counts = map(len, state.collection.generations) if state.collection.generations else repeat(0)
        rows = zip(after.collection.queries.ids, after.collection.generations, counts, strict=False)
        context.notes.written |= {query: generations[count:] for query, generations, count in rows}
    return after


def _step(stage: Stage, state: State, context: Context, gold: Gold | None) -> State:
    collection, run = state
    match stage:
        case Oracle():
            if gold is None:
                raise SpecError(f"{stage} is shown the gold answers and can only stand at the start of a whole system")
            return State(stage.expand_with(collection, gold, context))
        case Expander():
            return State(stage.expand(collection, context))
        case Retriever():
            return State(collection, stage.retrieve(collection, context))
        case Reranker() if run is not None:
            return State(collection, stage.rerank(collection, run, context))
    raise SpecError(f"{stage} cannot run here")
