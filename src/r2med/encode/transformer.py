"""Transformers as encoders: the settings of a card, and torch on a processor, a GPU, or several with a process each.

The tokens are ours, so that truncated texts are counted; what follows the transformer is sentence-transformers'.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from r2med.encode.cards import SPARSE_POOLINGS, EncoderCard
from r2med.encode.encoder import Encoder, Prompts, Role, Vectors
from r2med.encode.loading import Build, accepted, inference, load_head, load_transformer, positions_of
from r2med.encode.workers import Pool
from r2med.errors import R2medError, require_extra
from r2med.models.memory import MODEL_CACHE, find_devices, release_memory, tokens_of
from r2med.models.source import ModelSource, locate
from r2med.models.tokenizer import Padded, Style, Tokenizer, check_limit
from r2med.pipeline.stage import Requirements

if TYPE_CHECKING:
    import torch

_SEVERAL_BYTES = 1 << 30  # starting a process takes longer than encoding a task with a model below this


class ModelEncoder(Encoder):
    """An encoder of a card, with its prompts for one task, whatever runs it."""

    def __init__(self, card: EncoderCard, prompts: Prompts) -> None:
        self.card, self.prompts = card, prompts
        self.sparse, self.similarity = card.sparse, card.similarity

    @cached_property
    def sources(self) -> Mapping[Role, ModelSource]:
        """Return the location of the files of each role's model; mostly the same for both."""
        document = locate(self.card.id, self.card.revision, self.card.package)
        query = locate(self.card.query_id, self.card.query_revision) if self.card.query_id else document
        return {Role.QUERY: query, Role.DOCUMENT: document}

    @cached_property
    def adapter(self) -> ModelSource | None:
        """Return the location of the adapter's files, or None for a model without an adapter."""
        return locate(self.card.adapter, self.card.adapter_revision) if self.card.adapter else None

    def local_content(self) -> dict[str, str]:
        """Return the folders of models and adapters that are not from the hub."""
        sources = [*self.sources.values(), *([self.adapter] if self.adapter else [])]
        return {place: digest for source in sources for place, digest in source.local_content().items()}

    def style(self, role: Role) -> Style:
        """Return the options of tokenization of a role."""
        card, is_query = self.card, role is Role.QUERY
        prompt, limit, bare = self.prompts.of(role), self.limit(role), bool(card.query_table) and is_query
        return Style(prompt, limit, card.pair and not is_query, card.exclude_prompt, card.lowercase, bare)

    def subfolder(self, role: Role) -> str:
        """Return where in its repository the transformer of a role lies."""
        return (self.card.query_subfolder if role is Role.QUERY else "") or self.card.subfolder

    def settings(self, role: Role) -> Mapping[str, object]:
        """Return all settings of the card that a vector depends on, with the commit or content hash of the files."""
        card, source = self.card, self.sources[role]
        settings: dict[str, object] = {
            "model": source.label,
            "revision": source.version,
            "backend": card.backend,
            "role": role.value,
            "prompt": self.prompts.of(role),
            "max_length": self.limit(role),
            "pooling": card.pooling,
            "normalize": card.normalize,
            "dtype": card.dtype,
            "remote_code": card.remote_code,
        }
        # What most models do not have is left out, so that a later field does not change the key of all others.
        rare = {
            "attention": card.attention,
            "exclude_prompt": card.exclude_prompt,
            "append_eos": card.append_eos,
            "pair": self.style(role).pair,
            "lowercase": card.lowercase,
            "padding": card.padding if card.padding != "right" else "",
            "dense": list(card.dense),
            "subfolder": self.subfolder(role),
            "max_terms": card.max_terms,
            "autoencoder": card.autoencoder,
            "table": card.query_table if role is Role.QUERY else "",
            "adapter": f"{self.adapter.label} {self.adapter.version}" if self.adapter else "",
        }
        return settings | {name: value for name, value in rare.items() if value}

    def limit(self, role: Role) -> int:
        """Return the maximum length of the card for a role."""
        return self.card.max_query if role is Role.QUERY else self.card.max_document

    def prompted(self, text: str, role: Role) -> str:
        """Return the text after its prompt."""
        return self.style(role).prompted(text)

    def lengths(self, texts: Sequence[str], role: Role) -> NDArray[np.int64]:
        """Count tokens with the model's own tokenizer."""
        return self.tokenizer(role).lengths(texts, self.style(role))

    @abstractmethod
    def tokenizer(self, role: Role) -> Tokenizer:
        """Return the tokenizer of a role's model."""

    def for_passages(self) -> Encoder:
        """Return the encoder without the query's prompt, unless the card says that passages get it too."""
        return self if self.card.prompt_passages else super().for_passages()


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
        small = self.device == "auto" and self._builds[Role.DOCUMENT].size < _SEVERAL_BYTES
        return find_devices(self.device)[: 1 if small else None]

    @property
    def batch_tokens(self) -> int:
        """Return few tokens for a processor and many for a GPU, times the number of devices."""
        return len(self.devices) * tokens_of(self.devices[0])

    def build(self, role: Role) -> Build:
        """Return the build of a role. The files are downloaded if they are not on this machine."""
        folder = str(self.sources[role].folder())
        adapter = str(self.adapter.adapter_folder()) if self.adapter else ""
        terms = self.card.max_terms if self.card.autoencoder else 0
        return Build.of(self.card, folder=folder, subfolder=self.subfolder(role), adapter=adapter, max_terms=terms)

    def load(self) -> None:
        """Load the document side; a second model for queries is loaded with the first query."""
        self._runner(Role.DOCUMENT)

    def _runner(self, role: Role) -> LoadedEncoder | Pool:
        require_extra("torch", "torch", "transformers", "safetensors", "sentence_transformers")
        build, devices = self._builds[role], self.devices

        def start() -> LoadedEncoder | Pool:
            return LoadedEncoder(build, devices[0]) if len(devices) == 1 else Pool(build, devices)

        return MODEL_CACHE.take((build, devices), build.size * len(devices), start)

    @cached_property
    def _builds(self) -> dict[Role, Build]:
        return {role: self.build(role) for role in Role}

    def tokenizer(self, role: Role) -> Tokenizer:
        """Return the tokenizer; it is read once, even if the model itself is in other processes."""
        build = self._builds[role]
        if build not in self._tokenizers:
            require_extra("torch", "torch", "transformers")
            self._tokenizers[build] = build.tokenizer()
        return self._tokenizers[build]

    def encode(self, texts: Sequence[str], role: Role) -> Vectors:
        """Encode one batch, a share on every device."""
        return self._runner(role).run(texts, self.style(role))


