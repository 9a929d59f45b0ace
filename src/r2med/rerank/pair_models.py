"""Models that score pairs, run on a batch of tokens by torch or by ONNX Runtime on the processor.

A model gives a few numbers for a pair, its columns: the logits of a classification head, or those of a language model
for the tokens that it may answer with. A head makes a score of them. Every weight is checked when a model is loaded; an
ONNX file is exported from the torch model once, compared with it, and cached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import orjson
from numpy.typing import NDArray

from r2med.encode.loading import Build, accepted, load_errors, positions_of, quietly
from r2med.encode.onnx_export import CHECKED, compared, example_tokens, export_graph
from r2med.errors import R2medError, require_extra
from r2med.models.memory import fix_rounding
from r2med.models.tokenizer import Padded
from r2med.store.cache import Cache
from r2med.store.hashes import cache_key

if TYPE_CHECKING:
    import torch

    from r2med.models.tokenizer import Tokenizer

Columns = NDArray[np.float32]
"""One row per pair."""


def one(columns: Columns) -> Columns:
    """Return the one logit."""
    return columns[:, 0]


def second(columns: Columns) -> Columns:
    """Return the second of two logits."""
    return columns[:, 1]


def margin(columns: Columns) -> Columns:
    """Return the second logit less the first: the log odds, of which a softmax would make a probability."""
    return columns[:, 1] - columns[:, 0]


HEADS: Mapping[str, tuple[int, Callable[[Columns], Columns]]] = {
    "one": (1, one),
    "second": (2, second),
    "margin": (2, margin),
}
"""How columns become a score, and how many there must be, by the names that cards and specs use."""


def scores_of(columns: Columns, head: str, model: str) -> Columns:
    """Return a score for each row; `auto` takes the one logit or the second of two."""
    width = columns.shape[1]
    if head == "auto":
        head = {1: "one", 2: "second"}.get(width, "")
        if not head:
            raise R2medError(f"{model} has {width} logits for a pair; a cross-encoder has one or two")
    wanted, function = HEADS[head]
    if width != wanted:
        raise R2medError(f"{model} has {width} logits for a pair, and the head {head!r} takes {wanted}")
    return function(columns)


class PairModel(Protocol):
    """A model that gives columns for pairs."""

    pad: int
    """The token that fills up a shorter row."""
    positions: int
    """The tokens that the model has places for; 0 for any number."""

    def columns(self, batch: Padded) -> Columns:
        """Return the columns of one batch."""

    def close(self) -> None:
        """Release the memory."""


class TorchPairModel:
    """A model on one device."""

    def __init__(self, build: Build, tokenizer: Tokenizer, answers: tuple[str, ...], device: str) -> None:
        import torch

        self.device = torch.device(device)
        self.model: Any = load_pair_model(build, causal=bool(answers))
        self.pad = padding_of(self.model, tokenizer)
        self.positions = positions_of(getattr(self.model, str(self.model.base_model_prefix), self.model))
        self.forward = forward_of(self.model, answer_tokens(tokenizer, answers, build.folder))
        self.model.to(self.device)

    def columns(self, batch: Padded) -> Columns:
        """Return the columns of one batch; raise `MemoryError` if memory runs out, whatever the device."""
        import torch

        try:
            with torch.inference_mode():
                tensors = [torch.from_numpy(array).to(self.device) for array in batch]
                found: Columns = self.forward(*tensors).float().cpu().numpy()
                return found
        except torch.OutOfMemoryError as error:
            raise MemoryError(f"{self.device} is full") from error

    def close(self) -> None:
        """Release the weights."""
        del self.model, self.forward


def forward_of(model: Any, answers: list[int]) -> Callable[..., torch.Tensor]:
    """Build the function from token ids, their mask and their types to columns."""
    takes = accepted(model)
    # Types are for models that have learnt more than one; others make do without, or must.
    typed = "token_type_ids" in takes and (getattr(model.config, "type_vocab_size", 0) or 0) > 1
    fixed = {"use_cache": False} if "use_cache" in takes else {}

    def classify(ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        more = {"token_type_ids": types} if typed else {}
        logits: torch.Tensor = model(input_ids=ids, attention_mask=mask, **more, **fixed).logits
        return logits

    def answer(ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        places = (mask.cumsum(dim=1) - 1).clamp(min=0)
        found = model(input_ids=ids, attention_mask=mask, position_ids=places, logits_to_keep=1, **fixed)
        logits: torch.Tensor = found.logits[:, -1]
        # A card names yes before no; the head wants no before yes, as two classes have it.
        return logits[:, answers[::-1]]

    return answer if answers else classify


def answer_tokens(tokenizer: Tokenizer, answers: tuple[str, ...], model: str) -> list[int]:
    """Return the tokens that a language model may answer with."""
    found = []
    for answer in answers:
        ids = tokenizer.backend.encode(answer, add_special_tokens=False).ids
        if len(ids) != 1:
            raise R2medError(f"{model}: the answer {answer!r} is {len(ids)} tokens, not one")
        found += ids
    return found


def padding_of(model: Any, tokenizer: Tokenizer) -> int:
    """Return the token for padding; a classifier over a language model finds the end of a text by it."""
    config = model.config
    if getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = tokenizer.pad
    return int(config.pad_token_id)


def load_pair_model(build: Build, *, causal: bool, eager: bool = False) -> torch.nn.Module:
    """Load a classifier of pairs, or a language model, in evaluation mode, on the processor."""
    require_extra("torch", "torch", "transformers", "safetensors")
    fix_rounding()
    import torch
    import transformers

    kind: Any = transformers.AutoModelForCausalLM if causal else transformers.AutoModelForSequenceClassification
    options: dict[str, Any] = {"attn_implementation": "eager"} if eager else {}
    head = _adapter_head(build.adapter) if build.adapter else 0
    if head:
        options["num_labels"] = head
    with quietly(), load_errors(build):
        model, loaded = kind.from_pretrained(
            build.folder,
            dtype=getattr(torch, build.dtype),
            trust_remote_code=build.remote_code,
            output_loading_info=True,
            **options,
        )
    lost = [name for name in loaded["missing_keys"] if not (head and name.partition(".")[0] in _HEADS)]
    if lost and not build.remote_code:
        what = "a cross-encoder" if any(name.partition(".")[0] in _HEADS for name in lost) else "whole"
        raise R2medError(f"{build.folder}: not {what}: {lost[0]} and {len(lost) - 1} more weights are not in its files")
    if build.adapter:
        model = _merged(model, build)
    ready: torch.nn.Module = model.eval().requires_grad_(False)
    return ready


_HEADS = ("score", "classifier")
"""What classification heads are called."""


def _adapter_weights(adapter: str) -> Mapping[str, Any]:
    require_extra("lora", "peft")
    from peft.utils import load_peft_weights

    found: Mapping[str, Any] = load_peft_weights(adapter, device="cpu")
    return found


def _adapter_head(adapter: str) -> int:
    """Return the number of logits of an adapter's classification head; 0 for an adapter without one."""
    for name, weight in _adapter_weights(adapter).items():
        if name.endswith(".weight") and any(f".{head}." in name for head in _HEADS) and weight.ndim == 2:
            return int(weight.shape[0])
    return 0


