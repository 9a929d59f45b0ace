"""What a result says about where it came from: versions and machine."""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from importlib import metadata

import r2med

_WATCHED = (
    "numpy", "polars", "wordllama", "torch", "transformers", "sentence-transformers",
    "tokenizers", "onnxruntime", "openai", "peft",
)  # fmt: skip


def version_of(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@cache
def provenance() -> dict[str, object]:
    """Versions of r2med, Python and what computes the scores, and the machine, for a result's record."""
    found = {package: version_of(package) for package in _WATCHED}
    return {
        "r2med": r2med.__version__,
        "python": platform.python_version(),
        "packages": {package: version for package, version in found.items() if version},
        "machine": {"platform": sys.platform, "architecture": platform.machine(), "cores": os.cpu_count()},
    }
