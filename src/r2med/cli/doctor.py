"""`r2med doctor`: what this installation can do, and what it lacks."""

from __future__ import annotations

import os
import platform
import sys
from importlib.util import find_spec

import click

import r2med
from r2med.cli.options import json_option, write_json
from r2med.errors import EXTRAS, R2medError
from r2med.formatting import human_size
from r2med.runs.ledger import Ledger
from r2med.runs.record import version_of
from r2med.store.cache import Cache, home

KEYS: tuple[str, ...] = (
    "HF_TOKEN", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "VOYAGE_API_KEY", "COHERE_API_KEY",
    "JINA_API_KEY", "R2MED_LLM_KEY", "R2MED_RERANK_KEY",
)  # fmt: skip
"""Environment variables that some stage reads; only whether they are set is ever shown."""
_CORE = ("numpy", "polars", "orjson", "click", "rich", "huggingface-hub", "platformdirs")


def examine() -> dict[str, dict[str, str]]:
    """Return all findings, by heading."""
    versions = {"r2med": r2med.__version__, "python": f"{platform.python_version()} ({sys.executable})"}
    versions |= {name: version_of(name) or "missing: pip install r2med" for name in _CORE}
    absent = {extra: [name for name in modules if find_spec(name) is None] for extra, modules in EXTRAS.items()}
    extras = {e: f"not installed: pip install 'r2med[{e}]'" if names else "installed" for e, names in absent.items()}
    keys = {key: "set" if os.environ.get(key) else "not set" for key in KEYS}
    devices = {"cpu": f"{os.cpu_count()} cores, {platform.machine()}"}
    if find_spec("torch") is not None:
        import torch

        for place in range(torch.cuda.device_count()):
            devices[f"cuda:{place}"] = torch.cuda.get_device_name(place)
        if torch.backends.mps.is_available():
            devices["mps"] = "available"
    storage = {"R2MED_HOME": str(home())}
    try:
        with Ledger() as ledger:
            storage["ledger"] = f"{len(ledger.entries())} runs, {human_size(ledger.path.stat().st_size)}"
    except R2medError as error:
        storage["ledger"] = str(error)
    for kind, (entries, size) in Cache.default().sizes().items():
        storage[f"cache: {kind}"] = f"{entries} entries, {human_size(size)}"
    findings = {"versions": versions, "extras": extras, "devices": devices, "keys": keys, "storage": storage}
    return {heading: facts for heading, facts in findings.items() if facts}


@click.command("doctor")
@json_option()
def doctor_command(as_json: bool) -> None:
    """Versions, extras, devices, caches, and what is missing with the command that brings it."""
    findings = examine()
    if as_json:
        write_json(findings)
        return
    for heading, facts in findings.items():
        click.secho(heading, bold=True)
        width = max(map(len, facts), default=0)
        for name, fact in facts.items():
            click.echo(f"  {name:{width}}  {fact}")
