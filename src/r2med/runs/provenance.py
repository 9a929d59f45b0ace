"""Where a result comes from: the versions of packages, and the machine."""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from importlib import metadata

import r2med
from r2med.runs.record import Machine, Provenance

_WATCHED = (
    "numpy", "polars", "wordllama", "torch", "transformers", "sentence-transformers",
    "tokenizers", "onnxruntime", "aiohttp", "peft",
)  # fmt: skip


def version_of(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@cache
def provenance() -> Provenance:
    """Versions of r2med, Python and what computes the scores, and the machine, for a result's record."""
    found = {package: version_of(package) for package in _WATCHED}
    return Provenance(
        r2med.__version__,
        platform.python_version(),
        {package: version for package, version in found.items() if version},
        Machine(sys.platform, platform.machine(), os.cpu_count()),
    )
