"""A loaded model with its tokenizer: texts in, vectors out; and the shelf where models wait for the next task."""

from __future__ import annotations

import atexit
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from r2med.encode.base import Vectors
from r2med.encode.loading import Build, accepted, load_dense, load_transformer
from r2med.encode.pooling import FUNCTIONS
from r2med.encode.tokens import Style, check_limit, pretrained_tokenizer
from r2med.errors import R2medError

if TYPE_CHECKING:
    import torch

    from r2med.encode.tokens import Padded, Tokenizer


class Closable(Protocol):
    """Whatever holds memory: an encoder's model, or a reranker's."""

    def close(self) -> None:
        """Give back the memory."""


class Runner(Closable, Protocol):
    """Whatever turns texts into vectors: a model in this process, or several in processes of their own."""

    def run(self, texts: Sequence[str], style: Style) -> Vectors:
        """One batch."""


class Tower:
    """A transformer, its pooling and what follows, on one device."""

    def __init__(self, build: Build, device: str) -> None:
        import torch

        self.build = build
        self.device = torch.device(device)
        self.model = load_transformer(build).to(self.device)
        self.takes = accepted(self.model)
        self.positions = positions_of(self.model)
        self.dense = [layer.to(self.device) for layer in load_dense(build)]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer; a model with an `encode` of its own has its own."""
        return pretrained_tokenizer(
            self.build.transformer, append_eos=self.build.append_eos, remote_code=self.build.remote_code
        )

    def close(self) -> None:
        """Let the weights go."""
        from r2med.encode.loop import release_memory

        del self.model, self.dense
        release_memory()

    def run(self, texts: Sequence[str], style: Style) -> Vectors:
        """The vectors of a batch. Memory that runs out is reported as `MemoryError`, whatever the device."""
        import torch

        try:
            with torch.inference_mode():
                vectors = self._own(texts, style) if self.build.pooling == "own" else self._pooled(texts, style)
                if self.build.normalize:
                    vectors = torch.nn.functional.normalize(vectors, dim=-1)
                return np.ascontiguousarray(vectors.cpu().numpy())
        except torch.OutOfMemoryError as error:
            raise MemoryError(f"{self.device} is full") from error

    def _own(self, texts: Sequence[str], style: Style) -> torch.Tensor:
        encode = getattr(self.model, "encode", None)
        if encode is None:
            raise R2medError(f"{self.build.folder}: pooling=own, but the model's code has no encode method")
        vectors: torch.Tensor = encode(list(texts), instruction=style.prompt, max_length=style.limit)
        return vectors.float()

    def _pooled(self, texts: Sequence[str], style: Style) -> torch.Tensor:
        import torch

        check_limit(self.build.folder, style.limit, self.positions)
        batch = self.tokenizer.padded(texts, style, self.build.padding)
        counted = torch.from_numpy(_without_prompt(batch.mask, self.tokenizer.prompt_length(style))).to(self.device)
        hidden = self.model(**self._inputs(batch)).last_hidden_state.float()
        vectors = FUNCTIONS[self.build.pooling](hidden, counted)
        for layer in self.dense:
            vectors = layer(vectors)
        return vectors

    def _inputs(self, batch: Padded) -> dict[str, Any]:
        import torch

        mask = torch.from_numpy(batch.mask).to(self.device)
        inputs: dict[str, Any] = {"input_ids": torch.from_numpy(batch.ids).to(self.device), "attention_mask": mask}
        if batch.types.any() and "token_type_ids" in self.takes:
            inputs["token_type_ids"] = torch.from_numpy(batch.types).to(self.device)
        if "use_cache" in self.takes:
            inputs["use_cache"] = False
        if self.build.padding == "left" and "position_ids" in self.takes:
            inputs["position_ids"] = (mask.cumsum(dim=1) - 1).clamp(min=0)
        if self.build.attention == "bidirectional":
            inputs["attention_mask"] = both_ways(mask, next(self.model.parameters()).dtype)
        return inputs


def positions_of(model: Any) -> int:
    """The tokens that a model with a table of positions can read; 0 for one that has no table."""
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    if table is None or not hasattr(table, "num_embeddings"):
        return 0
    # RoBERTa's positions start after the padding's.
    first = 0 if table.padding_idx is None else table.padding_idx + 1
    return int(table.num_embeddings) - first


def both_ways(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A mask with four axes, which transformers takes as it is: every token sees every token that is no padding."""
    import torch

    return (1 - mask[:, None, None, :]).to(dtype) * torch.finfo(dtype).min


def _without_prompt(mask: np.ndarray[Any, np.dtype[np.int64]], prompt: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The mask of the tokens that are pooled: all but the first `prompt` of each row."""
    if not prompt:
        return mask
    return np.where(mask.cumsum(axis=1) > prompt, mask, 0)


Loaded = TypeVar("Loaded", bound=Closable)


class Shelf:
    """Loaded models by what they were built from, so that the next task finds them; the oldest make room."""

    def __init__(self, limit: int = 20 << 30) -> None:
        self.limit = limit
        """The bytes of weights that may be in memory at a time; a larger model may be there alone."""
        self._loaded: OrderedDict[object, tuple[Any, int]] = OrderedDict()

    def take(self, key: object, size: int, load: Callable[[], Loaded]) -> Loaded:
        """The model of a key, loaded when it is not here; others go before so that it fits."""
        if key not in self._loaded:
            while self._loaded and sum(other for _, other in self._loaded.values()) + size > self.limit:
                self._loaded.popitem(last=False)[1][0].close()
            self._loaded[key] = load(), size
        self._loaded.move_to_end(key)
        found: Loaded = self._loaded[key][0]
        return found

    def clear(self) -> None:
        """Let every model go."""
        while self._loaded:
            self._loaded.popitem()[1][0].close()


SHELF = Shelf()
"""The models of this process."""
atexit.register(SHELF.clear)
