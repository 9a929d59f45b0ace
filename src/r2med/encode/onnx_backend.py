"""Transformers run by ONNX Runtime on the processor: faster than torch there, and much smaller to install."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from r2med.encode.base import Role, Vectors
from r2med.encode.cards import Card
from r2med.encode.model import ModelEncoder
from r2med.encode.onnx_export import export, input_names
from r2med.encode.prompts import Prompts, Template
from r2med.encode.tokens import Padded, Tokenizer, check_limit
from r2med.errors import R2medError, require_extra
from r2med.stage import Requirements
from r2med.store.cache import Cache, cache_key

if TYPE_CHECKING:
    from r2med.encode.loading import Build


class OnnxEncoder(ModelEncoder):
    """A model of a card, run by ONNX Runtime; the file is made from the torch model when it is first needed."""

    def __init__(self, card: Card, prompts: Prompts, exported: Path | None = None) -> None:
        super().__init__(card, prompts)
        self.exported = exported

    @property
    def requirements(self) -> Requirements:
        """The runtime; torch too while the file has yet to be made."""
        hub = tuple(source.name for source in self.sources.values() if source.place is None)
        return Requirements(extra="onnx" if self.exported else "onnx,torch", hub=tuple(dict.fromkeys(hub)))

    @cached_property
    def folder(self) -> Path:
        """The folder with the file: one that was exported by hand, or the cache's."""
        if self.exported is not None:
            return self.exported
        settings = {name: value for name, value in self.settings(Role.DOCUMENT).items() if name not in _NOT_IN_THE_FILE}
        return Cache.default().sound_entry(
            "onnx", cache_key(**settings), lambda draft: export(self.card, self.build(), draft)
        )

    def build(self) -> Build:
        """What the file is made from."""
        from r2med.encode.torch_backend import TorchEncoder

        plain = replace(self.card, backend="torch", dtype="float32")
        return TorchEncoder(plain, self.prompts).build(Role.DOCUMENT)

    def load(self) -> None:
        """Make the file if need be, and start the runtime."""
        _ = self._session

    @property
    def _session(self) -> Any:
        require_extra("onnx", "onnxruntime", "tokenizers")
        return _session(self.folder)

    @cached_property
    def _stated(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = orjson.loads((self.folder / "r2med.json").read_bytes())
        return found

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        require_extra("onnx", "onnxruntime", "tokenizers")
        from tokenizers import Tokenizer as Backend

        tokens = self._stated["tokens"]
        backend = Backend.from_file(str(self.folder / "tokenizer.json"))
        return Tokenizer(backend, pad=tokens["pad"], eos=tokens["eos"], special=frozenset(tokens["special"]))

    def tokenizer(self, role: Role) -> Tokenizer:
        """The one beside the file."""
        return self._tokenizer

    def encode(self, texts: Sequence[str], role: Role) -> Vectors:
        """Text by text: nothing is padded, and the scales of int8 depend on no neighbour."""
        style = self.style(role)
        check_limit(self.card.name, style.limit, self._stated["positions"])
        session, prompt = self._session, self._tokenizer.prompt_length(style)
        names = input_names(pair=self.card.pair)

        def one(row: Padded) -> Vectors:
            counted = row.mask.copy()
            counted[:, :prompt] = 0
            arrays = (row.ids, row.mask, counted, row.types)[: len(names)]
            vectors: Vectors = session.run(None, dict(zip(names, arrays, strict=True)))[0]
            return vectors

        rows = [self._tokenizer.padded([text], style, "right") for text in texts]
        return np.concatenate(list(_threads().map(one, rows))).astype(np.float32, copy=False)

    def with_prompts(self, prompts: Prompts) -> OnnxEncoder:
        """The same model with other prompts."""
        return OnnxEncoder(self.card, prompts, self.exported)


@lru_cache(maxsize=4)
def _session(folder: Path) -> Any:
    """The runtime of a file, shared by the tasks of a command."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # Texts are dealt out among threads instead: threads inside one text would wait for each other at every step.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])


@cache
def _threads() -> ThreadPoolExecutor:
    """A thread for each core; the runtime lets go of Python's lock while it computes."""
    return ThreadPoolExecutor(os.cpu_count() or 1)


_NOT_IN_THE_FILE = ("role", "prompt", "max_length", "exclude_prompt", "lowercase", "padding")
"""Settings that change what is handed to the file, not the file."""


def exported_card(folder: Path, name: str, path: str) -> Card | None:
    """The card that an exported folder holds, or None for any other folder. Its id is the path, never a repository."""
    file = folder / "r2med.json"
    if not file.is_file():
        return None
    if not (folder / "model.onnx").is_file():
        raise R2medError(f"{folder}: r2med.json without model.onnx; export the model again")
    try:
        stated = orjson.loads(file.read_bytes())["card"]
        for prompt in ("query_prompt", "document_prompt"):
            fields = stated[prompt]
            stated[prompt] = Template(**{**fields, "families": tuple(map(tuple, fields["families"]))})
        elsewhere = {"dense": (), "package": "", "adapter": "", "revision": "main"}  # all of it is in the folder
        return replace(Card(**{**stated, **elsewhere}), name=name, id=path, backend="onnx")
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise R2medError(f"{file}: not written by this version of r2med; export the model again") from error
