"""Export of a torch module to an ONNX file that takes rows of tokens of any number and length, and its check."""

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
from r2med.store.processes import foreign_output

if TYPE_CHECKING:
    import torch

_OPSET = 17
CHECKED = (3, 9, 33)
"""Lengths at which a file must agree with torch, other than the one it is made with."""


def export_graph(
    name: str, module: torch.nn.Module, example: Iterable[NDArray[Any]], file: Path, inputs: Sequence[str], output: str
) -> None:
    """Write a module that takes arrays of rows and tokens; raise an error of one line if torch cannot."""
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
    takes = {each.name for each in session.get_inputs()}
    for arrays in examples:
        with torch.inference_mode():
            wanted = module(*map(torch.from_numpy, arrays)).numpy()
        given = {name: array for name, array in zip(inputs, arrays, strict=True) if name in takes}
        yield wanted, session.run(None, given)[0]


@contextmanager
def exporting(name: str) -> Iterator[None]:
    """Silence torch's advice, and convert its errors into one line."""
    try:
        with _unwarned(), foreign_output.apart():
            yield
    except (RuntimeError, ValueError, TypeError) as error:
        raise R2medError(f"{name} cannot be exported ({first_line(error)}); use backend=torch") from error


@contextmanager
def _unwarned() -> Iterator[None]:
    """Silence advice to model authors; the handler prevents torch from setting up logging for the process."""
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
