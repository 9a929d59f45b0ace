"""Search agents with models that do as they are told, and with models that do not."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from expanding import DOCUMENTS, QUERIES, Script, about, tiny, with_texts
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.data.dataset import Texts
from r2med.errors import R2medError
from r2med.expand.agents import NOTHING, SearchO1, SearchR1
from r2med.expand.conversation import NO_TOKENS, NO_TURNS
from r2med.llm.client import session
from r2med.llm.types import RawAnswer, Request
from r2med.models.http import AttemptError
from r2med.pipeline.executor.local import quiet
from r2med.pipeline.stage import Context
from r2med.pipeline.system import System
from r2med.retrieve.bm25 import BM25
from r2med.store.cache import Cache

Turn = str | RawAnswer | AttemptError
FOUND = "<|end_search_result|>"


def turn_of(request: Request) -> int:
    """Which turn of its conversation a request is, from what the model was told so far."""
    said = "\n".join(message.content for message in request.messages)
    # Once it stands in the instructions.
    return said.count("</information>") + said.count(FOUND) - 1


def plays(
    q1: Sequence[Turn], q2: Sequence[Turn] = ("<answer>Uric acid.</answer>",)
) -> Callable[[Request], str | RawAnswer]:
    """A model that says one thing a turn, the last of them for ever; documents are condensed to a word."""

    def answer(request: Request) -> str | RawAnswer:
        if request.messages[-1].content.startswith("Somebody is working on a question"):
            return "Read.</think>Condensed."
        turns = q1 if about(request) == "q1" else q2
        said = turns[min(turn_of(request), len(turns) - 1)]
        if isinstance(said, AttemptError):
            raise said
        return said

    return answer


R1_TURNS = (
    "<think>Bleeding gums.</think> <search> vitamin C gums </search>",
    "<think>So scurvy.</think> <search> sailors biscuit </search>",
    "<think>Enough.</think> <answer> Scurvy, a lack of vitamin C. </answer>",
)


@pytest.fixture(params=[True, False], ids=["goes on", "is answered"])
def continues(request):
    return request.param


def test_search_r1_from_question_to_answer(context, continues):
    script = Script(plays(R1_TURNS), continues=continues)
    expanded = SearchR1("m").expand(tiny(), context)
    made = expanded.generations[0][0]
    assert (made.text, made.method, made.incomplete) == ("Scurvy, a lack of vitamin C.", "search-r1", "")
    assert [row[0].text for row in expanded.generations][1] == "Uric acid."
    best = System.parse("bm25").run(with_texts(tiny(), ["vitamin C gums", "x"]), context)["q1"].documents
    for place, document in enumerate(best[:3], 1):
        assert f"[{place}] {DOCUMENTS[document]}" in made.reasoning
    # The whole way can be read, in its order.
    places = [made.reasoning.index(text) for text in ("Bleeding gums.", "<information>", "So scurvy.", "Enough.")]
    assert places == sorted(places)
    assert context.notes.facts["agent"] == {"searches": 2}
    assert context.notes.facts["account"]["requests"] == 4
    assert context.notes.facts["first_prompt"] == script.asked[0].messages[-1].content
    run = (SearchR1("m") >> BM25()).run(tiny(), context)
    assert run == BM25().retrieve(with_texts(tiny(), ["Scurvy, a lack of vitamin C.", "Uric acid."]), context)


def test_the_conversation_is_continued_or_answered_as_the_model_takes_it(context):
    script = Script(plays(R1_TURNS), continues=True)
    SearchR1("m").expand(tiny(), context)
    last = script.asked[-1].messages
    assert [message.role for message in last] == ["system", "user", "assistant"]
    assert last[-1].content.startswith(R1_TURNS[0].rstrip())
    assert last[-1].content.endswith("</information>\n\n")
    script = Script(plays(R1_TURNS), "n", continues=False)
    SearchR1("n").expand(tiny(), context)
    last = script.asked[-1].messages
    assert [message.role for message in last] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert last[2].content == R1_TURNS[0]
    assert last[-1].content.startswith("<information>")


@pytest.mark.parametrize("server", ["strips", "keeps", "ignores"])
def test_it_is_the_same_whatever_the_server_does_at_a_stop_string(server, context, continues):
    def answer(request):
        text = plays(R1_TURNS, ["<answer>Uric acid.</answer>"])(request)
        assert request.stop == ("</search>", "</answer>")
        if server == "strips":
            return text.removesuffix("</search>").removesuffix("</answer>")
        return text + "<information>[1] invented</information><answer>Made up.</answer>" * (server == "ignores")

    Script(answer, continues=continues)
    made = SearchR1("m").expand(tiny(), context).generations
    assert [row[0].text for row in made] == ["Scurvy, a lack of vitamin C.", "Uric acid."]
    assert "invented" not in made[0][0].reasoning
    assert made[0][0].reasoning.count("<information>") == 2
    assert context.notes.facts["agent"] == {"searches": 2}


def test_all_queries_go_in_step_and_search_together(context, monkeypatch):
    batches = []
    retrieve = BM25.retrieve
    monkeypatch.setattr(
        BM25, "retrieve", lambda self, c, x: batches.append(list(c.queries.texts)) or retrieve(self, c, x)
    )
    Script(plays(R1_TURNS, R1_TURNS[1:]))
    SearchR1("m").expand(tiny(), context)
    assert batches == [["vitamin C gums", "sailors biscuit"], ["sailors biscuit"]]


def test_any_system_is_a_tool_and_a_dropped_document_stays_dropped(context):
    collection = replace(tiny(), queries=Texts(["gums", "gout"], list(QUERIES.values())))
    turns = ("<search>gums bleed plaque</search>", "<answer>Plaque.</answer>")
    Script(plays(turns, turns))
    kept = SearchR1("m", "rrf(bm25, bm25-classic)", samples=2).expand(collection, context).generations
    assert all(DOCUMENTS["gums"] in made.reasoning for row in kept for made in row)
    dropping = SearchR1("m", "rrf(bm25(drop_self=true), bm25-classic(drop_self=true))", samples=2)
    dropped = dropping.expand(collection, context).generations
    assert [DOCUMENTS["gums"] in made.reasoning for row in dropped for made in row] == [False, False, True, True]


def test_a_repeated_search_is_answered_from_before_and_told_so(context, continues):
    again = ("<search>vitamin C</search>", "<search>Vitamin  c?</search>", "<answer>Scurvy.</answer>")
    script = Script(plays(again), continues=continues)
    made = SearchR1("m").expand(tiny(), context).generations[0][0]
    assert made.text == "Scurvy."
    told = script.asked[-1].messages[-1].content
    assert "You made this search before. It found:\n[1] Scurvy is" in told
    assert context.notes.facts["agent"] == {"searches": 2, "repeated": 1}


@pytest.mark.parametrize(
    ("turn", "told", "counted"),
    [
        ("<search> </search>", "The search was empty.", {"empty": 1}),
        ("vitamin</search>", "That was neither a search nor an answer.", {"unclear": 1}),
        ("I think it is scurvy.", "That was neither a search nor an answer.", {"unclear": 1}),
        ("", "That was neither a search nor an answer.", {"unclear": 1}),
        ("<search>zzz</search>", NOTHING, {"searches": 1, "found_nothing": 1}),
    ],
)
def test_a_move_that_leads_nowhere_is_told_and_counted(turn, told, counted, context, continues):
    script = Script(plays((turn, "<answer>Scurvy.</answer>")), continues=continues)
    made = SearchR1("m").expand(tiny(), context).generations[0][0]
    assert made.text == "Scurvy."
    assert told in script.asked[-1].messages[-1].content
    assert context.notes.facts["agent"] == counted


def test_a_model_that_only_searches_is_told_to_finish_and_then_stopped(context, continues):
    endless = [f"<search>gums {number}</search>" for number in range(50)]
    script = Script(plays(endless), continues=continues)
    run = (SearchR1("m", turns=4) >> BM25()).run(tiny(), context)
    assert context.notes.incomplete == {"q1": NO_TURNS}
    assert run == BM25().retrieve(with_texts(tiny(), [QUERIES["q1"], "Uric acid."]), context)
    own = [request.messages[-1].content for request in script.asked if about(request) == "q1"]
    assert len(own) == 4
    assert ["No search is left. Finish now" in text for text in own] == [False, False, False, True]
    with pytest.raises(R2medError, match=f"search-r1.m.*q1: {NO_TURNS}"):
        SearchR1("m", turns=4).expand(tiny(), replace(context, strict=True))


def test_a_model_that_never_stops_meets_the_token_limit(context, continues):
    script = Script(plays([RawAnswer("gums and " * 50, finish="length")]), continues=continues, max_tokens=100)
    SearchR1("m").expand(tiny(), context)
    assert context.notes.incomplete == {"q1": NO_TOKENS}
    assert len(script.asked) == 2


def test_the_token_limit_is_for_the_whole_way(context, continues):
    searches = [f"<search>gums {'and gums ' * number}</search>" for number in range(1, 30)]
    script = Script(plays(searches), continues=continues, max_tokens=60)
    SearchR1("m", turns=30).expand(tiny(), context)
    limits = [request.sampling.max_tokens for request in script.asked if about(request) == "q1"]
    assert limits[0] == 60
    assert limits == sorted(limits, reverse=True)
    assert limits[-1] > 0
    assert len(limits) < 12
    assert context.notes.incomplete == {"q1": NO_TOKENS}


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        ((AttemptError("the server fell over", retry=False),), "the server fell over"),
        ((R1_TURNS[0], AttemptError("no more", retry=False)), "no more"),
        (("I'm sorry, but I cannot help with that.",), "the model refused"),
        ((R1_TURNS[0], RawAnswer("", refusal="no")), "the model refused"),
        ((R1_TURNS[0], "<answer>I cannot answer this.</answer>"), "the model refused"),
    ],
)
def test_a_conversation_that_breaks_off_is_incomplete(turns, reason, context):
    Script(plays(turns))
    made = SearchR1("m").expand(tiny(), context).generations[0][0]
    assert (made.text, made.incomplete) == ("", reason)
    assert context.notes.incomplete == {"q1": reason}


def test_a_refusal_that_goes_on_to_search_is_none(context):
    Script(plays(("I cannot answer without a search. <search>gums</search>", "<answer>Scurvy.</answer>")))
    assert SearchR1("m").expand(tiny(), context).generations[0][0].text == "Scurvy."


QWQ = (
    "Bleeding gums. I must end with <answer> and </answer>. <|begin_search_query|>vitamin C gums",
    "So it is scurvy.</think>\n\nScurvy is a lack of vitamin C.",
)


def test_search_o1_condenses_documents_apart_and_goes_on_reasoning(context):
    script = Script(plays(QWQ, ("Clear.</think>Uric acid.",)), trace="think")
    made = SearchO1("m").expand(tiny(), context).generations
    assert [row[0].text for row in made] == ["Scurvy is a lack of vitamin C.", "Uric acid."]
    condense = next(prompt for prompt in script.prompts if prompt.startswith("Somebody"))
    assert QUERIES["q1"] in condense
    assert "Search:\nvitamin C gums" in condense
    assert f"[1] {DOCUMENTS['gums']}" in condense or f"[1] {DOCUMENTS['scurvy']}" in condense
    assert "Bleeding gums." in condense
    last = script.asked[-1].messages[-1]
    # The chat template opened the reasoning; it must be opened again where the model goes on.
    assert last.content.startswith("<think>\nBleeding gums.")
    assert last.content.endswith("<|begin_search_result|>Condensed.<|end_search_result|>\n\n")
    assert DOCUMENTS["scurvy"] not in made[0][0].reasoning
    assert script.asked[0].stop == ("<|end_search_query|>",)
    assert context.notes.facts["account"]["requests"] == 4


@pytest.mark.parametrize(
    ("trace", "ending", "text"),
    [
        ("think", "So.</think><answer>Scurvy.</answer>", "Scurvy."),
        ("think", "So <answer>gout</answer> is wrong.</think>Scurvy.", "Scurvy."),
        ("think-tags", "So.</think>Scurvy.", "Scurvy."),
        ("sky", "So.<|end_of_thought|><|begin_of_solution|>Scurvy.<|end_of_solution|>", "Scurvy."),
        ("huatuo", "So.\n\n## Final Response\n\nScurvy.", "Scurvy."),
        ("none", "So. <answer>Scurvy.</answer>", "Scurvy."),
        ("auto", "So. <answer>Scurvy.", "Scurvy."),
    ],
)
def test_search_o1_takes_the_answer_of_every_kind_of_reasoner(trace, ending, text, context, continues):
    start = "<think>" if trace == "think-tags" else ""
    first = f"{start}Gums. <|begin_search_query|>gums<|end_search_query|>"
    if not continues and trace == "think-tags":
        ending = f"<think>{ending}"
    Script(plays((first, ending), (f"{start}{ending}",)), trace=trace, continues=continues)
    made = SearchO1("m").expand(tiny(), context).generations
    assert [row[0].text for row in made] == [text, text]


def test_reasoning_in_a_field_of_its_own_is_read_too(context, continues):
    turns = (
        RawAnswer("", reasoning="Gums. <|begin_search_query|>vitamin C"),
        RawAnswer("Scurvy is a lack of vitamin C.", reasoning="So it is. I end with <answer>x y</answer>."),
    )
    script = Script(plays(turns, turns[1:]), trace="think", continues=continues)
    made = SearchO1("m").expand(tiny(), context).generations
    assert [row[0].text for row in made] == ["Scurvy is a lack of vitamin C."] * 2
    assert script.asked[-1].messages[2].content.startswith("<think>\nGums.")


def test_reasoning_that_ends_without_an_answer_is_no_answer(context):
    Script(plays(("So it is scurvy.", "</think>", "still thinking")), trace="think")
    SearchO1("m", turns=3).expand(tiny(), context)
    assert context.notes.incomplete["q1"] == NO_TURNS
    assert context.notes.facts["agent"]["unclear"] >= 2


def test_documents_that_cannot_be_condensed_are_counted(context):
    def answer(request):
        if request.messages[-1].content.startswith("Somebody"):
            raise AttemptError("too long", retry=False)
        return plays(QWQ, ("Clear.</think>Uric acid.",))(request)

    Script(answer, trace="think")
    made = SearchO1("m").expand(tiny(), context).generations[0][0]
    assert made.text == "Scurvy is a lack of vitamin C."
    assert "could not be read" in made.reasoning
    assert context.notes.facts["agent"]["condensing_failed"] == 1
    assert context.notes.facts["account"]["failed"] == 1


def test_samples_are_ways_of_their_own(context):
    def answer(request):
        if request.sample == 0:
            return "<answer>At once.</answer>"
        return plays(R1_TURNS, R1_TURNS)(request)

    Script(answer)
    made = SearchR1("m", samples=2).expand(tiny(), context).generations
    assert [[each.text for each in row] for row in made] == [["At once.", "Scurvy, a lack of vitamin C."]] * 2


def test_the_same_command_again_asks_nothing(context, client):
    script = Script(plays(R1_TURNS, R1_TURNS))
    first = SearchO1("m", turns=4).expand(tiny(), context).generations
    asked = len(script.asked)
    assert SearchO1("m", turns=4).expand(tiny(), context).generations == first
    assert len(script.asked) == asked
    assert client.estimate(SearchO1("m", turns=4).requests(tiny(), context)).cached == 2


def test_the_key_changes_with_the_tool_and_the_prompts():
    specs = ["search-r1(local)", "search-o1(local)", "search-r1(local, docs=4)", "search-r1(local, tool=bm25(k1=2.0))"]
    assert len({System.parse(f"{spec} >> bm25").key() for spec in specs}) == 4
    described = SearchO1("local").describe()
    assert (described["tool"], described["turns"], described["docs"]) == ("bm25", 10, 10)


pieces = st.sampled_from(
    [
        "<think>",
        "</think>",
        "<search>",
        "</search>",
        "<answer>",
        "</answer>",
        "<information>",
        "</information>",
        "<|begin_search_query|>",
        "<|end_search_query|>",
        "<|begin_search_result|>",
        "<|end_search_result|>",
        "gums",
        " vitamin C ",
        "\n",
        "I cannot answer",
        "x" * 600,
    ]
)
turns = st.lists(st.tuples(st.lists(pieces, max_size=8).map("".join), st.sampled_from(["stop", "length"])), min_size=1)


@settings(max_examples=60, deadline=None)
@given(st.data(), turns, st.booleans(), st.sampled_from(["auto", "think", "answer", "think-tags", "none", "sky"]))
def test_whatever_a_model_says_every_way_ends_and_every_request_is_well_formed(
    tmp_path_factory, data, said, continues, trace
):
    agent = data.draw(st.sampled_from([SearchR1, SearchO1]))
    script = Script(
        lambda request: RawAnswer(said[turn_of(request) % len(said)][0], finish=said[turn_of(request) % len(said)][1]),
        trace=trace,
        continues=continues,
    )
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        # Answers are kept: those to another example's script must not be taken for this one's.
        patch.setenv("R2MED_HOME", str(folder))
        context = Context(Cache(folder / "cache"), quiet())
        with session():
            expanded = agent("m", turns=4, samples=2).expand(tiny(), context)
    assert script.asked
    assert [len(row) for row in expanded.generations] == [2, 2]
    for row in expanded.generations:
        for made in row:
            assert bool(made.text.strip()) != bool(made.incomplete)
    # Four turns at the most, and a search may cost one more request to read what it found.
    assert len(script.asked) <= 2 * 2 * (4 + 3)
    for request in script.asked:
        roles = [message.role for message in request.messages]
        assert roles[:2] == ["system", "user"]
        assert all(one != other for one, other in itertools.pairwise(roles))
        assert roles[-1] == "user" or continues
        assert all(message.content.strip() for message in request.messages)


@pytest.mark.parametrize("kind", [SearchR1, SearchO1])
def test_a_dry_run_prices_all_turns_as_kept_conversations_went(kind, context):
    """The oracle is the bill of a run over other samples of the same questions."""
    search = ("<search>", "</search>") if kind is SearchR1 else ("<|begin_search_query|>", "<|end_search_query|>")
    turns = (f"Gums.{search[0]} vitamin C {search[1]}", "<answer>Scurvy.</answer>")
    Script(plays(turns, turns))
    stage = kind("m", turns=4)
    before = stage.forecast(tiny(), context)
    assert before["requests of further turns"] == (1 if kind is SearchR1 else 2) * 2 * 3
    assert "a default" in before["length of further turns"]
    assert before["prompt tokens of further turns"] > before["prompt tokens of the first turn"]
    stage.expand(tiny(), context)
    bill = context.notes.facts["account"]
    known = replace(stage, temperature=0.9).forecast(tiny(), context)
    parts = ("of the first turn", "of further turns")
    assert sum(known[f"requests {part}"] for part in parts) == bill["requests"]
    assert sum(known[f"completion tokens {part}"] for part in parts) == pytest.approx(bill["completion_tokens"], abs=3)
    assert sum(known[f"prompt tokens {part}"] for part in parts) == pytest.approx(bill["prompt_tokens"], rel=0.05)
    assert "the mean of" in known["length of further turns"]
