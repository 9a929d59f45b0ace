"""Models that score pairs, run on a batch of tokens by torch or by ONNX Runtime on the processor.

A model gives a few numbers for a pair, its columns: the logits of a classification head, or those of a language model
for the tokens that it may answer with. A head makes a score of them. Every weight is checked when a model is loaded; an
ONNX file is exported from the torch model once, compared with it, and cached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from numpy.typing import NDArray

from r2med.encode.loading import Build, accepted, load_errors, load_pretrained, positions_of, quietly
from r2med.encode.onnx import CHECKED, compared, example_tokens, export_graph
from r2med.errors import R2medError, require_extra
from r2med.models.tokenizer import Padded
from r2med.store.cache import Cache
from r2med.store.hashes import cache_key

if TYPE_CHECKING:
    import torch

    from r2med.models.tokenizer import Tokenizer

Columns = NDArray[np.float32]  # one row per pair
HEADS: Mapping[str, tuple[int, Callable[[Columns], Columns]]] = {
    "one": (1, lambda columns: columns[:, 0]),
    "second": (2, lambda columns: columns[:, 1]),
    # The log odds, of which a softmax would make a probability.
    "margin": (2, lambda columns: columns[:, 1] - columns[:, 0]),
}
"""How columns become a score, and how many there must be, by the names that cards and specs use."""
_CLASSIFIERS = ("score", "classifier")  # what classification heads are called
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_AGREEMENT = 1e-3


def scores_of(columns: Columns, head: str, model: str) -> Columns:
    """Return a score for each row; `auto` takes the one logit or the second of two."""
    width = columns.shape[1]
    if head == "auto":
        if width > 2:
            raise R2medError(f"{model} has {width} logits for a pair; a cross-encoder has one or two")
        head = "one" if width == 1 else "second"
    needed, function = HEADS[head]
    if width != needed:
        raise R2medError(f"{model} has {width} logits for a pair, and the head {head!r} takes {needed}")
    return function(columns)


class TorchPairModel:
    """A model on one device: its padding token, and the tokens it has places for; 0 for any number."""

    def __init__(self, build: Build, tokenizer: Tokenizer, answers: tuple[str, ...], device: str) -> None:
        import torch

        self.device = torch.device(device)
        self.network, self.pad, self.positions = load_network(build, tokenizer, answers)
        self.network.to(self.device)

    def columns(self, batch: Padded) -> Columns:
        """Return the columns of one batch; raise `MemoryError` if memory runs out, whatever the device."""
        import torch

        try:
            with torch.inference_mode():
                tensors = [torch.from_numpy(array).to(self.device) for array in batch]
                columns: Columns = self.network(*tensors).float().cpu().numpy()
                return columns
        except torch.OutOfMemoryError as error:
            raise MemoryError(f"{self.device} is full") from error

    def close(self) -> None:
        """Release the weights."""
        del self.network


def load_network(
    build: Build, tokenizer: Tokenizer, answers: tuple[str, ...], *, eager: bool = False
) -> tuple[torch.nn.Module, int, int]:
    """Load the module from token ids, their mask and their types to columns, its padding token and its positions."""
    model: Any = load_pair_model(build, causal=bool(answers), eager=eager)
    if getattr(model.config, "pad_token_id", None) is None:
        # A classifier over a language model finds the end of a text by it.
        model.config.pad_token_id = tokenizer.pad
    positions = positions_of(getattr(model, str(model.base_model_prefix), model))
    tokens = [tokenizer.backend.encode(answer, add_special_tokens=False).ids for answer in answers]
    for answer, ids in zip(answers, tokens, strict=True):
        if len(ids) != 1:
            raise R2medError(f"{build.folder}: the answer {answer!r} is {len(ids)} tokens, not one")
    return _network(model, [ids[0] for ids in tokens]), int(model.config.pad_token_id), positions


def _network(model: Any, answers: list[int]) -> torch.nn.Module:
    import torch

    takes = accepted(model)
    # Types are for models that have learnt more than one; others make do without, or must.
    typed = "token_type_ids" in takes and (getattr(model.config, "type_vocab_size", 0) or 0) > 1
    options: dict[str, Any] = {"use_cache": False} if "use_cache" in takes else {}

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
            inputs = {"input_ids": ids, "attention_mask": mask, **options}
            if not answers:
                logits: torch.Tensor = self.model(**inputs, **({"token_type_ids": types} if typed else {})).logits
                return logits
            places = (mask.cumsum(dim=1) - 1).clamp(min=0)
            logits = self.model(**inputs, position_ids=places, logits_to_keep=1).logits[:, -1]
            # A card names yes before no; the head wants no before yes, as two classes have it.
            return logits[:, answers[::-1]]

    return Network().eval()


def load_pair_model(build: Build, *, causal: bool, eager: bool = False) -> torch.nn.Module:
    """Load a classifier of pairs, or a language model, in evaluation mode, on the processor."""
    require_extra("torch", "torch", "transformers", "safetensors")
    adapter: Mapping[str, Any] = {}
    if build.adapter:
        require_extra("lora", "peft")
        from peft.utils import load_peft_weights

        adapter = load_peft_weights(build.adapter, device="cpu")
    # The number of logits of an adapter's classification head.
    heads = [name for name in adapter if name.endswith(".weight") and any(f".{head}." in name for head in _CLASSIFIERS)]
    labels = next((int(adapter[name].shape[0]) for name in heads if adapter[name].ndim == 2), 0)
    kind = "AutoModelForCausalLM" if causal else "AutoModelForSequenceClassification"
    model, loaded = load_pretrained(build, kind, eager=eager, **({"num_labels": labels} if labels else {}))
    in_head = {name for name in loaded["missing_keys"] if name.partition(".")[0] in _CLASSIFIERS}
    missing = [name for name in loaded["missing_keys"] if not (labels and name in in_head)]
    if missing and not build.remote_code:
        what = "a cross-encoder" if in_head.intersection(missing) else "whole"
        others = len(missing) - 1
        raise R2medError(f"{build.folder}: not {what}: {missing[0]} and {others} more weights are not in its files")
    if build.adapter:
        from peft import PeftModel

        with quietly(), load_errors(build):
            wrapped = PeftModel.from_pretrained(model, build.adapter)
        parameters = {_plain(name) for name, _ in wrapped.named_parameters()}
        if homeless := [name for name in adapter if _plain(name) not in parameters]:
            place = f"{homeless[0]} has no place in it"
            raise R2medError(f"{build.adapter}: the adapter does not fit {build.folder}: {place}")
        model = wrapped.merge_and_unload()
    ready: torch.nn.Module = model.eval().requires_grad_(False)
    return ready


def _plain(name: str) -> str:
    return name.replace(".modules_to_save", "").replace(".default", "")


class OnnxPairModel:
    """A model in an ONNX file."""

    def __init__(
        self, build: Build, tokenizer: Tokenizer, answers: tuple[str, ...], settings: Mapping[str, object]
    ) -> None:
        require_extra("onnx", "onnx", "onnxruntime")
        import onnxruntime

        key, providers = cache_key(**settings), ["CPUExecutionProvider"]
        export = partial(_export, build, tokenizer, answers)
        folder = Cache.default().sound_entry("rerank-onnx", key, export)
        self._session: Any = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=providers)
        self._takes = {tensor.name for tensor in self._session.get_inputs()}
        facts = orjson.loads((folder / "judge.json").read_bytes())
        self.pad, self.positions = int(facts["pad"]), int(facts["positions"])

    def columns(self, batch: Padded) -> Columns:
        """Return the columns of one batch."""
        feed = {name: array for name, array in zip(_INPUTS, batch, strict=True) if name in self._takes}
        columns: Columns = self._session.run(None, feed)[0].astype(np.float32, copy=False)
        return columns

    def close(self) -> None:
        """Release the runtime."""
        del self._session


PairModel = TorchPairModel | OnnxPairModel


def _export(build: Build, tokenizer: Tokenizer, answers: tuple[str, ...], folder: Path) -> None:
    network, pad, positions = load_network(build, tokenizer, answers, eager=True)
    embeddings: Any = network.model
    vocabulary = int(embeddings.get_input_embeddings().num_embeddings)

    def example(pairs: int, tokens: int) -> Sequence[NDArray[np.int64]]:
        """Make random tokens; the last pair is shorter than the others."""
        ids, mask, empty = example_tokens(vocabulary, pairs, tokens)
        ids[ids == pad] = (pad + 1) % vocabulary
        if answers:
            empty = slice(0, len(mask[-1, empty]))
        mask[-1, empty], ids[-1, empty] = 0, pad
        return [ids, mask, np.zeros_like(ids)]

    file = folder / "model.onnx"
    export_graph(build.folder, network, example(2, 7), file, _INPUTS, "columns")
    examples = [example(pairs, tokens) for tokens in CHECKED for pairs in (1, 3)]
    for expected, columns in compared(network, file, _INPUTS, examples):
        worst = float(np.abs(columns - expected).max())
        if not worst <= _AGREEMENT * max(1.0, float(np.abs(expected).max())):
            raise R2medError(f"the model cannot be exported: its logits would be off by {worst:.2g}; use backend=torch")
    (folder / "judge.json").write_bytes(orjson.dumps({"pad": pad, "positions": positions}))
