"""Files that have their name only when they are complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from r2med.errors import DataError


@contextmanager
def draft(out: Path) -> Iterator[Path]:
    """A file beside `out` that takes its name when the block ends well, and is gone when it does not."""
    aside = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        if out.is_dir():
            raise DataError(f"{out}: is a folder; name a file")
        aside.touch()
        yield aside
        aside.replace(out)
    except OSError as error:
        raise DataError(f"{out}: cannot be written: {error.strerror or error}") from error
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def written(out: Path) -> Iterator[BinaryIO]:
    """A new file to write to."""
    with draft(out) as aside, aside.open("wb") as stream:
        yield stream
