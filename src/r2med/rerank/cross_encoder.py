"""Cross-encoders: a model reads query and document together and scores how well they fit.

`CrossEncoder` is the stage; `LoadedCrossEncoder` holds the settings that scores depend on, and loads the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from r2med.data.dataset import Collection
from r2med.data.run import Run
from r2med.data.tasks import Task
from r2med.encode.cards import SHORT_DTYPES
from r2med.encode.loading import Build
from r2med.errors import R2medError, SpecError, require_extra, suggest
from r2med.models.memory import MODEL_CACHE, find_devices
from r2med.models.source import ModelSource, as_path, existing_folder, is_folder, locate, spelled_folder
from r2med.models.tokenizer import Tokenizer, check_limit, pretrained_tokenizer
from r2med.pipeline.executor.blocks import Spread
from r2med.pipeline.registry import spec_of
from r2med.pipeline.spec import Call, parse
from r2med.pipeline.stage import Context, Requirements, Reranker
from r2med.rerank.candidates import candidates, check_depth, reranked
from r2med.rerank.cards import DTYPES, HEADS, PREFIX, RerankerCard, card, card_of, cards
from r2med.rerank.pair_inputs import TRUNCATIONS, Inputs, PairFormat, PairInput
from r2med.rerank.pair_models import Columns, OnnxPairModel, PairModel, TorchPairModel, scores_of
from r2med.rerank.pair_scores import (
    PairScores,
    PairWorker,
    ScoreStore,
    Scoring,
    SpreadScoring,
    WantedPair,
    wanted_pairs,
)

BACKENDS = ("torch", "onnx")
Pairs = Mapping[bytes, WantedPair]


@dataclass(frozen=True)
class CrossEncoder(Reranker):
    """Reranker by a cross-encoder: a card's name, `ce:ORG/NAME`, or a folder.

    Scores are the model's own logits, without a sigmoid, which would make ties of the surest of them.

    >>> str(CrossEncoder("bge-reranker", depth=10))
    'bge-reranker(depth=10)'
    """

    model: str  # a card's name, `ce:ORG/NAME`, or a folder
    _: KW_ONLY
    depth: int = 100  # how many documents of a list are reranked
    like: str = ""  # the card whose format a model without one takes: `ce:ORG/NAME(like=qwen3-reranker-0.6b)`
    adapter: str = ""  # a LoRA adapter that is merged into the model: a repository or a folder
    revision: str = ""  # the hub's commit or branch, in place of the card's
    max_length: int | None = None  # tokens that are read of a pair, in place of the card's
    truncate: str = "document"  # what gives way in a pair that is too long: `document`, or the `longest` of the two
    head: str = ""  # how logits become a score, in place of the card's: one, second, margin
    instruction: str = ""
    """What a model that takes an instruction is told, in place of the card's; {sentence} is the task's own."""
    dtype: str = ""  # the precision, in place of the card's: float32, bfloat16, float16
    backend: str = "torch"  # what runs the model: torch or onnx
    device: str = "auto"
    """Where torch runs it: cpu, cuda, cuda:1, mps; `auto` is the first GPU there is, or else the processor."""
    batch_tokens: int | None = None
    """How many tokens a batch may hold, padding included; out of memory halves it.

    Scores depend on it in their last digits: arithmetic in single precision is not the same in every batch. So do those
    of a run that was killed and finished later, whose pairs come together in other batches.
    """
    remote_code: bool = False  # whether Python code of the model's repository may run: only for those you trust

    def __post_init__(self) -> None:
        if self.model not in cards():
            prefix = PREFIX if self.model.startswith(PREFIX) else ""
            object.__setattr__(self, "model", prefix + spelled_folder(self.model.removeprefix(PREFIX)))
        if self.adapter:
            object.__setattr__(self, "adapter", spelled_folder(self.adapter))
        check_depth(self.model, self.depth)
        for option, allowed in (("truncate", TRUNCATIONS), ("backend", BACKENDS)):
            if getattr(self, option) not in allowed:
                raise SpecError(f"{self.model}: {option} must be {' or '.join(allowed)}, not {getattr(self, option)!r}")
        choices: Mapping[str, Sequence[str]] = {"head": HEADS, "dtype": (*DTYPES, *SHORT_DTYPES), "like": list(cards())}
        for option, values in choices.items():
            value = getattr(self, option)
            if value and value not in values:
                raise SpecError(f"{self.model}: unknown {option} {value!r}{suggest(value, values)}")
        if self.batch_tokens is not None and self.batch_tokens < 1:
            raise SpecError(f"{self.model}: batch_tokens must be 1 or more, not {self.batch_tokens}")
        # A wrong name is an error before anything runs.
        if self.model in cards():
            if self.like:
                raise SpecError(f"{self.model} has a card of its own; like= is for models without one")
        elif is_folder(self.model.removeprefix(PREFIX)):
            existing_folder(self.model.removeprefix(PREFIX))
        elif not self.model.startswith(PREFIX):
            card(self.model)

    @property
    def spec(self) -> Call:
        """Return the stage in the spec language."""
        whole = spec_of(self, "cross-encoder")
        try:
            is_name = parse(self.model).calls == (Call(self.model),)
        except SpecError:
            is_name = False
        return Call(self.model, (), whole.options) if is_name else whole

    @cached_property
    def pair_model(self) -> LoadedCrossEncoder:
        """Build the model with this stage's changes of its card. For `ce:` names the model's small files are read."""
        card = cards().get(self.model)
        if card is None:
            source = locate(as_path(self.model.removeprefix(PREFIX)), self.revision or "main")
            card = card_of(source, self.model, self.like)
            card = replace(card, remote_code=card.remote_code or self.remote_code)
        options = ("revision", "max_length", "head", "dtype")
        changes: dict[str, Any] = {name: getattr(self, name) for name in options if getattr(self, name)}
        if self.adapter:
            changes |= {"adapter": as_path(self.adapter), "adapter_revision": "main"}
        if self.dtype:
            changes["dtype"] = SHORT_DTYPES.get(self.dtype, self.dtype)
        elif self.backend == "onnx":
            # Half precision is a GPU's business.
            changes["dtype"] = "float32"
        if self.instruction:
            changes["instruction"] = replace(card.instruction, text=self.instruction, families=())
        return LoadedCrossEncoder(replace(card, **changes), self.truncate, self.backend, self.device, self.remote_code)

    @property
    def requirements(self) -> Requirements:
        """Return the extra, the repositories on the hub, and a GPU for models of billions of weights."""
        published = cards().get(self.model)
        model = published.id if published else self.model.removeprefix(PREFIX)
        adapter = self.adapter or (published.adapter if published else "")
        hub = tuple(name for name in (model, adapter) if name and not is_folder(name))
        extras = ["onnx"] * (self.backend == "onnx") + ["torch"] + ["lora"] * bool(adapter)
        return Requirements(extra=",".join(extras), hub=hub, gpu=bool(published and published.needs_gpu))

    def fingerprint(self) -> Mapping[str, object]:
        """Return the settings that scores depend on."""
        return self.pair_model.settings()

    def local_content(self) -> Mapping[str, str]:
        """Return the folders of the model and of its adapter, each with a hash."""
        return self.pair_model.local_content()

    def describe(self) -> Mapping[str, object]:
        """Return the settings that a plan shows."""
        card = self.pair_model.card
        revision = {} if self.pair_model.source.place else {"revision": card.revision}
        adapter = {"adapter": card.adapter} if card.adapter else {}
        reading = {"depth": self.depth, "max_length": card.max_length, "truncate": self.truncate}
        return {"model": card.id, **revision, **adapter, **reading, "dtype": card.dtype, "backend": self.backend}

    def forecast(self, collection: Collection, context: Context) -> Mapping[str, object]:
        """Return the most pairs that this may score; which are stored already is known only with the lists."""
        return {"pairs at most": len(collection.queries) * min(self.depth, len(collection.documents))}

    def rerank(self, collection: Collection, run: Run, context: Context) -> Run:
        """Score the first documents of every list and order them by it."""
        model, task = self.pair_model, collection.task
        lists = candidates(collection, run, self.depth)
        pairs = wanted_pairs(lists)
        with ScoreStore(model.settings(task)) as store:
            scores = PairScores(store.find(pair.digest for row in pairs for pair in row))
            missing = {pair.digest: pair for row in pairs for pair in row if pair.digest not in scores.known}
            if scores.known:
                context.reuse("scores of pairs")
            if missing:
                every = {pair.digest: pair for row in pairs for pair in row}
                scores.add(self._score(every, missing, store, context, task))
        limit = self.pair_model.card.max_length
        facts = scores.cut_facts(pairs, limit)
        first = self.pair_model.format(task).first(pairs[0][0].pair) if pairs else ""
        context.notes.facts |= {"pairs": sum(map(len, pairs)), "scored": len(missing), **facts, "first": first}
        if facts["queries_cut"]:
            context.warn(
                f"{self}: {facts['queries_cut']} of {len(pairs)} queries leave no room for a document in {limit} tokens"
                " and lost a part; a larger max_length may help"
            )
        outcomes = [scores.outcome(*both) for both in zip(lists, pairs, strict=True)]
        return reranked(self, run, lists, outcomes, context)

    def _score(self, pairs: Pairs, missing: Pairs, store: ScoreStore, context: Context, task: Task) -> PairScores:
        model, spread = self.pair_model, context.executor.spread
        label = f"score pairs ({model.card.id})"
        if spread is None:
            with context.timed("load"):
                scoring = model.scoring(task, self.batch_tokens)
            with context.executor.progress(label, len(missing), unit="pairs") as bar:
                return scoring.run(list(missing.values()), store, bar)
        workers = model.spread_scoring(task, spread, self.batch_tokens)
        with context.executor.progress(label, len(missing), unit="pairs") as bar:
            scores = workers.run(list(pairs.values()), pairs.keys() - missing.keys(), store, bar)
        scores.add(PairScores(store.find(digest for digest in missing if digest not in scores.known)))
        if left := missing.keys() - scores.known.keys() - scores.problems.keys():
            raise spread.unfinished(f"pairs of {model.card.id}", len(left), len(pairs))
        return scores


_PROCESSOR_TOKENS = 1024  # more at once do not fit the processor's caches and are slower, not faster
_DEVICE_TOKENS = 32_768


@dataclass(frozen=True)
class LoadedCrossEncoder:
    """A cross-encoder of a card with its settings; the weights are loaded by `scoring`."""

    card: RerankerCard
    truncate: str = "document"
    backend: str = "torch"
    device: str = "auto"
    remote_code: bool = False  # whether the user lets code of the repository run

    @cached_property
    def source(self) -> ModelSource:
        """Return the location of the model's files."""
        return locate(self.card.id, self.card.revision)

    @cached_property
    def adapter(self) -> ModelSource | None:
        """Return the location of the adapter's files, or None for a model without an adapter."""
        return locate(self.card.adapter, self.card.adapter_revision) if self.card.adapter else None

    def local_content(self) -> dict[str, str]:
        """Return the folders of the model and of its adapter that are not from the hub."""
        sources = [self.source, *([self.adapter] if self.adapter else [])]
        return {place: digest for source in sources for place, digest in source.local_content().items()}

    def settings(self, task: Task | None = None) -> dict[str, object]:
        """Return everything that a score depends on besides the two texts: the key under which scores are stored.

        Without a task, the settings that a plan and a result's key are made of. A branch whose commit cannot be
        resolved now is then named itself.
        """
        card = self.card
        settings = self.weights(strict=task is not None)
        settings |= {"head": card.head, "max_length": card.max_length, "truncate": self.truncate}
        if not card.pieces:
            return settings | {"query": card.query, "document": card.document}
        settings |= {"pieces": list(card.pieces)}
        if "{instruction}" in "".join(card.pieces):
            settings["instruction"] = card.instruction.render(task) if task else card.instruction.text
        return settings

    def weights(self, *, strict: bool = True) -> dict[str, object]:
        """Return the settings that the loaded model depends on."""
        settings: dict[str, object] = {
            "model": self.source.label,
            "revision": _version(self.source, strict),
            "backend": self.backend,
            "dtype": self.card.dtype,
            "answers": list(self.card.answers),
            "remote_code": self.card.remote_code,
        }
        if self.adapter:
            settings["adapter"] = f"{self.adapter.label} {_version(self.adapter, strict)}"
        return settings

    def format(self, task: Task) -> PairFormat:
        """Return the format of a pair for a task."""
        card = self.card
        instruction = card.instruction.render(task)
        pieces = tuple(piece.replace("{instruction}", instruction) for piece in card.pieces)
        return PairFormat(card.query, card.document, pieces, card.max_length, self.truncate)

    def scoring(self, task: Task, batch_tokens: int | None = None) -> Scoring:
        """Load the model for scoring; its files are downloaded if they are not on this machine."""
        card = self.card
        if card.remote_code and not self.remote_code:
            raise SpecError(f"{card.id} runs Python code of its own; add remote_code=true if you trust it")
        require_extra("torch", "torch", "transformers", "safetensors")
        build, tokenizer, device = self._open()
        # The cache is shared with the encoders: a retriever of billions of weights must not stay beside a reranker.
        judge: PairModel = MODEL_CACHE.take(
            (build, card.answers, self.backend, device),
            build.size,
            lambda: (
                TorchPairModel(build, tokenizer, card.answers, device)
                if self.backend == "torch"
                else OnnxPairModel(build, tokenizer, card.answers, self.weights())
            ),
        )
        check_limit(card.id, card.max_length, judge.positions)
        tokenizer.pad = judge.pad
        inputs = Inputs(tokenizer, self.format(task))

        def score(rows: Sequence[PairInput]) -> Columns:
            return scores_of(judge.columns(inputs.padded(rows)), card.head, card.id)

        return Scoring(inputs, score, batch_tokens or (_PROCESSOR_TOKENS if device == "cpu" else _DEVICE_TOKENS))

    def spread_scoring(self, task: Task, spread: Spread, batch_tokens: int | None = None) -> SpreadScoring:
        """Return the scoring by workers; this process only reads the tokenizer."""
        _, tokenizer, device = self._open()
        budget = batch_tokens or (_PROCESSOR_TOKENS if device == "cpu" else _DEVICE_TOKENS)
        return SpreadScoring(Inputs(tokenizer, self.format(task)), PairWorker(self, task), budget, spread)

    def _open(self) -> tuple[Build, Tokenizer, str]:
        """Return what the model is built from, its tokenizer, and the device that it runs on."""
        adapter = str(self.adapter.adapter_folder()) if self.adapter else ""
        remote_code = self.card.remote_code
        build = Build(str(self.source.folder()), dtype=self.card.dtype, remote_code=remote_code, adapter=adapter)
        tokenizer = pretrained_tokenizer(Path(build.folder), append_eos=False, remote_code=remote_code)
        return build, tokenizer, "cpu" if self.backend == "onnx" else find_devices(self.device)[0]


def _version(source: ModelSource, strict: bool) -> str:
    try:
        return source.version
    except R2medError:
        if strict:
            raise
        return source.revision
