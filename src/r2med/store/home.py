"""Where r2med keeps what it computes: `R2MED_HOME`, or the platform's own place for application data."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """The folder of the ledger and the caches; made when it is missing."""
    chosen = os.environ.get("R2MED_HOME")
    if chosen:
        folder = Path(chosen).expanduser()
    else:
        from platformdirs import user_data_path

        folder = user_data_path("r2med", appauthor=False)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
