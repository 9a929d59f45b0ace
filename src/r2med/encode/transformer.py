"""Transformers run by torch: on a processor, a GPU, or several GPUs with a process for each.

The poolings are small functions of the hidden states and a mask. They are traced when a model is exported, so they have
no branch on a tensor's content.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from r2med.encode.cards import SPARSE_POOLINGS, EncoderCard
from r2med.encode.encoder import Prompts, Role, Vectors
from r2med.encode.loading import (
    Build,
    accepted,
    inference,
    load_autoencoder,
    load_dense,
    load_transformer,
    positions_of,
)
from r2med.encode.local import ModelEncoder
from r2med.encode.workers import Pool
from r2med.errors import R2medError, require_extra
from r2med.models.memory import MODEL_CACHE, Closable, find_devices, release_memory
from r2med.models.tokenizer import Style, Tokenizer, check_limit, pretrained_tokenizer
from r2med.pipeline.stage import Requirements

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from r2med.models.tokenizer import Padded

_PROCESSOR_TOKENS = 4096  # larger batches do not fit the caches of a processor and are slower, not faster
_DEVICE_TOKENS = 16_384
_SEVERAL_BYTES = 1 << 30  # starting a process takes longer than encoding a task with a model below this


class TorchEncoder(ModelEncoder):
    """An encoder of a card, run by torch."""

    def __init__(self, card: EncoderCard, prompts: Prompts, device: str | Sequence[str] = "auto") -> None:
        super().__init__(card, prompts)
        self.device = device
        self._tokenizers: dict[Build, Tokenizer] = {}

    @property
    def requirements(self) -> Requirements:
        """Return the extra, the repositories on the hub, and a GPU for models of billions of weights."""
        remote = [source.name for source in (*self.sources.values(), self.adapter) if source and source.place is None]
        extra = "torch,lora" if self.card.adapter else "torch"
        return Requirements(extra=extra, hub=tuple(dict.fromkeys(remote)), gpu=self.card.needs_gpu)

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """Return the devices of the model, a process for each. A small model gains nothing from a second GPU."""
        found = find_devices(self.device)
        return found[:1] if self.device == "auto" and self._builds[Role.DOCUMENT].size < _SEVERAL_BYTES else found

    @property
    def batch_tokens(self) -> int:
        """Return few tokens for a processor and many for a GPU, times the number of devices."""
        return len(self.devices) * (_PROCESSOR_TOKENS if self.devices[0] == "cpu" else _DEVICE_TOKENS)

    def build(self, role: Role) -> Build:
        """Return the build of a role. The files are downloaded if they are not on this machine."""
        card = self.card
        return Build(
            folder=str(self.sources[role].folder()),
            subfolder=(card.query_subfolder if role is Role.QUERY else "") or card.subfolder,
            pooling=card.pooling,
            attention=card.attention,
            normalize=card.normalize,
            append_eos=card.append_eos,
            padding=card.padding,
            dense=card.dense,
            dtype=card.dtype,
            remote_code=card.remote_code,
            adapter=str(self.adapter.adapter_folder()) if self.adapter else "",
            head="fill-mask" if card.pooling in SPARSE_POOLINGS else "",
            autoencoder=card.autoencoder,
            max_terms=card.max_terms if card.autoencoder else 0,
        )

    def load(self) -> None:
        """Load the document side; a second model for queries is loaded with the first query."""
        self._runner(Role.DOCUMENT)

    def _runner(self, role: Role) -> Runner:
        require_extra("torch", "torch", "transformers", "safetensors")
        build, devices = self._builds[role], self.devices
        return MODEL_CACHE.take((build, devices), build.size * len(devices), lambda: _start(build, devices))

    @cached_property
    def _builds(self) -> dict[Role, Build]:
        return {role: self.build(role) for role in Role}

    def tokenizer(self, role: Role) -> Tokenizer:
        """Return the tokenizer; it is read once, even if the model itself is in other processes."""
        build = self._builds[role]
        if build not in self._tokenizers:
            require_extra("torch", "torch", "transformers")
            self._tokenizers[build] = pretrained_tokenizer(
                build.transformer, append_eos=build.append_eos, remote_code=build.remote_code
            )
        return self._tokenizers[build]

    def encode(self, texts: Sequence[str], role: Role) -> Vectors:
        """Encode one batch, a share on every device."""
        return self._runner(role).run(texts, self.style(role))

    def with_prompts(self, prompts: Prompts) -> TorchEncoder:
        """Return an encoder of the same model with other prompts; the loaded model is shared."""
        return TorchEncoder(self.card, prompts, self.device)


def _start(build: Build, devices: tuple[str, ...]) -> Runner:
    if len(devices) == 1:
        return LoadedEncoder(build, devices[0])
    return Pool(build, devices)


class Runner(Closable, Protocol):
    """A model that turns texts into vectors: in this process, or in several child processes."""

    def run(self, texts: Sequence[str], style: Style) -> Vectors:
        """Encode one batch."""


class LoadedEncoder:
    """A transformer with its pooling and later layers, on one device."""

    def __init__(self, build: Build, device: str) -> None:
        import torch

        self.build = build
        self.device = torch.device(device)
        self.model = load_transformer(build).to(self.device)
        self.takes = accepted(self.model)
        self.positions = positions_of(self.model)
        self.dense = [layer.to(self.device) for layer in load_dense(build)]
        self.sparsify = load_autoencoder(build) if build.autoencoder else None

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Load the model's tokenizer; not used by a model whose code has its own `encode`."""
        return pretrained_tokenizer(
            self.build.transformer, append_eos=self.build.append_eos, remote_code=self.build.remote_code
        )

    def close(self) -> None:
        """Release the weights."""
        del self.model, self.dense
        release_memory()

    def run(self, texts: Sequence[str], style: Style) -> Vectors:
        """Encode a batch; raise `MemoryError` if memory runs out, whatever the device."""
        import torch

        with inference(self.build, self.device):
            vectors = self._own(texts, style) if self.build.pooling == "own" else self._pooled(texts, style)
            if self.build.normalize:
                vectors = torch.nn.functional.normalize(vectors, dim=-1)
            if self.sparsify is not None:
                vectors = self.sparsify(vectors)
            found: Vectors = np.ascontiguousarray(vectors.cpu().numpy())
        return found

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
        output = self.model(**self._inputs(batch))
        hidden = (output.logits if self.build.head else output.last_hidden_state).float()
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


