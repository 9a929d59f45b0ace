"""A real PostgreSQL with pgvector for tests, from the package `pgserver`; one for all processes of a run.

Processes of a run find the same folder, and the package counts who uses it: the last one to end stops the server.
"""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest


@cache
def server() -> Any:
    """The server, started by whoever asks first; the test is skipped where it cannot be had."""
    pytest.importorskip("psycopg")
    pgserver = pytest.importorskip("pgserver", reason="pgserver is not installed: no PostgreSQL to test with")
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid4().hex
    # The path of a socket may not be long, so that a test's own folder will not do.
    folder = Path(tempfile.gettempdir()) / f"r2med-pg-{run[:12]}"
    return pgserver.get_server(folder, cleanup_mode="delete")


@cache
def dsn(database: str) -> str:
    """The address of a database of that name, new in this process."""
    import psycopg

    name = f"{database}_{os.getpid()}"
    with psycopg.connect(server().get_uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'")
    address: str = server().get_uri(database=name)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    return address
