"""Transformers exported to ONNX, pooling included, and run by ONNX Runtime: faster than torch on a processor."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from r2med.encode.cards import EncoderCard
from r2med.encode.encoder import Prompts, Role, Vectors
from r2med.encode.loading import Build, load_head, load_transformer, positions_of
from r2med.encode.transformer import ModelEncoder, TorchEncoder, both_ways
from r2med.errors import R2medError, require_extra
from r2med.formatting import first_line
from r2med.models.tokenizer import Padded, Tokenizer, check_limit
from r2med.pipeline.stage import Requirements
from r2med.settings import thread_count
from r2med.store.cache import Cache
from r2med.store.hashes import cache_key
from r2med.store.processes import foreign_output
from r2med.store.typed import Typed, read_json, write_json

if TYPE_CHECKING:
    import torch

_INPUT_SETTINGS = ("role", "prompt", "max_length", "exclude_prompt", "lowercase", "padding")
"""Settings that change what is handed to the file, not the file."""
_AGREEMENT = {"float32": 0.9999, "int8": 0.9}  # cosine; int8 of a real model has 0.99, of a random one less
CHECKED = (3, 9, 33)
"""Lengths at which a file must agree with torch, other than the one it is made with."""


class _Exported(Typed, frozen=True, tag_field="format", tag=1):
    """File beside an exported model; the format is another one whenever what is written there changes."""

    card: EncoderCard
    tokens: dict[str, Any]
    positions: int
    made_from: str


class OnnxEncoder(ModelEncoder):
    """An encoder of a card, run by ONNX Runtime; the file is made from the torch model when it is first needed."""

    def __init__(self, card: EncoderCard, prompts: Prompts, exported: Path | None = None) -> None:
        super().__init__(card, prompts)
        self.exported = exported

    @property
    def requirements(self) -> Requirements:
        """Return the runtime, and torch if the file has yet to be made."""
        hub = dict.fromkeys(source.name for source in self.sources.values() if source.place is None)
        return Requirements(extra="onnx" if self.exported else "onnx,torch", hub=tuple(hub))

    @cached_property
    def folder(self) -> Path:
        """Return the folder with the file: one exported by the user, or the cache's."""
        if self.exported is not None:
            return self.exported
        settings = {name: value for name, value in self.settings(Role.DOCUMENT).items() if name not in _INPUT_SETTINGS}
        return Cache.default().sound_entry(
            "onnx", cache_key(**settings), lambda draft: export(self.card, self.build(), draft)
        )

    def build(self) -> Build:
        """Return the build that the file is made from."""
        return TorchEncoder(replace(self.card, backend="torch", dtype="float32"), self.prompts).build(Role.DOCUMENT)

    def load(self) -> None:
        """Make the file if needed, and start the runtime."""
        require_extra("onnx", "onnxruntime", "tokenizers")
        _session(self.folder)

    @cached_property
    def _stated(self) -> _Exported:
        return read_json(self.folder / "r2med.json", _Exported)

    def tokenizer(self, role: Role) -> Tokenizer:
        """Return the tokenizer beside the file, which is read once."""
        return self._tokenizer

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        require_extra("onnx", "onnxruntime", "tokenizers")
        from tokenizers import Tokenizer as Backend

        backend = Backend.from_file(str(self.folder / "tokenizer.json"))
        tokens = self._stated.tokens
        return Tokenizer(backend, pad=tokens["pad"], eos=tokens["eos"], special=frozenset(tokens["special"]))

    def encode(self, texts: Sequence[str], role: Role) -> Vectors:
        """Encode text by text: nothing is padded, and the scales of int8 do not depend on other texts."""
        self.load()
        style = self.style(role)
        check_limit(self.card.name, style.limit, self._stated.positions)
        session, prompt = _session(self.folder), self._tokenizer.prompt_length(style)
        names = _input_names(self.card)

        def run(row: Padded) -> Any:
            pooled = row.mask.copy()
            pooled[:, :prompt] = 0
            return session.run(None, dict(zip(names, (row.ids, row.mask, pooled, row.types), strict=False)))[0]

        rows = [self._tokenizer.padded([text], style, "right") for text in texts]
        return np.concatenate(list(_threads().map(run, rows))).astype(np.float32, copy=False)


@lru_cache(maxsize=4)
def _session(folder: Path) -> Any:
    """Start the runtime of a file, shared by the tasks of a command."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # Texts are dealt out among threads instead: threads inside one text would wait for each other at every step.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])


@cache
def _threads() -> ThreadPoolExecutor:
    """Start a thread for each core; the runtime releases Python's lock while it computes."""
    return ThreadPoolExecutor(thread_count())


def exported_card(folder: Path, name: str, path: str) -> EncoderCard | None:
    """Read the card of an exported folder; None for any other folder. Its id is the path, never a repository."""
    file = folder / "r2med.json"
    if not file.is_file():
        return None
    if not (folder / "model.onnx").is_file():
        raise R2medError(f"{folder}: r2med.json without model.onnx; export the model again")
    stated = read_json(file, _Exported)
    # All of it is in the folder.
    return replace(stated.card, name=name, id=path, backend="onnx", dense=(), package="", adapter="", revision="main")


