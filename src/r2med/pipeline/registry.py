"""Names of stages: one table, one way to bind arguments, one place for "did you mean".

A stage is a frozen dataclass whose fields are its arguments, so that the spec, the Python constructor and the
error about a wrong option all come from the same declaration.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import MISSING
from typing import Any, ClassVar, TypeVar, cast, get_args, get_origin, get_type_hints

from r2med.errors import SpecError, suggest
from r2med.pipeline.spec import Call, Chain, Value, parse
from r2med.pipeline.stage import KINDS, Stage, settings_of
from r2med.pipeline.system import System
from r2med.settings import aliases
from r2med.store.plugins import load_plugin, plugins

STAGES: Mapping[str, str] = {
    "bm25": "r2med.retrieve.bm25:BM25",
    "bm25-classic": "r2med.retrieve.bm25:BM25Classic",
    "splade": "r2med.retrieve.sparse:Splade",
    "candidates": "r2med.retrieve.given_lists:StoredLists",
    "http": "r2med.engines.http:HttpEngine",
    "sql": "r2med.engines.sql:SqlEngine",
    "rrf": "r2med.retrieve.fusion:RRF",
    "wsum": "r2med.retrieve.fusion:WeightedSum",
    "combmnz": "r2med.retrieve.fusion:CombMNZ",
    "views": "r2med.retrieve.fusion:Views",
    "route": "r2med.retrieve.routing:Route",
    "cascade": "r2med.retrieve.routing:Cascade",
    "top-score": "r2med.retrieve.signals:TopScore",
    "score-gap": "r2med.retrieve.signals:ScoreGap",
    "nqc": "r2med.retrieve.signals:NQC",
    "wig": "r2med.retrieve.signals:WIG",
    "clarity": "r2med.retrieve.signals:Clarity",
    "query-length": "r2med.retrieve.signals:QueryLength",
    "agreement": "r2med.retrieve.signals:ListAgreement",
    "random": "r2med.retrieve.signals:Random",
    "answer-agreement": "r2med.retrieve.llm_signals:AnswerAgreement",
    "confidence": "r2med.retrieve.llm_signals:Confidence",
    "hyde": "r2med.expand.methods:HyDE",
    "query2doc": "r2med.expand.methods:Query2Doc",
    "lamer": "r2med.expand.methods:LameR",
    "answer": "r2med.expand.methods:Answer",
    "search-o1": "r2med.expand.agents:SearchO1",
    "search-r1": "r2med.expand.agents:SearchR1",
    "replay": "r2med.expand.replay:Replay",
    "oracle-answer": "r2med.expand.methods:OracleAnswer",
    "colbert": "r2med.retrieve.colbert:ColBERT",
    "cross-encoder": "r2med.rerank.cross_encoder:CrossEncoder",
    "listwise": "r2med.rerank.listwise:Listwise",
    "groupwise": "r2med.rerank.groupwise:Groupwise",
    "pointwise": "r2med.rerank.pointwise:Pointwise",
    "api-rerank": "r2med.rerank.api:ApiRerank",
}
"""Every stage with a name, and its address; nothing is imported until it is used."""
FAMILIES = (
    "r2med.rerank.cards:find_reranker",
    "r2med.engines.user:find_engine",
    "r2med.retrieve.given_lists:find_imported",
    "r2med.retrieve.sparse:find_sparse",
    "r2med.retrieve.colbert:find_late",
    "r2med.retrieve.dense:find_dense",
)
"""Families tried for any other name, in turn: functions from a call to a stage, or to None if it is not theirs."""
_FROM_OBJECT = "r2med.engines.user:from_object"
"""The function that makes a stage of a user's function or object."""
_ENCODER = "r2med.retrieve.dense:Dense"
"""The stage that searches with an object that encodes."""
_CARDS = ("r2med.rerank.cards:cards", "r2med.encode.cards:cards")
Bound = TypeVar("Bound", bound=Stage)
_WHOLE = 1e15
"""Below this a float without a fraction is written as an integer, so that k=60 and k=60.0 are one spec."""


def build_stage(call: Call) -> Stage:
    """Build the stage of a call: one with a name in the table, or a model that a family of stages knows."""
    if call.name in STAGES:
        kind: type[Stage] = named(STAGES[call.name])
        return bind(kind, call)
    for family in FAMILIES:
        stage: Stage | None = named(family)(call)
        if stage is not None:
            return stage
    if plugin := load_plugin("r2med.stages", call.name, type):
        return bind(plugin, call)
    if encoder := plugins("r2med.encoders").get(call.name):
        return build_stage(Call(encoder.value, call.args, call.options))
    others = (name for group in ("r2med.stages", "r2med.encoders") for name in plugins(group))
    near = (
        suggest(call.name, [*STAGES, *model_names(), *others])
        or "; `r2med models` lists the models, docs/reference/systems.md the stages"
    )
    raise SpecError(f"unknown stage {call.name!r}{near}")


def model_names() -> list[str]:
    """Return every model that has a card, rerankers and encoders."""
    return [name for cards in _CARDS for name in named(cards)()]


def named(address: str) -> Any:
    """Import the object at `module:name`: a stage's code is loaded only when the stage is used."""
    module, _, attribute = address.partition(":")
    return getattr(importlib.import_module(module), attribute)


