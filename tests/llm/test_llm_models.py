"""Names to models, and models to the bodies of requests."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from asking import model_at

from chat_server import Say
from r2med.encode.api import card_at as model_at_server
from r2med.errors import SpecError
from r2med.expand.methods import HyDE
from r2med.llm.cards import add_model, find_model, model_names
from r2med.llm.reasoning import FORMATS
from r2med.llm.scripted import scripted
from r2med.llm.server import body
from r2med.llm.types import Message, Reply, Request, Sampling
from r2med.pipeline.spec import parse
from r2med.rerank.api import api_model

ELEVEN = {
    "gpt-4o": "none",
    "o3-mini": "none",
    "qwen-7b": "none",
    "qwen-32b": "none",
    "qwen-72b": "none",
    "llama-70b": "none",
    "r1-qwen-32b": "think",
    "r1-llama-70b": "think",
    "huatuo-o1-70b": "huatuo",
    "qwq-32b": "think",
    "qwen3-32b": "think-tags",
}


def test_the_models_of_the_benchmark_are_there_with_its_sampling():
    for name, trace in ELEVEN.items():
        model = find_model(name)
        assert model.trace in (trace, "auto")
        assert (trace == "none") == (model.trace == "auto")
        assert model.sampling.max_tokens == 10240
    assert find_model("qwen-32b").sampling == Sampling(temperature=0.7, seed=42, max_tokens=10240)
    assert find_model("gpt-4o").sampling == Sampling(temperature=0.8, top_p=0.8, max_tokens=10240)
    # The hosted reasoning model takes neither a temperature nor the old name of the length limit.
    assert set(body(find_model("o3-mini").request("hello"))) == {"model", "messages", "max_completion_tokens"}


def test_every_card_is_whole():
    for name in model_names():
        model = find_model(name)
        assert model.name == name
        assert model.id
        assert model.trace in FORMATS
        assert model.url.startswith("http") or name == "local"
        assert model.price is None or min(model.price) >= 0
        assert model.needs_key <= bool(model.key_env)
        assert parse(f"hyde({name})").calls[0].args == (name,)


def test_a_wrong_name_gets_the_nearest_one():
    with pytest.raises(SpecError, match="did you mean gpt-4o"):
        find_model("gpt4o")


def test_a_server_is_named_by_its_address():
    model = find_model("my/model@http://localhost:8000/v1/")
    assert (model.id, model.url, model.trace) == ("my/model", "http://localhost:8000/v1", "auto")
    assert model.price is None
    assert not model.needs_key


def test_a_card_at_another_address_keeps_its_nature_but_not_its_price():
    by_name = find_model("r1-qwen-32b@http://gpu:8000/v1")
    by_id = find_model("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B@http://gpu:8000/v1")
    assert by_name.id == by_id.id
    assert by_name.trace == by_id.trace == "think"
    assert find_model("gpt-4o@http://gpu:8000/v1").price is None
    assert find_model("gpt-4o@https://api.openai.com/v1").price == find_model("gpt-4o").price


def test_hosts_have_their_own_keys():
    assert find_model("x@https://openrouter.ai/api/v1").key_env == "OPENROUTER_API_KEY"
    assert find_model("x@https://openrouter.ai.evil.example/v1").key_env == "R2MED_LLM_KEY"


@pytest.mark.parametrize("find", [find_model, model_at_server, api_model])
@pytest.mark.parametrize(
    "address",
    [
        "",
        "ftp://h/v1",
        "http://",
        "localhost:8000",
        "http://h:99999/v1",
        "http://h:x/v1",
        "http://[::1/v1",
        "http://a b/v1",
        "http://h\x00/v1",
        "http://h/v1?key=sk-123",
        "http://h/v1#sk-123",
        "http://me:hunter2@h/v1",
    ],
)
def test_an_address_that_is_none_or_holds_a_secret_is_one_line(find, address):
    with pytest.raises(SpecError) as error:
        find(f"x@{address}")
    assert "\n" not in str(error.value)
    assert "sk-123" not in str(error.value)
    assert "hunter2" not in str(error.value)


def test_a_model_of_a_server_has_a_name():
    with pytest.raises(SpecError, match="NAME@http"):
        find_model("@http://h/v1")


def test_an_address_is_written_in_one_way():
    assert find_model("x@HTTP://Host:80/v1/").server == find_model("x@http://host/v1").server == "http://host/v1"


def test_the_server_is_part_of_what_a_stage_depends_on(monkeypatch):
    stage = HyDE("gpt-4o")
    hosted = stage.key()
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:8499/v1")
    assert stage.key() != hosted
    assert stage.asked_model()["server"] == "http://127.0.0.1:8499/v1"


def test_the_address_of_own_servers_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("R2MED_LLM_URL", "http://gpu:9000/v1")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://mine.openai.azure.com/openai/v1/")
    assert find_model("qwen-7b").url == "http://gpu:9000/v1"
    assert find_model("gpt-4o").url == "https://mine.openai.azure.com/openai/v1"


def test_own_cards_come_first(tmp_path):
    (tmp_path / "home").mkdir()
    file = tmp_path / "home" / "llms.toml"
    file.write_text('[model.mine]\nid = "m"\nurl = "http://h/v1"\nprice = [1, 2]\n[model.gpt-4o]\nid = "gpt-4o-next"\n')
    assert (find_model("mine").url, find_model("mine").price) == ("http://h/v1", (1.0, 2.0))
    assert find_model("gpt-4o").id == "gpt-4o-next"
    for bad in ("[model.x", "[model.x]\nprice = [1, 2]\n", '[model.x]\nid = "x"\nkey = "sk-123"\n'):
        file.write_text(bad)
        with pytest.raises(SpecError, match=r"llms\.toml"):
            find_model("gpt-4o")
    file.write_text('[model.x]\nlike = "qwq-32b"\nid = "x"\nkey_env = ""\n')
    assert find_model("x") == replace(find_model("qwq-32b"), name="x", id="x", key_env="")
    for field in ("trace", "sampling", "server"):
        file.write_text(f'[model.x]\nid = "x"\n{field} = "thnk"\n')
        with pytest.raises(SpecError, match=field):
            find_model("x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model = 3", "model is not a table of cards"),
        ("[modle.x]\nid = 'x'", "unknown table 'modle'; did you mean model?"),
        ("[model.x]\nid = 3", "x: id must be a text, not 3"),
        ("[model.x]\nid = 'x'\nkey = 'sk-123'", "x has an unknown field 'key'; did you mean key_env?"),
        ("[model.x]\nid = 'x'\nurl = 1", "x: url must be a text, not 1"),
        ("[model.x]\nid = 'x'\nprice = ['a', 2]", "x: price must be a list of numbers, not ['a', 2]"),
        ("[model.x]\nid = 'x'\nprice = [1]", "x: price must be two numbers"),
        ("[model.x]\nid = 'x'\nextra = 'a'", "x: extra must be a table, not 'a'"),
    ],
)
def test_mistakes_in_own_cards_are_one_line(tmp_path, text, message):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "llms.toml").write_text(text)
    with pytest.raises(SpecError) as error:
        find_model("gpt-4o")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert "sk-123" not in str(error.value)


def test_models_say_what_they_need():
    assert find_model("gpt-4o").requirements().key == "OPENAI_API_KEY"
    assert find_model("qwen-7b").requirements().key == ""
    assert find_model("local").requirements().extra == "local-llm"
    assert scripted(lambda request: "").requirements().extra == ""


def test_the_body_holds_what_was_asked_and_nothing_else(serve, connect):
    server = serve()
    model = model_at(server)
    messages = (Message("system", "s"), Message("user", "u \ud800"), Message("assistant", "It is"))
    request = Request(model, messages, Sampling(0.1, 0.9, 7, 33), ("END",), logprobs=2, sample=3)
    connect().ask_all([request])
    assert server.bodies == [
        {
            "model": "tiny",
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": "u ?"},
                {"role": "assistant", "content": "It is"},
            ],
            "temperature": 0.1,
            "top_p": 0.9,
            "seed": 10,
            "max_tokens": 33,
            "stop": ["END"],
            "logprobs": True,
            "top_logprobs": 2,
            "continue_final_message": True,
            "add_generation_prompt": False,
        }
    ]


@pytest.mark.parametrize("echoed", [True, False])
def test_only_the_continuation_comes_back(serve, connect, echoed):
    server = serve(lambda prompt, nth: Say(text="It is scurvy." if echoed else " scurvy."))
    model = model_at(server)
    request = Request(model, (Message("user", "What?"), Message("assistant", "It is")), model.sampling)
    [reply] = connect().ask_all([request])
    assert reply.raw == " scurvy."


def test_a_reply_carries_all_that_the_server_said(serve, connect):
    logprobs = {"content": [{"token": "Yes", "logprob": -0.1, "top_logprobs": [{"token": "No", "logprob": -2.5}]}]}
    server = serve(
        lambda prompt, nth: Say(
            text="Yes",
            message={"reasoning_content": "bleeding gums"},
            choice={"finish_reason": "length", "logprobs": logprobs},
            usage={"prompt_tokens": 7, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 6}},
        )
    )
    request = model_at(server).request("Is it?", logprobs=1)
    fresh = connect().ask_all([request])[0]
    kept = connect().ask_all([request])[0]
    for reply in (fresh, kept):
        assert isinstance(reply, Reply)
        assert (reply.text, reply.reasoning, reply.finish, reply.raw) == ("Yes", "bleeding gums", "length", "Yes")
        assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.reasoning_tokens) == (7, 9, 6)
        assert reply.logprobs[0].text == "Yes"
        assert reply.logprobs[0].top == (("No", -2.5),)
        assert reply.usage.seconds > 0
    assert (fresh.cached, kept.cached) == (False, True)
    assert kept.usage.seconds == fresh.usage.seconds


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_by_either_name(serve, connect, field):
    server = serve(lambda prompt, nth: Say(text="Scurvy.", message={field: "gums"}))
    [reply] = connect().ask_all([model_at(server, "r1-qwen-32b").request("What?")])
    assert (reply.text, reply.reasoning, reply.incomplete) == ("Scurvy.", "gums", "")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ([{"type": "text", "text": "Scur"}, {"type": "text", "text": "vy"}], "Scurvy"),
        ("half an emoji \ud83d", "half an emoji ?"),
    ],
)
def test_contents_of_every_shape(serve, connect, content, text):
    choice = {"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    server = serve(lambda prompt, nth: Say(body=json.dumps({"choices": [choice]}).encode()))
    [reply] = connect().ask_all([model_at(server).request("What?")])
    assert reply.text == text
    assert reply.usage.prompt_tokens > 0
    assert bool(reply.incomplete) == (not text)


def test_reasoning_tokens_are_shared_out_where_the_server_does_not_say(serve, connect):
    server = serve(
        lambda prompt, nth: Say(
            text=f"{'a' * 75}</think>{'b' * 25}", usage={"prompt_tokens": 1, "completion_tokens": 40}
        )
    )
    [reply] = connect().ask_all([model_at(server, "qwq-32b").request("What?")])
    assert reply.usage.reasoning_tokens == 30


def test_log_probabilities_that_make_no_sense_are_asked_again(serve, connect):
    bad = {"content": [{"token": "Yes"}]}
    server = serve(lambda prompt, nth: Say(text="Yes", choice={"logprobs": bad} if nth == 0 else {}))
    [reply] = connect().ask_all([model_at(server).request("What?", logprobs=1)])
    assert isinstance(reply, Reply)
    assert server.attempts == 2


def test_a_model_can_be_added_by_name():
    model = add_model(scripted(lambda request: "hello", "test-greeter"))
    assert find_model("test-greeter") is model
    assert "test-greeter" in model_names()


def test_the_benchmarks_own_names_of_models_are_known():
    names = "qwen-7b qwen-32b qwen-72b llama-70b r1-qwen-32b r1-llama-70b huatuo-o1-70b qwq-32b qwen3-32b gpt4 o3-mini"
    assert all(find_model(name).id for name in names.split())
    assert (find_model("gpt4").id, find_model("gpt4").price) == (find_model("gpt-4o").id, find_model("gpt-4o").price)


def test_a_model_without_system_messages_reads_that_text_first():
    request = find_model("o1-mini").request("Why?", "Be brief.")
    assert body(request)["messages"] == [{"role": "user", "content": "Be brief.\n\nWhy?"}]
    assert [message["role"] for message in body(find_model("o3-mini").request("Why?"))["messages"]] == [
        "system",
        "user",
    ]
