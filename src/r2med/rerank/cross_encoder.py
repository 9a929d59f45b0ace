"""Cross-encoders: a model reads query and document together and scores how well they fit."""

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
from r2med.models.tokenizer import check_limit, pretrained_tokenizer
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
_PROCESSOR_TOKENS = 1024  # more at once do not fit the processor's caches and are slower, not faster
_DEVICE_TOKENS = 32_768
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
    def card(self) -> RerankerCard:
        """Build the card with this stage's changes. For `ce:` names the model's small files are read."""
        base = cards().get(self.model)
        if base is None:
            source = locate(as_path(self.model.removeprefix(PREFIX)), self.revision or "main")
            base = card_of(source, self.model, self.like)
            base = replace(base, remote_code=base.remote_code or self.remote_code)
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
            changes["instruction"] = replace(base.instruction, text=self.instruction, families=())
        return replace(base, **changes)

    @cached_property
    def source(self) -> ModelSource:
        """Return the location of the model's files."""
        return locate(self.card.id, self.card.revision)

    @cached_property
    def adapter_source(self) -> ModelSource | None:
        """Return the location of the adapter's files, or None for a model without an adapter."""
        return locate(self.card.adapter, self.card.adapter_revision) if self.card.adapter else None

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
        return self.settings()

    def local_content(self) -> Mapping[str, str]:
        """Return the folders of the model and of its adapter that are not from the hub, each with a hash."""
        sources = [self.source, *([self.adapter_source] if self.adapter_source else [])]
        return {place: digest for source in sources for place, digest in source.local_content().items()}

    def describe(self) -> Mapping[str, object]:
        """Return the settings that a plan shows."""
        card = self.card
        revision = {} if self.source.place else {"revision": card.revision}
        adapter = {"adapter": card.adapter} if card.adapter else {}
        reading = {"depth": self.depth, "max_length": card.max_length, "truncate": self.truncate}
        return {"model": card.id, **revision, **adapter, **reading, "dtype": card.dtype, "backend": self.backend}

    def forecast(self, collection: Collection, context: Context) -> Mapping[str, object]:
        """Return the most pairs that this may score; which are stored already is known only with the lists."""
        return {"pairs at most": len(collection.queries) * min(self.depth, len(collection.documents))}

    def rerank(self, collection: Collection, run: Run, context: Context) -> Run:
        """Score the first documents of every list and order them by it."""
        task, lists = collection.task, candidates(collection, run, self.depth)
        pairs = wanted_pairs(lists)
        with ScoreStore(self.settings(task)) as store:
            scores = PairScores(store.scored(pair.digest for row in pairs for pair in row))
            missing = {pair.digest: pair for row in pairs for pair in row if pair.digest not in scores.known}
            if scores.known:
                context.reuse("scores of pairs")
            if missing:
                every = {pair.digest: pair for row in pairs for pair in row}
                scores.add(self._score(every, missing, store, context, task))
        limit = self.card.max_length
        facts = scores.cut_facts(pairs, limit)
        first = self.format(task).first(pairs[0][0].pair) if pairs else ""
        context.notes.facts |= {"pairs": sum(map(len, pairs)), "scored": len(missing), **facts, "first": first}
        if facts["queries_cut"]:
            context.warn(
                f"{self}: {facts['queries_cut']} of {len(pairs)} queries leave no room for a document in {limit} tokens"
                " and lost a part; a larger max_length may help"
            )
        outcomes = [scores.outcome(*both) for both in zip(lists, pairs, strict=True)]
        return reranked(self, run, lists, outcomes, context)

    def _score(self, pairs: Pairs, missing: Pairs, store: ScoreStore, context: Context, task: Task) -> PairScores:
        spread, label = context.executor.spread, f"score pairs ({self.card.id})"
        if spread is None:
            with context.timed("load"):
                scoring = self.scoring(task)
            with context.executor.progress(label, len(missing), unit="pairs") as bar:
                return scoring.run(list(missing.values()), store, bar)
        _, inputs, _, budget = self._open(task)
        workers = SpreadScoring(inputs, PairWorker(self, task), budget, spread)
        with context.executor.progress(label, len(missing), unit="pairs") as bar:
            scores = workers.run(list(pairs.values()), pairs.keys() - missing.keys(), store, bar)
        scores.add(PairScores(store.scored(digest for digest in missing if digest not in scores.known)))
        if left := missing.keys() - scores.known.keys() - scores.problems.keys():
            raise spread.unfinished(f"pairs of {self.card.id}", len(left), len(pairs))
        return scores

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
        if self.adapter_source:
            settings["adapter"] = f"{self.adapter_source.label} {_version(self.adapter_source, strict)}"
        return settings

    def format(self, task: Task) -> PairFormat:
        """Return the format of a pair for a task."""
        card = self.card
        instruction = card.instruction.render(task)
        pieces = tuple(piece.replace("{instruction}", instruction) for piece in card.pieces)
        return PairFormat(card.query, card.document, pieces, card.max_length, self.truncate)

    def scoring(self, task: Task) -> Scoring:
        """Load the model for scoring; its files are downloaded if they are not on this machine."""
        card = self.card
        if card.remote_code and not self.remote_code:
            raise SpecError(f"{card.id} runs Python code of its own; add remote_code=true if you trust it")
        require_extra("torch", "torch", "transformers", "safetensors")
        build, inputs, device, budget = self._open(task)
        # The cache is shared with the encoders: a retriever of billions of weights must not stay beside a reranker.
        judge: PairModel = MODEL_CACHE.take(
            (build, card.answers, self.backend, device),
            build.size,
            lambda: (
                TorchPairModel(build, inputs.tokenizer, card.answers, device)
                if self.backend == "torch"
                else OnnxPairModel(build, inputs.tokenizer, card.answers, self.weights())
            ),
        )
        check_limit(card.id, card.max_length, judge.positions)
        inputs.tokenizer.pad = judge.pad

        def score(rows: Sequence[PairInput]) -> Columns:
            return scores_of(judge.columns(inputs.padded(rows)), card.head, card.id)

        return Scoring(inputs, score, budget)

    def _open(self, task: Task) -> tuple[Build, Inputs, str, int]:
        """Return the parts of the model, the inputs, its device and the tokens of a batch; no weights are loaded."""
        adapter = str(self.adapter_source.adapter_folder()) if self.adapter_source else ""
        remote_code = self.card.remote_code
        build = Build(str(self.source.folder()), dtype=self.card.dtype, remote_code=remote_code, adapter=adapter)
        tokenizer = pretrained_tokenizer(Path(build.folder), append_eos=False, remote_code=remote_code)
        device = "cpu" if self.backend == "onnx" else find_devices(self.device)[0]
        budget = self.batch_tokens or (_PROCESSOR_TOKENS if device == "cpu" else _DEVICE_TOKENS)
        return build, Inputs(tokenizer, self.format(task)), device, budget


def _version(source: ModelSource, strict: bool) -> str:
    try:
        return source.version
    except R2medError:
        if strict:
            raise
        return source.revision
