"""Searches in a real PostgreSQL with pgvector: its lists against ours, and one line for everything that goes wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import databases
import needs
import r2med
from r2med.data.dataset import Collection
from r2med.data.run import Run
from r2med.engines.sql import EXAMPLES, example
from r2med.errors import R2medError
from r2med.pipeline.system import System
from r2med.runs.ledger import Ledger
from r2med.store.arrays import list_settings

psycopg = pytest.importorskip("psycopg")
pytest.importorskip("pgserver")
pytest.importorskip("wordllama")
TASK = "sample/Biology"
DSN = "R2MED_TEST_DSN"
PLAIN = """SELECT id, ts_rank(words_of_text, plainto_tsquery('english', %(query)s)) AS score
FROM documents ORDER BY 2 DESC, id COLLATE "C" DESC LIMIT %(k)s"""


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r2med.toml").write_text("[requests]\nretries = 1\ntimeout = 5\n")
    for name in EXAMPLES:
        (tmp_path / f"{name}.sql").write_text(example(name))


def fill(address: str, task: str) -> Collection:
    """The table that the examples search, with the documents of a task."""
    from r2med.encode.encoder import Role
    from r2med.encode.resolve import encoder_for

    collection = r2med.load(task).collection
    encoder = encoder_for("wordllama", {}, collection.task)
    vectors = encoder.encode(list(collection.documents.texts), Role.DOCUMENT).astype(np.float32)
    with psycopg.connect(address) as connection, connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE documents (id text PRIMARY KEY, text text, vector vector({vectors.shape[1]}), words_of_text"
            " tsvector GENERATED ALWAYS AS (to_tsvector('english', text)) STORED)"
        )
        with cursor.copy("COPY documents (id, text, vector) FROM STDIN") as copy:
            for (name, text), vector in zip(collection.documents, vectors, strict=True):
                copy.write_row((name, text, json.dumps(vector.tolist())))
        cursor.execute("CREATE INDEX ON documents USING gin (words_of_text)")
    return collection


@pytest.fixture(scope="module")
def sample_dsn() -> str:
    address = databases.dsn("sample")
    fill(address, TASK)
    return address


@pytest.fixture
def sample(sample_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv(DSN, sample_dsn)
    return sample_dsn


def only_result(system: str, task: str = TASK, **options: object):
    report = r2med.evaluate(system, task, r2med.Options(**options))
    assert not report.failures, report.failures
    return report.results[0]


def said(system: str) -> str:
    """Why nothing could be searched."""
    (failed,) = r2med.evaluate(system, TASK).failures
    assert "\n" not in failed.message
    return failed.message


def kept_replies() -> int:
    return sum(each.texts for each in list_settings("replies"))


def lists(result) -> Run:
    with Ledger() as ledger:
        return ledger.run(ledger.get(result.id))


def _id(line: str) -> str:
    return json.loads(line)["_id"]


def some_of_scifact(folder: Path) -> str:
    """A third of SciFact's documents with a fifth of its queries: enough of it, and done in seconds."""
    source = needs.collection("scifact")
    (folder / "scifact" / "qrels").mkdir(parents=True)
    heading, *rows = (source / "qrels" / "test.tsv").read_text().splitlines()
    chosen = sorted({row.split("\t")[0] for row in rows}, key=int)[::5]
    queries = [line for line in (source / "queries.jsonl").open() if _id(line) in chosen]
    (folder / "scifact" / "queries.jsonl").write_text("".join(queries))
    kept = [row for row in rows if row.split("\t")[0] in chosen]
    judged = {row.split("\t")[1] for row in kept}
    documents = [line for n, line in enumerate((source / "corpus.jsonl").open()) if n % 3 == 0 or _id(line) in judged]
    (folder / "scifact" / "corpus.jsonl").write_text("".join(documents))
    (folder / "scifact" / "qrels" / "test.tsv").write_text("\n".join([heading, *kept]))
    return str(folder / "scifact")


