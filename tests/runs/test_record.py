"""The record of a run: read and written without loss."""

from __future__ import annotations

import json

import r2med
from r2med.runs.cost import Cost
from r2med.runs.record import DataIdentity, RunRecord
from r2med.usage import Usage


def test_a_run_of_this_version_says_everything_and_comes_back_equal() -> None:
    dataset = r2med.load("sample/Biology")
    (result,) = r2med.evaluate("rrf(bm25, wordllama)", dataset).results
    record = result.record
    parts = (dataset.collection.documents.fingerprint, dataset.collection.queries.fingerprint)
    assert record.data == DataIdentity(dataset.fingerprint, *parts, dataset.gold.fingerprint, dataset.revision)
    assert RunRecord.from_json(json.loads(json.dumps(record.as_json()))) == record
    assert None not in record.as_json().values()


def test_what_a_submission_does_not_state_is_unknown() -> None:
    nothing = RunRecord.from_json({})
    assert nothing == RunRecord()
    assert (nothing.documents, nothing.stages, nothing.work, nothing.data.fingerprint) == (None,) * 4
    assert nothing.provenance.machine is None
    cost = Cost.of([RunRecord(stages=())], 4.0, 3)
    assert (cost.loading, cost.indexing, cost.searching, cost.requests) == (None, None, None, 0)


def test_an_unknown_price_stays_unknown() -> None:
    account = Usage(requests=1, cost=None)
    assert Usage(**json.loads(json.dumps(account.as_json()))) == account