def export(card: EncoderCard, build: Build, folder: Path) -> None:
    """Write `model.onnx`, the tokenizer and the card into a folder. Needs torch; running the result does not."""
    require_extra("torch", "torch", "transformers", "safetensors", "sentence_transformers")
    require_extra("onnx", "onnx", "onnxruntime")
    if card.pooling == "own" or card.query_id:
        why = "runs code of its own" if card.pooling == "own" else "has two encoders"
        raise R2medError(f"{card.name} {why} and cannot be exported")
    folder.mkdir(parents=True, exist_ok=True)
    model = _traceable(build, card.pair)
    file, names = folder / "model.onnx", _input_names(card)

    def example(texts: int, tokens: int) -> list[NDArray[np.int64]]:
        vocabulary = model.transformer.get_input_embeddings().num_embeddings
        ids, mask, empty = example_tokens(vocabulary, texts, tokens)
        mask[-1, empty] = 0
        return [ids, mask, mask.copy(), np.zeros_like(ids)][: len(names)]

    whole = file if card.dtype != "int8" else folder / "full.onnx"
    export_graph(card.name, model, example(2, 7), whole, names, "vectors")
    if card.dtype == "int8":
        from onnxruntime.quantization import QuantType, quantize_dynamic

        with _exporting(card.name):
            # A scale for each column: with one for a whole matrix the vectors are wrong. Seven bits of the eight:
            # without the special instructions of newer processors, sums of full products overflow.
            quantize_dynamic(whole, file, per_channel=True, reduce_range=True, weight_type=QuantType.QInt8)
        whole.unlink()
    tokenizer = build.tokenizer()
    tokenizer.backend.no_truncation()
    tokenizer.backend.save(str(folder / "tokenizer.json"))
    # What is inside the file now is not looked for beside it.
    inside = replace(card, adapter="", dense=(), subfolder="", package="")
    tokens = {"pad": tokenizer.pad, "eos": tokenizer.eos, "special": sorted(tokenizer.special)}
    write_json(folder / "r2med.json", _Exported(inside, tokens, positions_of(model.transformer), card.id))
    worst = 1.0
    for expected, vectors in compared(model, file, names, (example(1, tokens) for tokens in CHECKED)):
        cosine = float((expected * vectors).sum() / (np.linalg.norm(expected) * np.linalg.norm(vectors)))
        worst = min(worst, cosine) if np.isfinite(cosine) else -1.0
    if worst < _AGREEMENT[card.dtype]:
        raise R2medError(f"{card.name} cannot be exported: its vectors would have a cosine of {worst:.4f} with torch's")


def _input_names(card: EncoderCard) -> list[str]:
    """Return the inputs of the file: the tokens, the mask without padding, and the mask of pooled tokens."""
    return ["input_ids", "attention_mask", "counted", *(["token_type_ids"] if card.pair else [])]


def _traceable(build: Build, pair: bool) -> Any:
    """Return the transformer and its head as one module of torch."""
    import torch

    class Whole(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.transformer: Any = load_transformer(build, eager=True)
            self.head = load_head(build)

        def forward(self, ids: Any, mask: Any, pooled: Any, *types: Any) -> Any:
            seen = both_ways(mask, torch.float32) if build.attention == "bidirectional" else mask
            more = {"token_type_ids": types[0]} if pair else {}
            hidden = self.transformer(input_ids=ids, attention_mask=seen, **more).last_hidden_state
            return self.head({"token_embeddings": hidden, "attention_mask": pooled})["sentence_embedding"]

    model = Whole().eval()
    if hasattr(model.transformer.config, "use_cache"):
        model.transformer.config.use_cache = False
    return model


def export_graph(
    name: str, module: torch.nn.Module, example: Iterable[NDArray[Any]], file: Path, inputs: Sequence[str], output: str
) -> None:
    """Write a module that takes arrays of rows and tokens, any number of both; an error is one line."""
    import torch

    with _exporting(name):
        torch.onnx.export(
            module,
            tuple(map(torch.from_numpy, example)),
            str(file),
            input_names=list(inputs),
            output_names=[output],
            dynamic_axes={tensor: {0: "rows", 1: "tokens"} for tensor in inputs} | {output: {0: "rows"}},
            opset_version=17,
            # The newer exporter needs one more package and does nothing more for these models.
            dynamo=False,
        )


def example_tokens(vocabulary: int, rows: int, tokens: int) -> tuple[NDArray[np.int64], NDArray[np.int64], slice]:
    """Make random tokens, a mask of ones, and the slice of the last row that a shorter text leaves empty."""
    ids = np.random.default_rng(tokens).integers(0, vocabulary, (rows, tokens))
    return ids, np.ones_like(ids), slice(tokens - tokens // 2, None) if rows > 1 else slice(0, 0)


def compared(
    module: torch.nn.Module, file: Path, inputs: Sequence[str], examples: Iterable[Sequence[NDArray[Any]]]
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Yield the outputs of torch and of the file for each example."""
    import onnxruntime
    import torch

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    names = {tensor.name for tensor in session.get_inputs()}
    for arrays in examples:
        with torch.inference_mode():
            expected = module(*map(torch.from_numpy, arrays)).numpy()
        feed = {name: array for name, array in zip(inputs, arrays, strict=True) if name in names}
        yield expected, session.run(None, feed)[0]


@contextmanager
def _exporting(name: str) -> Iterator[None]:
    """Silence torch's advice to model authors, and convert its errors into one line."""
    # The handler prevents torch from setting up logging for the process.
    root, silent = logging.getLogger(), logging.NullHandler()
    level = root.level
    root.addHandler(silent)
    root.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), foreign_output.apart():
            warnings.simplefilter("ignore")
            yield
    except (RuntimeError, ValueError, TypeError) as error:
        raise R2medError(f"{name} cannot be exported ({first_line(error)}); use backend=torch") from error
    finally:
        root.setLevel(level)
        root.removeHandler(silent)
