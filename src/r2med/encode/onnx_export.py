"""A torch module as an ONNX file that takes rows of tokens of any number and length, and what the file then gives."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from r2med.errors import R2medError
from r2med.formatting import first_line
from r2med.store.foreign_output import foreign_output

if TYPE_CHECKING:
    import torch

_OPSET = 17
CHECKED = (3, 9, 33)
"""Lengths at which a file must agree with torch, other than the one it is made with."""


def export_graph(
    name: str, module: torch.nn.Module, example: Iterable[NDArray[Any]], file: Path, inputs: Sequence[str], output: str
) -> None:
    """Write a module that takes arrays of rows and tokens; one that torch cannot write is an error of one line."""
    import torch

    with exporting(name):
        torch.onnx.export(
            module,
            tuple(map(torch.from_numpy, example)),
            str(file),
            input_names=list(inputs),
            output_names=[output],
            dynamic_axes={each: {0: "rows", 1: "tokens"} for each in inputs} | {output: {0: "rows"}},
            opset_version=_OPSET,
            # The newer exporter needs one more package and does nothing more for these models.
            dynamo=False,
        )


def example_tokens(vocabulary: int, rows: int, tokens: int) -> tuple[NDArray[np.int64], NDArray[np.int64], slice]:
    """Random tokens, a mask of ones, and the part of the last row that a shorter text leaves empty on the right."""
    ids = np.random.default_rng(tokens).integers(0, vocabulary, (rows, tokens))
    return ids, np.ones_like(ids), slice(tokens - tokens // 2, None) if rows > 1 else slice(0, 0)


def compared(
    module: torch.nn.Module, file: Path, inputs: Sequence[str], examples: Iterable[Sequence[NDArray[Any]]]
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """What torch and the file give for each example."""
    import onnxruntime
    import torch

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    takes = {each.name for each in session.get_inputs()}
    for arrays in examples:
        with torch.inference_mode():
            wanted = module(*map(torch.from_numpy, arrays)).numpy()
        given = {name: array for name, array in zip(inputs, arrays, strict=True) if name in takes}
        yield wanted, session.run(None, given)[0]


@contextmanager
def exporting(name: str) -> Iterator[None]:
    """Without torch's advice, and with one line where it cannot write a model."""
    try:
        with _unwarned(), foreign_output.apart():
            yield
    except (RuntimeError, ValueError, TypeError) as error:
        raise R2medError(f"{name} cannot be exported ({first_line(error)}); use backend=torch") from error


@contextmanager
def _unwarned() -> Iterator[None]:
    """Without advice for those who write models; a handler of our own keeps it from setting up logging for everyone."""
    root, silent = logging.getLogger(), logging.NullHandler()
    level = root.level
    root.addHandler(silent)
    root.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        root.setLevel(level)
        root.removeHandler(silent)
