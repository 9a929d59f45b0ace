"""What servers of vectors, scores and searches say that they billed is booked, at prices that are stated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import jsonserver
import r2med
from embedding_server import EmbeddingServer
from r2med.cli.main import app
from r2med.errors import R2medError
from r2med.llm.budget import Limits
from r2med.llm.cards import add_model
from r2med.llm.client import session
from r2med.llm.scripted import scripted
from r2med.llm.types import RawAnswer
from r2med.pipeline.evaluate import Options
from r2med.runs.ledger import Entry
from r2med.settings import prices
from r2med.usage import Usage
from rerank_server import RerankServer

TASK = "sample/Biology"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Searching(jsonserver.JsonServer):
    """A search service that gives the same two documents to everybody."""

    def answer(self, say: Any, body: dict[str, Any]) -> object:
        return {"hits": [{"id": "bio-d001", "score": 2}, {"id": "bio-d002", "score": 1}]}


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[Searching]:
    with Searching(lambda nth, body: jsonserver.Say()) as server:
        url = server.url.removesuffix("/v1")
        (tmp_path / "engine.toml").write_text(
            f'url = "{url}"\npath = "search"\n[query]\nquery = "{{query}}"\n'
            '[reply]\nhits = "hits"\nid = "id"\nscore = "score"\n'
        )
        yield server


def write_prices(text: str) -> None:
    Path("r2med.toml").write_text(text)


def cost_of(system: str, **options: Any) -> Entry:
    (result,) = r2med.evaluate(system, TASK, Options(**options)).results
    return result


def host(server: jsonserver.JsonServer) -> str:
    return server.url.removeprefix("http://").removesuffix("/v1")


def test_an_embedding_server_s_tokens_are_booked_at_the_stated_price() -> None:
    with EmbeddingServer() as server:
        write_prices('[prices.tokens]\n"m" = 2.0\n')
        spec = f"m@{server.url}"
        foreseen = dry_run(spec)
        result = cost_of(spec)
        texts = len(server.texts)
        assert (result.cost.requests, result.cost.tokens) == (len(server.bodies), 10 * texts)
        assert result.cost.dollars == pytest.approx(10 * texts * 2.0 / 1e6)
        assert foreseen["documents to encode"] + foreseen["queries to encode"] == texts
        assert foreseen["dollars"] == pytest.approx(foreseen["tokens to send"] * 2.0 / 1e6)
        assert foreseen["tokens to send"] > texts
        again = cost_of(spec, fresh=True)
        assert again.cost.cells()[:4] == ["?"] * 4, "what vectors of an earlier run cost is not known"


def test_without_a_price_tokens_are_known_and_dollars_are_not() -> None:
    with EmbeddingServer() as server:
        result = cost_of(f"m@{server.url}")
        assert result.cost.tokens == 10 * len(server.texts)
        assert result.cost.dollars is None
    with EmbeddingServer() as other:
        write_prices('[prices.tokens]\n"m" = 0\n')
        assert cost_of(f"m@{other.url}").cost.dollars == 0.0, "a server of one's own may cost nothing, and that is said"


@pytest.mark.parametrize(("text", "each"), [('tokens]\n"r"', 7 / 1e6), ('requests]\n"r"', 1 / 1e3)])
def test_a_rerank_server_is_billed_by_tokens_or_by_requests(text: str, each: float) -> None:
    with RerankServer() as server:
        write_prices(f"[prices.{text} = 3.0\n")
        spec = f"bm25 >> api-rerank(r@{server.url}, depth=5)"
        foreseen = dry_run(spec, spec.partition(" >> ")[2])
        result = cost_of(spec)
        assert (result.cost.requests, result.cost.tokens) == (9, 9 * 7)
        assert result.cost.dollars == pytest.approx(9 * each * 3.0)
        assert foreseen["requests at most"] == 9
        assert foreseen["dollars"] > 0


def test_a_server_that_states_no_tokens_leaves_them_unknown_and_requests_known() -> None:
    class Silent(EmbeddingServer):
        def answer(self, say: Any, body: dict[str, Any]) -> object:
            found = dict(super().answer(say, body))
            del found["usage"]
            return found

    with Silent() as server:
        write_prices('[prices.tokens]\n"m" = 2.0\n')
        result = cost_of(f"m@{server.url}")
        assert result.cost.requests == len(server.bodies)
        assert result.cost.tokens is None
        assert result.cost.dollars is None


def test_requests_to_a_search_engine_are_counted_and_priced(executor: Searching) -> None:
    result = cost_of("http(engine.toml)")
    assert (result.cost.requests, result.cost.tokens, result.cost.dollars) == (9, 0, None)
    write_prices(f'[prices.requests]\n"{host(executor)}" = 4.0\n')
    again = cost_of("http(engine.toml)", fresh=False)
    assert again.cost.requests == 9
    foreseen = dry_run("http(engine.toml, depth=7)")
    assert (foreseen["requests"], foreseen["dollars"]) == (9, pytest.approx(0.036))
    assert cost_of("http(engine.toml, depth=7)").cost.dollars == pytest.approx(0.036)


def test_an_hour_of_one_s_own_hardware_has_a_price() -> None:
    write_prices("[prices]\nhour = 3600.0\n")
    result = cost_of("bm25")
    cost = result.cost
    assert cost.dollars == pytest.approx(cost.loading + cost.indexing + cost.searching)
    assert cost.cells()[0] == "0"
    write_prices("")
    assert cost_of("bm25(k1=2.0)").cost.dollars == 0.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prices = 3", "must be a table"),
        ("[prices]\nday = 3", "prices.day is not a known key"),
        ("[prices]\nhour = -1", "prices.hour must be a number of at least 0, not -1"),
        ('[prices.tokens]\nm = "much"', "prices.tokens.m must be a number of at least 0, not 'much'"),
    ],
)
def test_wrong_prices_are_one_line(text: str, words: str) -> None:
    write_prices(text)
    with pytest.raises(R2medError, match=words):
        prices()


def test_what_was_foreseen_is_shown_beside_what_was_used() -> None:
    answer = RawAnswer("crystals", usage=Usage(prompt_tokens=100, completion_tokens=50))
    add_model(replace(scripted(lambda request: answer, "paid"), price=(10.0, 20.0)))
    foreseen = dry_run("hyde(paid) >> bm25", "hyde(paid)")
    shown = CliRunner().invoke(app, ["run", "hyde(paid) >> bm25", "--tasks", TASK], env={"COLUMNS": "300"})
    tokens = foreseen["prompt tokens"] + foreseen["completion tokens"]
    line = next(line for line in shown.stdout.splitlines() if "foreseen" in line)
    assert f"foreseen 9 requests, {tokens:,} tokens" in line
    assert f"used 9 requests, 1,350 tokens ({1350 / tokens - 1:+.0%}), $0.02" in line
    (result,) = r2med.evaluate("hyde(paid) >> bm25", TASK).results
    said = result.as_dict()
    assert said["used"] == {"requests": 9, "tokens": 1350, "dollars": pytest.approx(0.018)}
    assert said["foreseen"]["dollars"] == pytest.approx(foreseen["dollars"])
    again = CliRunner().invoke(app, ["run", "hyde(paid) >> bm25", "--tasks", TASK], env={"COLUMNS": "300"})
    assert "foreseen" not in again.stdout, "what the ledger has was not foreseen now"


def dry_run(system: str, stage: str = "") -> dict[str, Any]:
    """What a plan says of a stage."""
    with session(Limits(retries=0)):
        shown = CliRunner().invoke(app, ["run", system, "--tasks", TASK, "--dry-run", "--json"])
    assert shown.exit_code == 0, shown.output
    forecast: dict[str, Any] = json.loads(shown.stdout)[0]["tasks"][0]["forecast"][stage or system]
    return forecast
