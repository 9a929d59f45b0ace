"""A card at work: what its scores depend on, and the model behind it, fetched, loaded and ready to score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from r2med.encode.loading import Build
from r2med.encode.sources import Source, locate
from r2med.encode.tokens import check_limit, pretrained_tokenizer
from r2med.encode.towers import SHELF
from r2med.errors import R2medError, SpecError, require_extra
from r2med.rerank.inputs import Format, Inputs, Row
from r2med.rerank.judges import Columns, Judge, TorchJudge, scores_of, weights_size
from r2med.rerank.scoring import Scoring

if TYPE_CHECKING:
    from r2med.data.tasks import Task
    from r2med.encode.tokens import Tokenizer
    from r2med.rerank.cards import Card

_PROCESSOR_TOKENS = 1024  # more at once do not fit the processor's caches and are slower, not faster
_DEVICE_TOKENS = 32_768


@dataclass(frozen=True)
class PairModel:
    """A cross-encoder of a card."""

    card: Card
    truncate: str = "document"
    backend: str = "torch"
    device: str = "auto"
    remote_code: bool = False
    """Whether the user lets code of the repository run."""

    @cached_property
    def source(self) -> Source:
        """Where the model's files are."""
        return locate(self.card.id, self.card.revision)

    @cached_property
    def adapter(self) -> Source | None:
        """Where the adapter's files are, for a model that has one."""
        return locate(self.card.adapter, self.card.adapter_revision) if self.card.adapter else None

    def settings(self, task: Task | None = None) -> dict[str, object]:
        """Everything that a score depends on besides the two texts: the key under which scores are kept.

        Without a task, the same before anything is known of it: what a plan and a result's key are made of. A branch
        whose commit cannot be asked for now is then named itself.
        """
        card = self.card
        found = self.weights(strict=task is not None) | {
            "head": card.head,
            "max_length": card.max_length,
            "truncate": self.truncate,
        }
        if not card.pieces:
            return found | {"query": card.query, "document": card.document}
        found |= {"pieces": list(card.pieces)}
        if "{instruction}" in "".join(card.pieces):
            found["instruction"] = card.instruction.render(task) if task else card.instruction.text
        return found

    def weights(self, *, strict: bool = True) -> dict[str, object]:
        """What the loaded model depends on."""
        found: dict[str, object] = {
            "model": self.source.label,
            "revision": _version(self.source, strict),
            "backend": self.backend,
            "dtype": self.card.dtype,
            "answers": list(self.card.answers),
            "remote_code": self.card.remote_code,
        }
        if self.adapter:
            found["adapter"] = f"{self.adapter.label} {_version(self.adapter, strict)}"
        return found

    def format(self, task: Task) -> Format:
        """How a pair is put before the model for a task."""
        card = self.card
        instruction = card.instruction.render(task)
        pieces = tuple(piece.replace("{instruction}", instruction) for piece in card.pieces)
        return Format(card.query, card.document, pieces, card.max_length, self.truncate)

    def scoring(self, task: Task, batch_tokens: int | None = None) -> Scoring:
        """The model, ready to score; its files are fetched when they are not here yet."""
        card = self.card
        if card.remote_code and not self.remote_code:
            raise SpecError(f"{card.id} runs Python code of its own; add remote_code=true if you trust it")
        require_extra("torch", "torch", "transformers", "safetensors")
        build, device = self._build(), self._device()
        tokenizer = pretrained_tokenizer(Path(build.folder), append_eos=False, remote_code=build.remote_code)
        # The shelf is shared with the encoders: a retriever of billions of weights must not stay beside a reranker.
        judge: Judge = SHELF.take(
            (build, card.answers, self.backend, device),
            weights_size(build),
            lambda: self._judge(build, tokenizer, device),
        )
        check_limit(card.id, card.max_length, judge.positions)
        tokenizer.pad = judge.pad
        inputs = Inputs(tokenizer, self.format(task))

        def score(rows: Sequence[Row]) -> Columns:
            return scores_of(judge.columns(inputs.padded(rows)), card.head, card.id)

        return Scoring(inputs, score, batch_tokens or (_PROCESSOR_TOKENS if device == "cpu" else _DEVICE_TOKENS))

    def _judge(self, build: Build, tokenizer: Tokenizer, device: str) -> Judge:
        if self.backend == "torch":
            return TorchJudge(build, tokenizer, self.card.answers, device)
        from r2med.rerank.onnx_judge import OnnxJudge

        return OnnxJudge(build, tokenizer, self.card.answers, self.weights())

    def _device(self) -> str:
        if self.backend == "onnx":
            return "cpu"
        from r2med.encode.torch_backend import find_devices

        return find_devices(self.device)[0]

    def _build(self) -> Build:
        return Build(
            folder=str(self.source.folder()),
            dtype=self.card.dtype,
            remote_code=self.card.remote_code,
            adapter=str(self.adapter.adapter_folder()) if self.adapter else "",
        )


def _version(source: Source, strict: bool) -> str:
    try:
        return source.version
    except R2medError:
        if strict:
            raise
        return source.revision
