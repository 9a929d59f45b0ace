"""The record of a run: read and written without loss, whatever version made it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

import r2med
from r2med.runs.cost import Cost
from r2med.runs.ledger import Ledger
from r2med.runs.record import DataIdentity, Machine, RunRecord
from r2med.runs.step_record import Account

HERE = Path(__file__).parent


def stored(home: Path, version: int) -> dict[str, dict]:
    """The ledger of an earlier version put into a home; what it holds of each run, by id."""
    database = sqlite3.connect(home / "ledger.sqlite")
    database.executescript((HERE / f"ledger_format_{version}.sql").read_text("utf-8"))
    records = dict(database.execute("SELECT id, record FROM runs"))
    database.close()
    return {run: json.loads(record) for run, record in records.items()}


@pytest.mark.parametrize("version", [1, 3])
def test_records_of_every_format_are_read_and_written_without_loss(version: int, own_home: Path) -> None:
    before = stored(own_home, version)
    with Ledger() as ledger:
        entries = ledger.entries()
        assert {entry.id: entry.record.as_json() for entry in entries} == before
        for entry in entries:
            assert entry.record.documents == 3
            assert entry.record.provenance.machine == Machine("linux", "x86_64", 2)
            assert list(ledger.run(entry).queries) == ["q1", "q2"]
            assert entry.record.stages[0].spec in entry.system


def test_a_run_of_this_version_says_everything_and_comes_back_equal() -> None:
    dataset = r2med.load("sample/Biology")
    (result,) = r2med.evaluate("rrf(bm25, wordllama)", dataset).results
    record = result.record
    parts = (dataset.collection.documents.fingerprint, dataset.collection.queries.fingerprint)
    assert record.data == DataIdentity(dataset.fingerprint, *parts, dataset.gold.fingerprint, dataset.revision)
    assert RunRecord.from_json(json.loads(json.dumps(record.as_json()))) == record
    assert None not in record.as_json().values()


def test_what_earlier_versions_did_not_record_is_unknown(own_home: Path) -> None:
    stored(own_home, 1)
    with Ledger() as ledger:
        entry = ledger.entries()[0]
    assert entry.record.work is None
    cost = Cost.of_runs([entry])
    assert (cost.loading, cost.indexing, cost.searching, cost.requests) == (None, None, None, 0)
    nothing = RunRecord.from_json({})
    assert nothing == RunRecord()
    assert (nothing.documents, nothing.stages, nothing.work, nothing.data.fingerprint) == (None,) * 4
    assert nothing.provenance.machine is None


def test_a_ledger_with_language_models_says_what_they_took(own_home: Path) -> None:
    stored(own_home, 3)
    with Ledger() as ledger:
        entries = {entry.system: entry for entry in ledger.entries()}
    fused = Cost.of_runs([entries["rrf(hyde(paid) >> bm25, bm25)"]])
    assert (fused.requests, fused.tokens, fused.dollars) == (2, 300, 4.0)
    reused = entries["wordllama"].record.work[0]
    assert reused.reused == ("vectors of queries",)
    assert Cost.of_runs([entries["wordllama"]]).searching is None


def test_an_unknown_price_stays_unknown() -> None:
    account = Account(requests=1, cost=None)
    assert Account.from_json(json.loads(json.dumps(account.as_json()))) == account