def both_ways(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Build a mask with four axes, by which every token attends to every token that is not padding."""
    import torch

    return (1 - mask[:, None, None, :]).to(dtype) * torch.finfo(dtype).min


def _without_prompt(mask: np.ndarray[Any, np.dtype[np.int64]], prompt: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the mask of the tokens that are pooled: all but the first `prompt` of each row."""
    if not prompt:
        return mask
    return np.where(mask.cumsum(axis=1) > prompt, mask, 0)


def first_token(hidden: Tensor, mask: Tensor) -> Tensor:
    """Return the vector of the first token that counts, on whichever side the padding is."""
    return _take(hidden, mask.to(hidden.dtype).argmax(dim=1))


def last_token(hidden: Tensor, mask: Tensor) -> Tensor:
    """Return the vector of the last token that counts."""
    width = mask.shape[1]
    return _take(hidden, width - 1 - mask.flip(1).to(hidden.dtype).argmax(dim=1))


def mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over the tokens that count."""
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1)


def maximum(hidden: Tensor, mask: Tensor) -> Tensor:
    """Return the largest value of each dimension over the tokens that count."""
    return hidden.masked_fill(mask.unsqueeze(-1) == 0, float("-inf")).amax(dim=1)


def weighted_mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """Return the mean with weights that grow with the token's position among those that count: 1, 2, 3, ..."""
    positions = mask.cumsum(dim=1) * mask
    weights = positions.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1)


def splade(logits: Tensor, mask: Tensor, *, log_twice: bool = False, total: bool = False) -> Tensor:
    """Return a weight per term from each token's logits over the vocabulary: max or sum of log(1 + relu)."""
    found = (logits * mask.unsqueeze(-1).to(logits.dtype)).relu_().log1p_()
    if log_twice:
        found = found.log1p_()
    return found.sum(dim=1) if total else found.amax(dim=1)


def _take(hidden: Tensor, places: Tensor) -> Tensor:
    """Gather the vector at one place of each row."""
    index = places.reshape(-1, 1, 1).expand(-1, 1, hidden.shape[-1])
    return hidden.gather(1, index).squeeze(1)


FUNCTIONS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cls": first_token,
    "last": last_token,
    "mean": mean,
    "max": maximum,
    "weighted": weighted_mean,
    "splade": splade,
    "splade-sum": partial(splade, total=True),
    "splade-log": partial(splade, log_twice=True),
    "splade-log-sum": partial(splade, log_twice=True, total=True),
}
"""The poolings by the names that cards and specs use."""
