"""Tasks in another language: the file in a folder that says of which task its questions are a translation."""

from __future__ import annotations

from pathlib import Path

import orjson

from r2med.errors import DataError

TRANSLATION = "translation.json"


def read_translation(folder: Path) -> dict[str, str]:
    """The language of a folder's questions and the task that they are translated from; empty where they are not."""
    file = folder / TRANSLATION
    if not file.is_file():
        return {}
    try:
        stated = orjson.loads(file.read_bytes())
        return {"language": str(stated["language"]), "translates": str(stated["source"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file}: cannot be read: {error}") from error
