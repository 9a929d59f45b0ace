"""Where r2med keeps what it computes: `R2MED_HOME`, or the platform's own place for application data."""

from __future__ import annotations

import os
from pathlib import Path

from r2med.errors import R2medError
from r2med.storage.files import reason


def home() -> Path:
    """The folder of the ledger and the caches; made when it is missing."""
    chosen = os.environ.get("R2MED_HOME")
    place = f"R2MED_HOME={chosen}" if chosen else "the folder for results"
    try:
        folder = Path(chosen).expanduser() if chosen else _own_place()
        place = place if chosen else f"{folder}, where results are kept,"
        # What is kept may be about patients: a folder that is made here is its owner's alone.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A folder that cannot be looked into is of no use, and says so only now.
        next(folder.iterdir(), None)
    except (OSError, RuntimeError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        raise R2medError(f"{place} cannot be used ({why}); set R2MED_HOME to a folder that can be written") from error
    return folder


def _own_place() -> Path:
    """The platform's own place for application data."""
    from platformdirs import user_data_path

    return user_data_path("r2med", appauthor=False)
