"""Texts to token ids, for the torch and ONNX backends alike: the model's own tokenizer without its Python layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.errors import R2medError
from r2med.formatting import first_line, replace_surrogates

if TYPE_CHECKING:
    from pathlib import Path

    from tokenizers import Tokenizer as Backend

Ids = NDArray[np.int64]


class Padded(NamedTuple):
    """A batch of token ids of equal length."""

    ids: Ids
    mask: Ids  # 1 for a token, 0 for padding
    types: Ids  # 0 for the first text of a pair and for a text alone, 1 for the second


@dataclass(frozen=True)
class Style:
    """Options of tokenization: the prompt before a text, and the handling of pairs, case and special tokens."""

    prompt: str = ""
    limit: int = 0  # the most tokens, special ones included; 0 for all
    pair: bool = False  # whether the text is the second of a pair whose first is empty
    exclude_prompt: bool = False
    lowercase: bool = False
    bare: bool = False  # whether the text stands alone, without special tokens around it

    def prompted(self, text: str) -> str:
        """Return the string that is passed to the tokenizer."""
        whole = self.prompt + text
        return whole.lower() if self.lowercase else whole


class Tokenizer:
    """The tokenizer of a model, and what it takes to end and pad a sequence."""

    typed = True  # whether the model is told which text of a pair a token belongs to
    mask: int | None = None  # the token that stands for one that is left out, or the end token of a model without

    def __init__(self, backend: Backend, *, pad: int, eos: int | None, special: frozenset[int]) -> None:
        self.backend, self.pad, self.eos, self.special = backend, pad, eos, special
        backend.no_padding()

    def lengths(self, texts: Sequence[str], style: Style) -> Ids:
        """Count the tokens of each text with its prompt and special tokens, before truncation."""
        return np.array([len(row) for row, _ in self._rows(texts, style, 0)], dtype=np.int64)

    def padded(self, texts: Sequence[str], style: Style, side: str) -> Padded:
        """Tokenize the texts as one batch, each cut to the limit and padded on a side."""
        return pad_rows(self._rows(texts, style, style.limit), self.pad, side)

    def prompt_length(self, style: Style) -> int:
        """Count the tokens at the start of a sequence that belong to the prompt and are left out of the pooling."""
        if not style.prompt or not style.exclude_prompt:
            return 0
        ids, _ = self._rows([""], Style(style.prompt, lowercase=style.lowercase), 0)[0]
        return len(ids) - (1 if ids and ids[-1] in self.special else 0)

    def _rows(self, texts: Sequence[str], style: Style, limit: int) -> list[tuple[list[int], list[int]]]:
        added = [] if self.eos is None else [self.eos]
        if limit:
            around = 0 if style.bare else self.backend.num_special_tokens_to_add(is_pair=style.pair)
            room = limit - len(added) - around
            if room < 1:
                raise R2medError(f"a max_length of {limit} tokens leaves none for the text")
            self.backend.enable_truncation(limit - len(added))
        else:
            self.backend.no_truncation()
        strings = [replace_surrogates(style.prompted(text)) for text in texts]
        inputs = [("", text) for text in strings] if style.pair else strings
        rows = self.backend.encode_batch_fast(inputs, add_special_tokens=not style.bare)
        return [(row.ids + added, row.type_ids + [0] * len(added)) for row in rows]

    def offsets(self, text: str, style: Style) -> list[tuple[int, int]]:
        """Return each token's span in the string that the style makes; special tokens have empty spans."""
        self.backend.enable_truncation(style.limit)
        return self.backend.encode(replace_surrogates(style.prompted(text))).offsets


def pad_rows(rows: Sequence[tuple[Sequence[int], Sequence[int]]], pad: int, side: str) -> Padded:
    """Pad rows of ids and types to equal length."""
    width = max(len(row) for row, _ in rows)
    ids = np.full((len(rows), width), pad, dtype=np.int64)
    mask, types = np.zeros_like(ids), np.zeros_like(ids)
    for place, (row, kinds) in enumerate(rows):
        span = slice(width - len(row), None) if side == "left" else slice(len(row))
        ids[place, span], types[place, span], mask[place, span] = row, kinds, 1
    return Padded(ids, mask, types)


def check_limit(name: str, limit: int, positions: int, option: str = "max_length") -> None:
    """Refuse to read more tokens than a model with a table of positions has places for."""
    if positions and not 0 < limit <= positions:
        raise R2medError(f"{name} has places for {positions} tokens, not for {limit or 'any number'}: set {option}")


def pretrained_tokenizer(folder: Path, *, append_eos: bool, remote_code: bool = False) -> Tokenizer:
    """Read the tokenizer of a model folder with transformers."""
    from transformers import AutoTokenizer

    try:
        loaded = AutoTokenizer.from_pretrained(folder, trust_remote_code=remote_code)
    except (OSError, ValueError, KeyError) as error:
        raise R2medError(f"{folder}: its tokenizer cannot be read ({first_line(error)})") from error
    backend = getattr(loaded, "backend_tokenizer", None)
    if backend is None:
        raise R2medError(f"{folder}: its tokenizer has no tokenizer.json form, which r2med needs")
    pads = [token for token in (loaded.pad_token_id, loaded.eos_token_id) if token is not None]
    eos = loaded.eos_token_id if append_eos else None
    if append_eos and eos is None:
        raise R2medError(f"{folder}: append_eos is asked for, but its tokenizer has no end token")
    backend.no_truncation()
    if append_eos and backend.encode("a").ids[-1:] == [eos]:
        eos = None  # the tokenizer appends it itself
    tokenizer = Tokenizer(backend, pad=pads[0] if pads else 0, eos=eos, special=frozenset(loaded.all_special_ids))
    tokenizer.typed = "token_type_ids" in loaded.model_input_names
    tokenizer.mask = loaded.mask_token_id if loaded.mask_token_id is not None else loaded.eos_token_id
    return tokenizer
