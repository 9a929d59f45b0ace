"""Transformers run by torch: on a processor, a GPU, or several GPUs with a process for each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from r2med.encode.base import Role, Vectors
from r2med.encode.cards import Card
from r2med.encode.loading import Build
from r2med.encode.model import ModelEncoder
from r2med.encode.prompts import Prompts
from r2med.encode.tokens import Tokenizer, pretrained_tokenizer
from r2med.encode.towers import SHELF, Runner, Tower
from r2med.errors import R2medError, require_extra
from r2med.stage import Requirements

_PROCESSOR_TOKENS = 4096  # larger batches do not fit the caches of a processor and are slower, not faster
_DEVICE_TOKENS = 16_384
_SEVERAL_BYTES = 1 << 30  # starting a process takes longer than encoding a task with a model below this


class TorchEncoder(ModelEncoder):
    """A model of a card, run by torch."""

    def __init__(self, card: Card, prompts: Prompts, device: str | Sequence[str] = "auto") -> None:
        super().__init__(card, prompts)
        self.device = device
        self._tokenizers: dict[Build, Tokenizer] = {}

    @property
    def requirements(self) -> Requirements:
        """The extra, what the hub is asked for, and a GPU for models of billions of weights."""
        remote = [source.name for source in (*self.sources.values(), self.adapter) if source and source.place is None]
        extra = "torch,lora" if self.card.adapter else "torch"
        return Requirements(extra=extra, hub=tuple(dict.fromkeys(remote)), gpu=self.card.needs_gpu)

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """Where the model runs, a process for each. A small model gains nothing from a second GPU by itself."""
        found = find_devices(self.device)
        return found[:1] if self.device == "auto" and self._builds[Role.DOCUMENT].size < _SEVERAL_BYTES else found

    @property
    def batch_tokens(self) -> int:
        """Few tokens at a time on a processor, many on a GPU, and as many times that as there are devices."""
        return len(self.devices) * (_PROCESSOR_TOKENS if self.devices[0] == "cpu" else _DEVICE_TOKENS)

    def build(self, role: Role) -> Build:
        """What is loaded for a role. The files are fetched when they are not here yet."""
        card = self.card
        return Build(
            folder=str(self.sources[role].folder()),
            subfolder=card.subfolder,
            pooling=card.pooling,
            attention=card.attention,
            normalize=card.normalize,
            append_eos=card.append_eos,
            padding=card.padding,
            dense=card.dense,
            dtype=card.dtype,
            remote_code=card.remote_code,
            adapter=str(self.adapter.adapter_folder()) if self.adapter else "",
        )

    def load(self) -> None:
        """Load the document side; a second model for queries is loaded when the first query comes."""
        self._runner(Role.DOCUMENT)

    def _runner(self, role: Role) -> Runner:
        require_extra("torch", "torch", "transformers", "safetensors")
        build, devices = self._builds[role], self.devices
        return SHELF.take((build, devices), build.size * len(devices), lambda: _start(build, devices))

    @cached_property
    def _builds(self) -> dict[Role, Build]:
        return {role: self.build(role) for role in Role}

    def tokenizer(self, role: Role) -> Tokenizer:
        """Read once, also when the model itself is in other processes."""
        build = self._builds[role]
        if build not in self._tokenizers:
            require_extra("torch", "torch", "transformers")
            self._tokenizers[build] = pretrained_tokenizer(
                build.transformer, append_eos=build.append_eos, remote_code=build.remote_code
            )
        return self._tokenizers[build]

    def encode(self, texts: Sequence[str], role: Role) -> Vectors:
        """One batch, on every device a share."""
        return self._runner(role).run(texts, self.style(role))

    def with_prompts(self, prompts: Prompts) -> TorchEncoder:
        """The same model with other prompts; what is loaded is shared."""
        return TorchEncoder(self.card, prompts, self.device)


def _start(build: Build, devices: tuple[str, ...]) -> Runner:
    if len(devices) == 1:
        return Tower(build, devices[0])
    from r2med.encode.workers import Pool

    return Pool(build, devices)


def find_devices(wanted: str | Sequence[str]) -> tuple[str, ...]:
    """The devices behind a name: `auto` is every GPU there is, or else the processor; a list names several."""
    require_extra("torch", "torch")
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "auto":
        if gpus:
            return tuple(f"cuda:{place}" for place in range(gpus))
        return ("mps",) if torch.backends.mps.is_available() else ("cpu",)
    names = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    there = {"cpu", *(["mps"] if torch.backends.mps.is_available() else [])}
    there |= {f"cuda:{place}" for place in range(gpus)} | ({"cuda"} if gpus else set())
    for name in names:
        if name not in there:
            raise R2medError(f"device {name!r} is not here; this machine has {', '.join(sorted(there))}")
    if not names:
        raise R2medError("an empty list of devices")
    return names
