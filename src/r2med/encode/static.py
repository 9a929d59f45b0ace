"""Static vectors: WordLlama's table of one vector per token, averaged over a text. No torch, no graph, no download.

The tokenizer and the table come inside the `wordllama` package. They are read from its folder directly: importing
the package would set up logging for the whole process.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from r2med.encode.encoder import Encoder, Prompts, Role, Vectors
from r2med.errors import MissingExtra, R2medError
from r2med.formatting import replace_surrogates
from r2med.runs.record import version_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_TABLE = "weights/l2_supercat_256.safetensors"


class WordLlamaEncoder(Encoder):
    """Encoder of the `wordllama` package: the mean of the vectors of a text's tokens, or of its first `max_length`."""

    def __init__(self, max_length: int = 0, prompts: Prompts | None = None) -> None:
        if max_length < 0:
            raise R2medError(f"wordllama: max_length must be a number of tokens or 0 for no limit, not {max_length}")
        self.max_length, self.prompts = max_length, prompts or Prompts()
        self._read: dict[str, NDArray[np.int64]] = {}

    def settings(self, role: Role) -> Mapping[str, object]:
        """Return the package's version, which stands for its tokenizer and table, and the settings of reading texts."""
        return {
            "model": "wordllama",
            "revision": version_of("wordllama") or "",
            "backend": "static",
            "role": role.value,
            "prompt": self.prompts.of(role),
            "max_length": self.max_length,
            "pooling": "mean",
            "normalize": False,
            "dtype": "float32",
        }

    def load(self) -> None:
        """Read the tokenizer and the table, about 16 MB, once for all encoders of the process."""
        _load()

    def lengths(self, texts: Sequence[str], role: Role) -> NDArray[np.int64]:
        """Count the tokens of each text. They are cached until the text is encoded: tokenizing is most of the work."""
        strings = [self.prompted(text, role) for text in texts]
        self._read = dict(zip(strings, self._tokens(strings), strict=True))
        return np.array([len(self._read[text]) for text in strings], dtype=np.int64)

    def limit(self, role: Role) -> int:
        """Return the cut-off of the user; there is none by default."""
        return self.max_length

    def encode(self, texts: Sequence[str], role: Role) -> Vectors:
        """Average each text's token vectors, one text at a time."""
        strings = [self.prompted(text, role) for text in texts]
        measured = [self._read.pop(text, None) for text in strings]
        unread = iter(self._tokens([text for text, ids in zip(strings, measured, strict=True) if ids is None]))
        _, table = _load()
        vectors = np.zeros((len(texts), table.shape[1]), dtype=np.float32)
        for place, ids in enumerate(measured):
            cut = (next(unread) if ids is None else ids)[: self.max_length or None]
            if len(cut):
                vectors[place] = table[cut].mean(axis=0)
        return vectors

    def _tokens(self, strings: Sequence[str]) -> list[NDArray[np.int64]]:
        tokenizer, table = _load()
        rows = tokenizer.encode_batch([replace_surrogates(text) for text in strings], add_special_tokens=False)
        return [np.minimum(np.array(row.ids, dtype=np.int64), len(table) - 1) for row in rows]


@cache
def _load() -> tuple[Tokenizer, Vectors]:
    spec = importlib.util.find_spec("wordllama")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("static vectors need the package wordllama: pip install wordllama")
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    folder = Path(next(iter(spec.submodule_search_locations)))
    for file in (_TOKENIZER, _TABLE):
        if not (folder / file).is_file():
            raise R2medError(f"wordllama {version_of('wordllama')} lacks {file}; pip install 'wordllama==0.4.0.post1'")
    tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    # It does not cut texts into words, so that the library would remember whole texts: to no use, and without end.
    with suppress(AttributeError):
        tokenizer.model._resize_cache(0)
    return tokenizer, load_file(folder / _TABLE)["embedding.weight"].astype(np.float32)