class LoadedEncoder:
    """A transformer with what follows it, on one device."""

    def __init__(self, build: Build, device: str) -> None:
        import torch

        self.build, self.device = build, torch.device(device)
        self.model = load_transformer(build).to(self.device)
        self.takes, self.positions = accepted(self.model), positions_of(self.model)
        self.head = load_head(build).to(self.device)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Load the model's tokenizer; not used by a model whose code has its own `encode`."""
        return self.build.tokenizer()

    def close(self) -> None:
        """Release the weights."""
        del self.model, self.head
        release_memory()

    def run(self, texts: Sequence[str], style: Style) -> Vectors:
        """Encode a batch; raise `MemoryError` if memory runs out, whatever the device."""
        with inference(self.build, self.device):
            if self.build.pooling != "own":
                features = self._tokens(texts, style)
            elif encode := getattr(self.model, "encode", None):
                rows = encode(list(texts), instruction=style.prompt, max_length=style.limit)
                features = {"sentence_embedding": rows.float()}
            else:
                raise R2medError(f"{self.build.folder}: pooling=own, but the model's code has no encode method")
            vectors: Vectors = np.ascontiguousarray(self.head(features)["sentence_embedding"].cpu().numpy())
        return vectors

    def run_tokens(self, batch: Padded) -> Vectors:
        """Return a vector for every token of a batch of a late-interaction model, padding included."""
        with inference(self.build, self.device):
            features = {"token_embeddings": self._output(batch).last_hidden_state.float()}
            vectors: Vectors = self.head(features)["token_embeddings"].cpu().numpy()
        return vectors

    def _tokens(self, texts: Sequence[str], style: Style) -> dict[str, torch.Tensor]:
        """Return the vectors of tokens, or for SPLADE their logits, with a mask of those that are pooled."""
        import torch

        check_limit(self.build.folder, style.limit, self.positions)
        batch = self.tokenizer.padded(texts, style, self.build.padding)
        output, mask = self._output(batch), torch.from_numpy(batch.mask).to(self.device)
        tokens = output.logits if self.build.pooling in SPARSE_POOLINGS else output.last_hidden_state
        prompt = self.tokenizer.prompt_length(style)
        return {"token_embeddings": tokens.float(), "attention_mask": mask * (mask.cumsum(dim=1) > prompt)}

    def _output(self, batch: Padded) -> Any:
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
        return self.model(**inputs)


def both_ways(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Build a mask with four axes, by which every token attends to every token that is not padding."""
    import torch

    return (1 - mask[:, None, None, :]).to(dtype) * torch.finfo(dtype).min
