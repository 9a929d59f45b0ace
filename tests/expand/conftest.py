"""A client of its own for every test, and a context."""

from __future__ import annotations

import pytest

from r2med.llm.budget import Limits
from r2med.llm.client import session
from r2med.pipeline.executor.local import quiet
from r2med.pipeline.stage import Context
from r2med.store.cache import Cache


@pytest.fixture
def client(own_home):
    with session(Limits(retries=1, backoff=0.0)) as found:
        yield found


@pytest.fixture
def context(tmp_path, client):
    return Context(Cache(tmp_path / "cache"), quiet())