def _merged(model: Any, build: Build) -> Any:
    """Merge the adapter into the model's weights; every weight of the adapter must have a place."""
    from peft import PeftModel

    with quietly(), load_errors(build):
        wrapped = PeftModel.from_pretrained(model, build.adapter)
    there = {_plain(name) for name, _ in wrapped.named_parameters()}
    lost = [name for name in _adapter_weights(build.adapter) if _plain(name) not in there]
    if lost:
        raise R2medError(f"{build.adapter}: the adapter does not fit {build.folder}: {lost[0]} has no place in it")
    return wrapped.merge_and_unload()


def _plain(name: str) -> str:
    """Return the name of a weight as in an adapter's file, without what wrapping adds.

    >>> _plain("base_model.model.score.modules_to_save.default.weight")
    'base_model.model.score.weight'
    """
    return name.replace(".modules_to_save", "").replace(".default", "")


_NAMES = ("input_ids", "attention_mask", "token_type_ids")
_AGREEMENT = 1e-3


class OnnxPairModel:
    """A model in an ONNX file."""

    def __init__(
        self, build: Build, tokenizer: Tokenizer, answers: tuple[str, ...], settings: Mapping[str, object]
    ) -> None:
        require_extra("onnx", "onnx", "onnxruntime")
        import onnxruntime

        ids = answer_tokens(tokenizer, answers, build.folder)
        folder = Cache.default().sound_entry(
            "rerank-onnx", cache_key(**settings), lambda draft: _export(build, tokenizer, ids, draft)
        )
        self._session: Any = onnxruntime.InferenceSession(
            str(folder / "model.onnx"), providers=["CPUExecutionProvider"]
        )
        self._takes = {each.name for each in self._session.get_inputs()}
        stated = orjson.loads((folder / "judge.json").read_bytes())
        self.pad: int = stated["pad"]
        self.positions: int = stated["positions"]

    def columns(self, batch: Padded) -> Columns:
        """Return the columns of one batch."""
        given = {name: array for name, array in zip(_NAMES, batch, strict=True) if name in self._takes}
        found: Columns = self._session.run(None, given)[0].astype(np.float32, copy=False)
        return found

    def close(self) -> None:
        """Release the runtime."""
        del self._session


def _export(build: Build, tokenizer: Tokenizer, answers: list[int], folder: Path) -> None:
    """Write `model.onnx` and the settings that its use needs."""
    import torch

    model: Any = load_pair_model(build, causal=bool(answers), eager=True)
    pad = padding_of(model, tokenizer)
    positions = positions_of(getattr(model, str(model.base_model_prefix), model))
    forward = forward_of(model, answers)

    class Whole(torch.nn.Module):
        """Module from tokens to columns."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
            return forward(ids, mask, types)

    whole = Whole().eval()
    vocabulary = int(model.get_input_embeddings().num_embeddings)
    example = partial(_example, vocabulary, pad, bool(answers))
    export_graph(build.folder, whole, example(2, 7), folder / "model.onnx", _NAMES, "columns")
    for wanted, made in compared(
        whole, folder / "model.onnx", _NAMES, [example(pairs, tokens) for tokens in CHECKED for pairs in (1, 3)]
    ):
        worst = float(np.abs(made - wanted).max())
        if not worst <= _AGREEMENT * max(1.0, float(np.abs(wanted).max())):
            raise R2medError(f"the model cannot be exported: its logits would be off by {worst:.2g}; use backend=torch")
    (folder / "judge.json").write_bytes(orjson.dumps({"pad": pad, "positions": positions}))


def _example(vocabulary: int, pad: int, left: bool, pairs: int, tokens: int) -> list[NDArray[np.int64]]:
    """Make random tokens; the last pair is shorter than the others."""
    ids, mask, empty = example_tokens(vocabulary, pairs, tokens)
    ids[ids == pad] = (pad + 1) % vocabulary
    if left:
        empty = slice(0, len(mask[-1, empty]))
    mask[-1, empty], ids[-1, empty] = 0, pad
    return [ids, mask, np.zeros_like(ids)]