def build_system(value: Any) -> System:
    """Build a system from its spec in any form: text, a call, a chain, a lone stage, a search function, an encoder."""
    if isinstance(value, System):
        return value
    if isinstance(value, Stage):
        return System((value,))
    if isinstance(value, str):
        value = parse(value)
    if isinstance(value, Call):
        value = Chain((value,))
    if isinstance(value, type):
        raise SpecError(f"{value.__name__} is a class; give an object of it, as {value.__name__}()")
    if any(hasattr(value, name) for name in ("encode_queries", "encode_documents", "encode")):
        return System((named(_ENCODER)(value),))
    if callable(value) or hasattr(value, "search"):
        return System((named(_FROM_OBJECT)(value),))
    if not isinstance(value, Chain):
        written = " ".join(repr(value).split())[:80]
        raise SpecError(f"a system is a spec such as 'bm25', or made of stages with >>, not {written}")
    definitions = aliases()
    if definitions and (hidden := definitions.keys() & {*STAGES, *model_names()}):
        raise SpecError(f"the alias {min(hidden)} has the name of a built-in stage or model; give it another name")
    return System(tuple(build_stage(call) for call in expand_aliases(value, definitions).calls))


def check_free(name: str) -> None:
    """Refuse a name of a user's object that no spec can contain, or that stands for something else."""
    try:
        plain = parse(f"x({name})") == Chain((Call("x", (name,)),))
    except SpecError:
        plain = False
    if not plain or name.startswith((".", "/", "~")) or set(name) & {":", "@", "/"}:
        raise SpecError(f"{name!r} cannot be a name in a system; use letters, digits, '-', '_' and '.'")
    kinds = {"a stage": STAGES, "a model": model_names(), "an alias": aliases()}
    for kind, names in kinds.items():
        if name in names:
            raise SpecError(f"{name} is the name of {kind} already; choose another")


def expand_aliases(chain: Chain, definitions: Mapping[str, str], seen: tuple[str, ...] = ()) -> Chain:
    """Replace every alias in a chain by its definition.

    >>> str(expand_aliases(parse("x >> best"), {"best": "bm25 >> y"}))
    'x >> bm25 >> y'
    """
    calls: list[Call] = []
    for call in chain.calls:
        if call.name not in definitions:
            calls.append(call)
            continue
        if call.args or call.options:
            raise SpecError(f"{call.name} is an alias and takes no arguments")
        if call.name in seen:
            raise SpecError(f"the alias {call.name} stands for itself ({' -> '.join((*seen, call.name))})")
        calls += expand_aliases(parse(definitions[call.name]), definitions, (*seen, call.name)).calls
    return Chain(tuple(calls))


def bind(cls: type[Bound], call: Call) -> Bound:
    """Build a stage from a call, with errors that name the right arguments."""
    declared = {field.name: field for field in settings_of(cls)}
    hints = get_type_hints(cls)
    given: dict[str, Any] = {}
    usage = ", ".join(declared) or "no arguments"
    rest = next((field for field in declared.values() if field.metadata.get("rest")), None)
    positional = [field for field in declared.values() if not field.kw_only]
    if rest is not None:
        given[rest.name] = tuple(_convert(call, rest.name, value, get_args(hints[rest.name])[0]) for value in call.args)
    elif len(call.args) > len(positional):
        raise SpecError(f"{call} has {len(call.args)} values without a name, {call.name} takes {usage}")
    else:
        for field, value in zip(positional, call.args, strict=False):
            given[field.name] = _convert(call, field.name, value, hints[field.name])
    for name, value in call.options:
        if name not in declared or (rest is not None and name == rest.name):
            raise SpecError(f"{call.name} has no option {name!r}; it takes {usage}")
        if name in given:
            raise SpecError(f"{call}: {name} is given twice")
        given[name] = _convert(call, name, value, hints[name])
    needed = [field for field in declared.values() if field.default is MISSING and field.default_factory is MISSING]
    missing = [field.name for field in needed if field.name not in given and field is not rest]
    if missing:
        raise SpecError(f"{call} lacks {', '.join(missing)}; {call.name} takes {usage}")
    return cls(*given.pop(rest.name), **given) if rest is not None else cls(**given)


class NamedStage(Stage):
    """Stage whose spec is its name with its settings."""

    name: ClassVar[str]

    @property
    def spec(self) -> Call:
        """Return the stage in the spec language."""
        return spec_of(self, self.name)


def spec_of(stage: Stage, name: str) -> Call:
    """Return the call that builds this stage again: its fields, without those at their defaults."""
    args: list[Value] = []
    options: list[tuple[str, Value]] = []
    for field in settings_of(stage):
        value = getattr(stage, field.name)
        if field.metadata.get("rest"):
            args.extend(map(_plain, value))
        elif field.default is MISSING and not field.kw_only:
            args.append(_plain(value))
        elif value != field.default:
            options.append((field.name, _plain(value)))
    return Call(name, tuple(args), tuple(options))


def _plain(value: Any) -> Value:
    if isinstance(value, System):
        chain = value.chain
        if len(chain.calls) == 1:
            call = chain.calls[0]
            return call if call.args or call.options else call.name
        return chain
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < _WHOLE else cast(Value, value)


def _convert(call: Call, name: str, value: Value, hint: Any) -> Any:
    """Convert a value of the spec to the type of the field."""
    if hint is System:
        return build_system(value)
    if get_origin(hint) is tuple:
        if not isinstance(value, tuple):
            raise SpecError(f"{call.name}: {name} must be a list such as [1, 2], not {value}")
        return tuple(_convert(call, name, item, get_args(hint)[0]) for item in value)
    options = get_args(hint)
    if type(None) in options:
        if value is None:
            return None
        hint = next(option for option in options if option is not type(None))
    if hint is str and isinstance(value, Call):
        # `repeat(2)` is a text that looks like a call, and need not be quoted.
        value = str(value)
    if hint in KINDS:
        if not KINDS[hint].fits(value):
            quoted = f'; write {name}="{value}" if that is the name' if hint is str and value is not None else ""
            raise SpecError(f"{call.name}: {name} must be {KINDS[hint].words}, not {value}{quoted}")
        return float(value) if isinstance(value, int) and hint is float else value
    return value
