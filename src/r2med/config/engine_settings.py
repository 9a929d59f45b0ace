"""Where work runs."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from r2med.config.settings_files import tables
from r2med.errors import R2medError, suggest


@dataclass(frozen=True)
class EngineSettings:
    """Where work runs, as the user's files have it. None of it changes a result."""

    use: str = "local"
    """What `--engine` takes."""
    workers: int = 0
    """Workers of a cluster at the most; 0 for as many as it has room for."""
    threads: int = 1
    """Threads of a worker on a processor."""
    blocks: str = ""
    """The folder, or URL that fsspec knows, where workers leave their results; empty for one in `R2MED_HOME`."""


def engine_settings() -> EngineSettings:
    """What `[engine]` of the files says."""
    found = EngineSettings()
    known = [each.name for each in fields(EngineSettings)]
    for path, table in tables("engine"):
        if not isinstance(table, dict):
            raise R2medError(f"{path}: [engine] must be a table with {', '.join(known)}")
        for name, value in table.items():
            if name not in known:
                raise R2medError(f"{path}: [engine] has an unknown key {name!r}{suggest(name, known)}")
            least = {"workers": 0, "threads": 1}.get(name)
            if type(value) is not type(getattr(found, name)) or (least is not None and value < least):
                kind = "a text" if least is None else f"a whole number of {least} or more"
                raise R2medError(f"{path}: [engine] {name} must be {kind}, not {value!r}")
        found = replace(found, **table)
    return found