def test_text_vectors_and_both_on_a_real_collection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The lists of pgvector are ours: both add up in single precision, so what is equal to 1e-6 may change places."""
    task, address = some_of_scifact(tmp_path), databases.dsn("scifact")
    fill(address, task)
    monkeypatch.setenv(DSN, address)
    found = {}
    for name in EXAMPLES:
        encoder = "" if name == "postgres-text" else ", encoder=wordllama"
        found[name] = only_result(f"sql({name}.sql, dsn_env={DSN}{encoder})", task)
        assert not found[name].incomplete
        assert found[name].record.notes[found[name].system]["latency"]["p99"] > 0
    exact = only_result("wordllama", task)
    ours, theirs = lists(exact), lists(found["postgres-vector"])
    moved = 0
    for query in ours.queries:
        mine, other = ours[query], theirs[query]
        assert np.allclose(mine.scores, other.scores, rtol=0, atol=1e-6)
        known = dict(zip(mine.documents, np.asarray(mine.scores).tolist(), strict=True))
        for document, score in zip(other.documents, mine.scores, strict=True):
            assert known.get(document, mine.scores[-1]) == pytest.approx(score, abs=1e-6)
        moved += list(mine.documents) != list(other.documents)
    assert moved <= len(ours.queries) // 4
    assert found["postgres-vector"].metrics == pytest.approx(exact.metrics, abs=1e-3)
    text, vector, both = (found[name].metrics["nDCG@10"] for name in EXAMPLES)
    assert text > 0.5
    assert both > max(text, vector)


def test_documents_with_the_same_vector_are_ranked_as_everywhere(sample: str, tmp_path: Path) -> None:
    (tmp_path / "tied.sql").write_text("SELECT id, length(%(query)s) * 0 + 1 FROM documents LIMIT %(k)s")
    run = lists(only_result(f"sql(tied.sql, dsn_env={DSN})"))
    assert all(list(run[query].documents) == sorted(run[query].documents, reverse=True) for query in run.queries)


def test_replies_are_kept_by_statement_database_and_query(
    sample: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain.sql").write_text(PLAIN)
    system = f"sql(plain.sql, dsn_env={DSN})"
    first = only_result(system)
    monkeypatch.setenv(DSN, f"{sample}&connect_timeout=3")
    fusion = only_result(f"rrf({system}, bm25)")
    assert System.parse(fusion.system) == System.parse(f"rrf({system}, bm25)")
    assert kept_replies() == 9, "the same database, whatever the address says besides"
    (tmp_path / "plain.sql").write_text(PLAIN.replace("ts_rank", "ts_rank_cd"))
    assert only_result(system).id != first.id
    assert kept_replies() == 18


def test_a_query_that_fails_is_incomplete_and_asked_again(sample: str, tmp_path: Path) -> None:
    first = r2med.load(TASK).collection.queries.texts[3][:20].replace("'", "''")
    (tmp_path / "odd.sql").write_text(
        f"SELECT id, CASE WHEN starts_with(%(query)s, '{first}') THEN 1 / (length(%(query)s) * 0) ELSE 1 END"
        " FROM documents LIMIT %(k)s"
    )
    result = only_result(f"sql(odd.sql, dsn_env={DSN})")
    assert [reason.endswith("division by zero") for reason in result.incomplete.values()] == [True]
    assert (result.record.failed_attempts, kept_replies()) == ({"errors": 1, "timeouts": 0}, 8)
    (tmp_path / "r2med.toml").write_text("[requests]\ntimeout = 0.4\n")
    slow = (tmp_path / "odd.sql").read_text().replace("1 / (length(%(query)s) * 0)", "pg_sleep(60)::text::int")
    (tmp_path / "slow.sql").write_text(slow)
    result = only_result(f"sql(slow.sql, dsn_env={DSN})")
    assert [reason.endswith("within 0.4 s") for reason in result.incomplete.values()] == [True]
    assert result.as_dict()["timeouts"] == 1


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELECT id, 1 FROM nothing_here\nWHERE %(query)s <> '' LIMIT %(k)s", 'wrong.sql:1: relation "nothing_here"'),
        ("SELECT id, 1 FROM documents\nWHERE %(query)s <> '' LIMITS %(k)s", "wrong.sql:2: syntax error at or near"),
        ("SELECT id, 'high' FROM documents WHERE %(query)s <> '' LIMIT %(k)s", "is 'high', not a number"),
        ("SELECT id, 'NaN'::float FROM documents WHERE %(query)s <> '' LIMIT %(k)s", "is nan, not a number"),
        ("SELECT id, NULL FROM documents WHERE %(query)s <> '' LIMIT %(k)s", "is None, not a number"),
        ("SELECT now(), 1 FROM documents WHERE %(query)s <> '' LIMIT %(k)s", "is not a document id; write id::text"),
        ("SELECT id, 1, 2 FROM documents WHERE %(query)s <> '' LIMIT %(k)s", "an id and a score are wanted"),
        ("SELECT 'other', 1 WHERE %(query)s <> '' LIMIT %(k)s", "are not documents of sample/Biology"),
        ("SELECT 'bio-d001', 1 FROM documents WHERE %(query)s <> '' LIMIT %(k)s", "in its list more than once"),
        (
            "WITH gone AS (DELETE FROM documents RETURNING id) SELECT id, 1 FROM gone WHERE %(query)s <> ''"
            " LIMIT %(k)s",
            "in a read-only transaction",
        ),
        ("SELECT id, 1 FROM documents WHERE %(query)s <> '' LIMIT %(k)s; SELECT 1", "multiple commands"),
    ],
)
def test_every_wrong_statement_is_one_line(sample: str, tmp_path: Path, statement: str, words: str) -> None:
    (tmp_path / "wrong.sql").write_text(statement)
    assert words in said(f"sql(wrong.sql, dsn_env={DSN})")


def test_nothing_of_a_query_becomes_part_of_the_statement(sample: str, tmp_path: Path) -> None:
    (tmp_path / "echo.sql").write_text("SELECT 'bio-d001', length(%(query)s) LIMIT %(k)s")
    evil = "'; DROP TABLE documents; -- %(k)s %s $1 {query}"
    hits = r2med.search(f"sql(echo.sql, dsn_env={DSN})", TASK, evil)
    assert [hit.score for hit in hits] == [len(evil)]


def test_a_slow_statement_is_ended_in_time(sample: str, tmp_path: Path) -> None:
    (tmp_path / "r2med.toml").write_text("[requests]\ntimeout = 0.2\n")
    (tmp_path / "slow.sql").write_text("SELECT 'bio-d001', 1 FROM pg_sleep(60) WHERE %(query)s <> '' LIMIT %(k)s")
    assert "within 0.2 s" in said(f"sql(slow.sql, dsn_env={DSN})")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("", f"set {DSN} to the address of the database"),
        ("postgre//me:hush@x", f"{DSN} does not hold the address of a database"),
        ("postgresql://me:hush@127.0.0.1:9/x", "connection refused"),
        ("{sample}_other", "does not exist"),
    ],
)
def test_every_wrong_address_is_one_line_without_its_password(
    sample: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, words: str
) -> None:
    host, _, rest = sample.partition("?")
    monkeypatch.setenv(DSN, f"{host}_other?{rest}" if address.startswith("{") else address)
    (tmp_path / "plain.sql").write_text(PLAIN)
    line = said(f"sql(plain.sql, dsn_env={DSN})")
    assert words in line.lower() or words in line
    assert "hush" not in line


@pytest.mark.parametrize(
    ("system", "words"),
    [
        ("sql(nothing.sql)", "nothing.sql: no such file; `r2med engines show` prints examples"),
        ("sql(endless.sql)", "no %(k)s in it; end the statement with LIMIT %(k)s"),
        ("sql(blind.sql)", "every query is the same"),
        ("sql(percent.sql)", "percent.sql:2: '% ' is not a parameter"),
        ("sql(strange.sql)", "strange.sql:1: '%(text)s' is not a parameter; there are %(query)s"),
        ("sql(postgres-vector.sql)", "has a %(vector)s; give encoder=..."),
        ("sql(postgres-text.sql, encoder=wordllama)", "has no %(vector)s; leave encoder out"),
        ("sql(postgres-text.sql, dsn_env='postgresql://me:hush@x/y')", "dsn_env is the name of a variable"),
        ("sql(postgres-text.sql, encoder=bm25)", "bm25 is not an encoder"),
        ("sql(postgres-text.sql, depth=0)", "depth must be 1 or more"),
    ],
)
def test_wrong_specs_are_refused_before_anything_runs(tmp_path: Path, system: str, words: str) -> None:
    (tmp_path / "endless.sql").write_text("SELECT id FROM documents WHERE text = %(query)s")
    (tmp_path / "blind.sql").write_text("SELECT id FROM documents LIMIT %(k)s")
    (tmp_path / "percent.sql").write_text("SELECT id FROM documents\nWHERE text % %(query)s LIMIT %(k)s")
    (tmp_path / "strange.sql").write_text("SELECT id FROM documents WHERE text = %(text)s LIMIT %(k)s")
    with pytest.raises(R2medError) as caught:
        System.parse(system)
    assert words in str(caught.value)
    assert "hush" not in str(caught.value)
