"""Judges run by ONNX Runtime on the processor. The file is made from the torch model once, checked, and kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from numpy.typing import NDArray

from r2med.encode.loading import Build
from r2med.encode.onnx_export import exporting
from r2med.encode.tokens import Padded
from r2med.encode.towers import positions_of
from r2med.errors import R2medError, require_extra
from r2med.rerank.judges import Columns, answer_tokens, forward_of, load_judge, padding_of
from r2med.store.cache import Cache, cache_key

if TYPE_CHECKING:
    import torch

    from r2med.encode.tokens import Tokenizer

_OPSET = 17
_NAMES = ("input_ids", "attention_mask", "token_type_ids")
_CHECKED = (3, 9, 33)  # lengths at which the file must agree with torch
_AGREEMENT = 1e-3


class OnnxJudge:
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
        """One batch."""
        given = {name: array for name, array in zip(_NAMES, batch, strict=True) if name in self._takes}
        found: Columns = self._session.run(None, given)[0].astype(np.float32, copy=False)
        return found

    def close(self) -> None:
        """Let the runtime go."""
        del self._session


def _export(build: Build, tokenizer: Tokenizer, answers: list[int], folder: Path) -> None:
    """Write `model.onnx` and what must be known to use it."""
    import torch

    model: Any = load_judge(build, causal=bool(answers), eager=True)
    pad = padding_of(model, tokenizer)
    positions = positions_of(getattr(model, str(model.base_model_prefix), model))
    forward = forward_of(model, answers)

    class Whole(torch.nn.Module):
        """From tokens to columns, as one module."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
            return forward(ids, mask, types)

    whole = Whole().eval()
    vocabulary = int(model.get_input_embeddings().num_embeddings)
    example = tuple(map(torch.from_numpy, _example(vocabulary, 2, 7, pad, left=bool(answers))))
    with exporting(build.folder):
        torch.onnx.export(
            whole,
            example,
            str(folder / "model.onnx"),
            input_names=list(_NAMES),
            output_names=["columns"],
            dynamic_axes={name: {0: "pairs", 1: "tokens"} for name in _NAMES} | {"columns": {0: "pairs"}},
            opset_version=_OPSET,
            # The newer exporter needs one more package and does nothing more for these models.
            dynamo=False,
        )
    _check(whole, folder, vocabulary, pad, left=bool(answers))
    (folder / "judge.json").write_bytes(orjson.dumps({"pad": pad, "positions": positions}))


def _example(vocabulary: int, pairs: int, tokens: int, pad: int, *, left: bool) -> list[NDArray[np.int64]]:
    """Random tokens; the last pair is shorter than the others."""
    ids = np.random.default_rng(tokens).integers(0, vocabulary, (pairs, tokens))
    ids[ids == pad] = (pad + 1) % vocabulary
    mask = np.ones_like(ids)
    if pairs > 1:
        empty = slice(0, tokens // 2) if left else slice(tokens - tokens // 2, None)
        mask[-1, empty], ids[-1, empty] = 0, pad
    return [ids, mask, np.zeros_like(ids)]


def _check(whole: torch.nn.Module, folder: Path, vocabulary: int, pad: int, *, left: bool) -> None:
    """Run the file beside torch on pairs of several lengths, other than those it was made with."""
    import onnxruntime
    import torch

    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    takes = {each.name for each in session.get_inputs()}
    for tokens in _CHECKED:
        for pairs in (1, 3):
            arrays = _example(vocabulary, pairs, tokens, pad, left=left)
            with torch.inference_mode():
                wanted = whole(*map(torch.from_numpy, arrays)).numpy()
            given = {name: array for name, array in zip(_NAMES, arrays, strict=True) if name in takes}
            made = session.run(None, given)[0]
            worst = float(np.abs(made - wanted).max())
            if not worst <= _AGREEMENT * max(1.0, float(np.abs(wanted).max())):
                raise R2medError(
                    f"the model cannot be exported: its logits would be off by {worst:.2g}; use backend=torch"
                )
