"""Dense retrieval: any encoder, exact or quantised search, and generated texts joined as published."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.data.dataset import Collection, Texts
from r2med.data.run import Run
from r2med.data.tasks import Task
from r2med.encode import indexes
from r2med.encode.api import ApiEncoder
from r2med.encode.batching import encode_all, to_encode
from r2med.encode.cards import cards
from r2med.encode.encoder import Encoder, Role, Vectors
from r2med.encode.indexes import QUANTIZED, EngineSettings, VectorIndex
from r2med.encode.resolve import card_for, check_options, encoder_for, known
from r2med.encode.user import TwoMethods, address_of, find_class, state_of
from r2med.encode.vector_search import Similarity, VectorRows, search
from r2med.encode.vectors import PRECISIONS
from r2med.errors import R2medError, SpecError, suggest
from r2med.lexical.ranking import id_order
from r2med.models.source import spelled_folder
from r2med.pipeline.executor.local import Executor, quiet
from r2med.pipeline.joins import TextParts, parts, query_copies
from r2med.pipeline.registry import bind, build_system, spec_of
from r2med.pipeline.spec import Call
from r2med.pipeline.stage import Context, Requirements
from r2med.pipeline.user_code import is_class, option_names
from r2med.retrieve.documents import EncoderRetriever, measured_loss, override, run_of_hits, searchable, with_text
from r2med.store.cache import Cache
from r2med.store.hashes import cache_key


@dataclass(frozen=True, init=False)
class Dense(EncoderRetriever):
    """A retriever that compares embeddings. Its spec is the model's own name.

    The model is a name, or an object with `encode_queries` and `encode_documents`. Options that are not settings of
    this stage go to a user's class.

    >>> str(Dense("wordllama", dim=64)), str(Dense("my_module:MyEncoder", columns=64))
    ('wordllama(dim=64)', 'my_module:MyEncoder(columns=64)')
    """

    model: str  # a card's name, `hf:ORG/NAME`, a folder, `my.module:MyEncoder`, or `NAME@http://host:port/v1`
    dim: int = field(default=0, kw_only=True)  # how many of a vector's first numbers are used (Matryoshka); 0 for all
    quantize: str = field(default="", kw_only=True)  # int8 or binary; empty for floats
    rescore: int = field(default=0, kw_only=True)
    """How many candidates for each place of the list are ranked anew by floats; 0 for none, or two of an index."""
    index: object = field(default="", kw_only=True)
    """faiss or usearch, perhaps with options, for approximate search; empty for reading all vectors."""
    join: str = field(default="", kw_only=True)
    """How generated texts join the query: mean, concat, replace, "repeat(n)"; empty for the published way."""
    store: str = field(default="float32", kw_only=True)  # the precision in which vectors are kept: float32 or float16
    pooling: str | None = override()
    max_length: int | None = override()
    max_query: int | None = override()
    max_document: int | None = override()
    query_prompt: str | None = override()
    document_prompt: str | None = override()
    normalize: bool | None = override()
    similarity: str | None = override()
    dtype: str | None = override()
    revision: str | None = override()
    adapter: str | None = override()
    remote_code: bool | None = override()
    backend: str | None = override()
    device: object = override()  # the name of a device, or a list of them
    attention: str | None = override()
    exclude_prompt: bool | None = override()
    append_eos: bool | None = override()
    padding: str | None = override()
    options: Any = field(default=(), kw_only=True)
    """Options of a user's class (`my.module:MyEncoder`), by name; stored as sorted pairs."""
    made: Any = field(default=None, kw_only=True, compare=False, repr=False)
    """An object of that class, where one was given and need not be constructed."""

    def __init__(self, model: str | TwoMethods, *, options: Any = (), made: Any = None, **settings: Any) -> None:
        name, defaults = model, {entry.name: entry.default for entry in fields(self) if entry.name in _SETTINGS}
        if not isinstance(name, str):
            name, made, options = address_of(model), model, state_of(model)
        others = {setting: value for setting, value in settings.items() if setting not in defaults}
        if others and not is_class(name):
            raise _no_option(name, next(iter(others)))
        values = defaults | settings | {"model": name, "options": {**dict(options), **others}, "made": made}
        for setting, value in values.items():
            if setting not in others:
                object.__setattr__(self, setting, value)
        self._check()

    def _check(self) -> None:
        object.__setattr__(self, "options", tuple(sorted(dict(self.options).items())))
        if self.model not in cards() and not is_class(self.model) and "@http" not in self.model:
            object.__setattr__(self, "model", spelled_folder(self.model))
        if self.adapter:
            object.__setattr__(self, "adapter", spelled_folder(self.adapter))
        for name, allowed in (("quantize", ("", *QUANTIZED)), ("store", PRECISIONS)):
            value = getattr(self, name)
            if value not in allowed:
                raise SpecError(f"{self.model}: unknown {name} {value!r}{suggest(value, filter(None, allowed))}")
        if self.depth < 1:
            raise SpecError(f"{self.model}: depth must be 1 or more, not {self.depth}")
        if self.dim < 0 or self.rescore < 0:
            raise SpecError(f"{self.model}: dim and rescore must not be negative")
        if self.rescore and not (self.quantize or self.index):
            raise SpecError(f"{self.model}: rescore={self.rescore} needs quantize=int8 or quantize=binary, or an index")
        if self.index and self.quantize:
            raise SpecError(f"{self.model}: either quantize or index; an index has its own way to keep vectors small")
        if self.index:
            self._approximate()
        if self.join not in ("", "mean"):
            query_copies(self.join)
        if is_class(self.model):
            return
        if self.options:
            raise SpecError(f"{self.model}: options are for a class of one's own, written my.module:MyEncoder")
        check_options(self.model, self.settings)
        if self.model in cards():
            card_for(self.model, self.settings)

    def _approximate(self) -> EngineSettings:
        """Normalise the index option and return its settings; a call without options becomes the name alone."""
        call = indexes.engine_call(self.index)
        object.__setattr__(self, "index", call if call.args or call.options else call.name)
        return EngineSettings.read(call)

    @classmethod
    def from_call(cls, call: Call) -> Dense:
        """Build the stage of a call whose name is the model's: `minilm(dim=256, quantize=int8, rescore=4)`."""
        if call.args:
            raise SpecError(f"{call}: a model's options have names, such as {call.name}(depth={call.args[0]})")
        others = {name: value for name, value in call.options if name not in _SETTINGS}
        if others and not is_class(call.name):
            raise _no_option(call.name, next(iter(others)))
        settings = tuple(pair for pair in call.options if pair[0] not in others)
        stage = bind(cls, Call(call.name, (call.name,), settings))
        return replace(stage, options=others) if others else stage

    @property
    def spec(self) -> Call:
        """Return the model's name with the options that are not at their defaults."""
        given = [(name, value) for name, value in spec_of(self, self.model).options if name in _SETTINGS]
        return Call(self.model, (), (*given, *self.options))

    @property
    def settings(self) -> Mapping[str, Any]:
        """Return the options of the encoder that override its card, and those of a user's class."""
        return {**super().settings, **dict(self.options)}

    def make_encoder(self, task: Task) -> Encoder:
        """Build the encoder for a task's prompts."""
        encoder = encoder_for(self.model, self.settings, task, self.made)
        if encoder.sparse:
            raise SpecError(f"{self.model} is a learned sparse encoder: write splade({self.model})")
        return encoder

    @property
    def requirements(self) -> Requirements:
        """Return the requirements of the encoder, or else of the index."""
        needs = super().requirements
        return replace(needs, extra=needs.extra or self._approximate().engine) if self.index else needs

    @property
    def user_options(self) -> frozenset[str]:
        """Return the options of a user's class; none for an object, which is constructed already."""
        if not is_class(self.model) or self.made is not None:
            return frozenset()
        return option_names(find_class(self.model), dict(self.options)) - {"task", *_SETTINGS}

    def fingerprint(self) -> Mapping[str, object]:
        """Return what the encoder's vectors and the index depend on."""
        return {**super().fingerprint(), **({"index": self._approximate().fingerprint()} if self.index else {})}

    def describe(self) -> Mapping[str, object]:
        """Return every setting, the encoder's included."""
        encoder = self.encoder()
        query, document = dict(encoder.settings(Role.QUERY)), dict(encoder.settings(Role.DOCUMENT))
        both = [name for name in query if query[name] == document.get(name)]
        apart = {"role", *both}
        return {
            **{name: query[name] for name in both},
            **{f"query {name}": value for name, value in query.items() if name not in apart},
            **{f"document {name}": value for name, value in document.items() if name not in apart},
            "similarity": encoder.similarity,
            "depth": self.depth,
            "drop_self": self.self_rule,
            "dim": self.dim or "all",
            "quantize": self.quantize or "none",
            "rescore": self.rescore,
            **({"index": str(self.index)} if self.index else {}),
            "join": self.join or "as published",
            "store": self.store,
        }

    def forecast(self, collection: Collection, context: Context) -> Mapping[str, object]:
        """Count the texts that are still to be encoded, with the requests and price of a server."""
        encoder = self.encoder(collection.task)
        documents = to_encode(encoder, with_text(collection.documents), Role.DOCUMENT, self.store)
        queries, _ = _columns(collection, self._parts(collection))["queries"]
        asked = to_encode(encoder, queries, Role.QUERY)
        facts: dict[str, object] = {"documents to encode": documents, "queries to encode": asked}
        if not isinstance(encoder, ApiEncoder):
            return facts
        sides = ((collection.documents.texts, Role.DOCUMENT, documents), (queries.texts, Role.QUERY, asked))
        samples = ((texts[:: max(1, len(texts) // _SAMPLED)], role, count) for texts, role, count in sides)
        requests, tokens = map(sum, zip(*(encoder.expect(*sample) for sample in samples), strict=True))
        return facts | {"requests": requests, "tokens to send": tokens, "dollars": encoder.price(tokens)}

    @property
    def billed(self) -> bool:
        """Return whether a server encodes."""
        return bool(self.encoder().billed)

    def retrieve(self, collection: Collection, context: Context) -> Run:
        """Return each query's nearest documents."""
        encoder: Encoder = self.encoder(collection.task)
        collection = searchable(collection, context)
        with context.timed("index"):
            stored = encode_all(encoder, collection.documents, Role.DOCUMENT, context, precision=self.store)
            how = Similarity(encoder.similarity, context.executor.memory // 4)
            rows = indexes.first_dimensions(stored, self.dim)
            index = self._index(rows, how, collection, encoder, context)
        queries = self._queries(encoder, collection, stored.shape[1], context)
        name, dimension = str(self.index) or self.quantize or self.store, self.dim or stored.shape[1]
        facts = {"similarity": encoder.similarity, "dimension": dimension, "index": name, "index_bytes": index.nbytes}
        context.notes.facts |= facts
        ties = id_order(collection.documents.ids)
        copies = self.drop_copies(collection, context)
        hits = index.search(queries, self.depth + bool(copies), ties)
        if self.index or self.quantize:
            with context.timed("check"):
                context.notes.facts["recall_lost"] = measured_loss(
                    hits.places,
                    len(ties),
                    hits.places.shape[1],
                    lambda places, depth: search(queries[places], rows, depth, ties, how).places,
                )
        run = run_of_hits(collection, hits)
        return run.without_self(copies).cut(self.depth) if copies else run

    def _index(
        self, rows: VectorRows, how: Similarity, collection: Collection, encoder: Encoder, context: Context
    ) -> VectorIndex:

        def folder_of(name: str, kind: object, write: Callable[[Path], object]) -> Path:
            settings, documents = sorted(encoder.settings(Role.DOCUMENT).items()), collection.documents.fingerprint
            facts = {"kind": kind, "dim": self.dim, "store": self.store, "how": how.name}
            key = cache_key(documents=documents, settings=settings, **facts)
            return context.cache.sound_entry(name, key, write)

        if self.index:
            engine = self._approximate()
            folder = folder_of("ann", engine.fingerprint(), lambda folder: engine.write(rows, how, folder))
            return engine.open(rows, how, folder, self.rescore)
        if self.quantize and rows.nbytes > context.executor.memory // 4:
            coarse = QUANTIZED[self.quantize]
            folder = folder_of("codes", self.quantize, lambda folder: coarse.build(rows, how, folder=folder))
            return coarse.open(rows, how, self.rescore, folder)
        return indexes.build_index(rows, how, self.quantize, self.rescore)

    def _parts(self, collection: Collection) -> list[TextParts]:
        generations = collection.generations or ((),) * len(collection.queries)
        return [parts(text, row, self.join) for text, row in zip(collection.queries.texts, generations, strict=True)]

    def _queries(self, encoder: Encoder, collection: Collection, dimension: int, context: Context) -> Vectors:
        """Return a vector for each query: its own, or the mean with those of the texts generated for it."""
        rows = self._parts(collection)
        sums = np.zeros((len(rows), dimension), dtype=np.float64)
        for label, (texts, owners) in _columns(collection, rows).items():
            if len(texts):
                reader = encoder if label == "queries" else encoder.for_passages()
                vectors = encode_all(reader, texts, Role.QUERY, context, label=label)
                if vectors.shape[1] != dimension:
                    raise R2medError(f"{self}: {label} have {vectors.shape[1]} dimensions, documents {dimension}")
                np.add.at(sums, owners, vectors[:])
        counts = [bool(part.query) + len(part.passages) for part in rows]
        mean = (sums / np.array(counts, dtype=np.float64).reshape(-1, 1)).astype(np.float32)
        return mean[:, : self.dim] if self.dim else mean


_SAMPLED = 500  # from about how many texts a price is reckoned
_SETTINGS = frozenset(entry.name for entry in fields(Dense)) - {"model", "options", "made"}
"""What a spec may set of any model."""


def _no_option(model: str, name: str) -> SpecError:
    hint = suggest(name, _SETTINGS) or f"; it takes {', '.join(sorted(_SETTINGS))}"
    return SpecError(f"{model} has no option {name!r}{hint}")


def _columns(collection: Collection, rows: list[TextParts]) -> dict[str, tuple[Texts, list[int]]]:
    """Return the texts of queries and the passages generated for them, each with the places of their queries."""
    queries = [(place, part.query) for place, part in enumerate(rows) if part.query]
    passages = [(place, text) for place, part in enumerate(rows) for text in part.passages]
    columns = {}
    for label, pairs in (("queries", queries), ("passages", passages)):
        owners = [place for place, _ in pairs]
        columns[label] = Texts([collection.queries.ids[place] for place in owners], [text for _, text in pairs]), owners
    return columns


def find_dense(call: Call) -> Dense | None:
    """Return the stage of a call whose name is an encoder's, or None."""
    if not known(call.name):
        return None
    if ("dim", 0) in call.options:
        raise SpecError(f"{call}: dim must be at least 1; leave it out to use the whole vector")
    return Dense.from_call(call)


ENCODER = "wordllama"  # whose embeddings are compared unless another is asked for: it needs no torch and no download
Floats = NDArray[np.float64]


def cosines(
    spec: str, task: Task, ones: Sequence[str], others: Sequence[str], executor: Executor | None = None
) -> list[float]:
    """Return the cosine of each text with the other in its place, by an encoder that takes both for passages."""
    if not ones:
        return []
    model, context = dense_of(spec).encoder(task).for_passages(), Context(Cache.default(), executor or quiet())
    sides = []
    for texts in (ones, others):
        column = Texts([str(place) for place in range(len(texts))], list(texts))
        sides.append(unit_rows(encode_all(model, column, Role.QUERY, context, label="texts")[:]))
    return [float(value) for value in (sides[0] * sides[1]).sum(axis=1)]


def dense_of(spec: str) -> Dense:
    """Return the dense stage of a spec."""
    stages = build_system(spec).stages
    if len(stages) == 1 and isinstance(stages[0], Dense):
        return stages[0]
    raise R2medError(f"{spec} is not an encoder; embeddings are compared by a dense model such as {ENCODER}")


def unit_rows(vectors: NDArray[np.float32]) -> Floats:
    """Scale rows to length one."""
    rows = vectors.astype(np.float64)
    scaled: Floats = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return scaled
