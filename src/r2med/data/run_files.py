"""Reading and writing run files: detection of the format, gzip, and every defect that a file can have."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
import orjson

from r2med.data.run import Run
from r2med.data.run_formats import FORMATS, assemble, is_lines
from r2med.errors import DataError
from r2med.formatting import counted
from r2med.lexical.ranking import as_float32
from r2med.store.files import write_file

_BY_EXTENSION = {extension: name for name, form in FORMATS.items() for extension in form.extensions}


def read_run(path: Path | str) -> tuple[Run, list[str]]:
    """Read a run file of any known format; return it with a counted sentence for each kind of fix."""
    path = Path(path)
    data = _content(path)
    if not data.strip():
        raise DataError(f"{path}: the file is empty")
    ending = _ending(path)
    # The content decides if the ending is unknown or .json, used by both kinds of JSON.
    if ending in _BY_EXTENSION and ending != ".json":
        form = _BY_EXTENSION[ending]
    elif data.startswith(b"PAR1"):
        form = "parquet"
    elif ending != ".json" and data.lstrip()[:1] != b"{":
        form = "trec"
    else:
        form = "jsonl" if is_lines(data) else "json"
    file_rows = FORMATS[form].read(data, str(path))
    if not file_rows.lists:
        raise DataError(f"{path}: the file holds no query")
    run, warnings = assemble(file_rows)
    # Single precision is that of trec_eval and r2med.
    lists = sum(len(np.unique(ranking.scores)) > len(np.unique(as_float32(ranking.scores))) for _, ranking in run)
    what = "scores that differ in double precision only or lie beyond single precision; they rank as equal"
    return run, [*warnings, *([f"{counted(lists, 'list has', 'lists have')} {what}"] if lists else [])]


def write_run(run: Run, path: Path | str, tag: str = "r2med") -> None:
    """Write a run in the format of the file's extension, whole or not at all; `tag` is the last column of trec."""
    path = Path(path)
    if _ending(path) not in _BY_EXTENSION:
        raise DataError(f"{path}: no format of that name; end it in {' '.join(_BY_EXTENSION)}, with .gz if you like")
    try:
        if len(bad := np.flatnonzero(~np.isfinite(run.scores))):
            document, score = run.documents[bad[0]], run.scores[bad[0]]
            raise DataError(f"the score of document {document} is {score}, not a finite number")
        data = FORMATS[_BY_EXTENSION[_ending(path)]].write(run, tag)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except (UnicodeEncodeError, orjson.JSONEncodeError) as error:
        raise DataError(f"{path}: an id of the run is not valid Unicode") from error
    zipped = path.name.lower().endswith(".gz")
    write_file(path, gzip.compress(data, compresslevel=6, mtime=0) if zipped else data, parents=True)


def _content(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise DataError(f"{path}: a folder, not a run file") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if data.startswith(b"\x1f\x8b"):
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as error:
            raise DataError(f"{path}: the gzip data is damaged or cut short") from error
    return data.removeprefix(b"\xef\xbb\xbf")


def _ending(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix
