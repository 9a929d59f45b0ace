"""HyDE, Query2Doc, LameR and plain answers: what is asked, how it joins, what happens when nothing usable comes."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
from expanding import DOCUMENTS, QUERIES, Script, about, says, tiny, with_texts

from r2med import evaluate
from r2med.data.dataset import Dataset, Generation, Gold
from r2med.data.loader import load
from r2med.data.tasks import registry
from r2med.errors import R2medError, SpecError
from r2med.expand.methods import Answer as PlainAnswer
from r2med.expand.methods import HyDE, LameR, Query2Doc
from r2med.llm.types import RawAnswer
from r2med.models.http import AttemptError
from r2med.models.templates import FAMILIES, bundled
from r2med.pipeline.evaluate import Options
from r2med.pipeline.system import System
from r2med.retrieve.bm25 import BM25
from r2med.runs.ledger import Ledger

TEXT = "Scurvy: a lack of vitamin C in which collagen fails."
OTHER = "Crystals of uric acid."
METHODS = ("hyde", "query2doc", "lamer", "answer")


@pytest.mark.parametrize(
    ("method", "joined"),
    [
        ("hyde", "{d}"),
        ("query2doc", "{q} {q} {d}"),
        ("lamer", "{q} {d}"),
        ("answer", "{d}"),
        ("hyde(join=concat)", "{q} {d}"),
        ("query2doc(join=replace)", "{d}"),
        ("lamer(join=repeat(3))", "{q} {q} {q} {d}"),
    ],
)
def test_bm25_searches_with_the_text_as_the_protocol_joins_it(method, joined, context):
    Script(says(TEXT, OTHER))
    name, _, options = method.partition("(")
    system = System.parse(f"{name}(m, {options or ')'} >> bm25")
    texts = [joined.format(q=q, d=d) for q, d in zip(QUERIES.values(), (TEXT, OTHER), strict=True)]
    expected = BM25().retrieve(with_texts(tiny(), texts), context)
    assert system.run(tiny(), context) == expected
    plain = BM25().retrieve(tiny(), context)
    assert expected != plain


def test_a_mean_needs_a_dense_retriever(context):
    Script(says(TEXT))
    with pytest.raises(SpecError, match="needs a dense retriever"):
        System.parse("hyde(m, join=mean) >> bm25").run(tiny(), context)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("<think>Gums bleed, so", "the reasoning never ended"),
        (RawAnswer("<think>Gums bleed, so", finish="length"), "cut by the token limit inside the reasoning"),
        ("I'm sorry, but I cannot help with that.", "the model refused"),
        (RawAnswer("", refusal="no"), "the model refused"),
        ("  \n", "empty answer"),
        (AttemptError("the server fell over", retry=False), "the server fell over"),
    ],
)
def test_without_a_usable_text_the_query_stands_for_itself_and_is_counted(broken, reason, context):
    def answer(request):
        found = broken if about(request) == "q1" else OTHER
        if isinstance(found, AttemptError):
            raise found
        return found

    Script(answer)
    run = System.parse("hyde(m) >> bm25").run(tiny(), context)
    assert run == BM25().retrieve(with_texts(tiny(), [QUERIES["q1"], OTHER]), context)
    assert context.notes.incomplete == {"q1": reason}
    with pytest.raises(R2medError, match=f"1 of 2 queries are incomplete.*q1: {reason}"):
        HyDE("m").expand(tiny(), replace(context, strict=True))


def test_reasoning_is_kept_and_never_searched_with(context):
    Script(says("<think>maybe gout</think>Scurvy.", RawAnswer("Uric acid.", reasoning="the big toe")))
    expanded = HyDE("m").expand(tiny(), context)
    assert [row[0] for row in expanded.generations] == [
        Generation("Scurvy.", "hyde", "scripted:m", "maybe gout"),
        Generation("Uric acid.", "hyde", "scripted:m", "the big toe"),
    ]


def test_samples_are_several_texts_and_one_that_fails_is_named(context):
    def answer(request):
        return "" if about(request) == "q2" and request.sample == 1 else f"text {request.sample}"

    script = Script(answer)
    expanded = HyDE("m", samples=3).expand(tiny(), context)
    assert [[each.text for each in row] for row in expanded.generations] == [
        ["text 0", "text 1", "text 2"],
        ["text 0", "", "text 2"],
    ]
    assert context.notes.incomplete == {"q2": "1 of 3 samples: empty answer"}
    assert len(script.asked) == 6


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", [*(name for name in registry() if "/" not in name), "nano/IIYi-Clinical"])
def test_every_task_has_its_words_in_every_prompt(method, name, context):
    script = Script(lambda request: TEXT)
    collection = tiny(name, {"q1": "What is {noun}? {passages} $x {}"})
    System.parse(f"{method}(m) >> bm25").run(collection, context)
    prompt = script.prompts[0]
    assert "What is {noun}? {passages} $x {}" in prompt
    assert collection.task.noun in prompt
    rest = prompt.replace("What is {noun}? {passages} $x {}", "")
    assert not re.search(r"\{[a-z]+\}", rest)
    if method != "answer":
        assert collection.task.purpose in prompt
    assert script.asked[0].messages[0].role == "system"


def test_a_task_of_an_unknown_family_takes_the_general_prompts():
    task = replace(registry()["Biology"], family="something else")
    assert HyDE("local").template(task) == bundled("hyde.custom", "r2med.expand")
    for family in FAMILIES:
        assert HyDE("local").template(replace(task, family=family)).source == f"hyde.{family}.txt"


@pytest.mark.parametrize("family", FAMILIES)
def test_query2doc_is_hyde_with_examples_that_are_not_in_the_data(family):
    hyde, query2doc = (
        bundled(f"hyde.{family}", "r2med.expand").text,
        bundled(f"query2doc.{family}", "r2med.expand").text,
    )
    examples, _, task = query2doc.partition("Now the task.\n\n")
    assert task == hyde
    shown = re.findall(r"(?:Post|Case|Question):\n(.+)", examples)
    assert len(shown) >= 2
    for name in registry():
        if name.startswith("sample/"):
            texts = set(load(name).collection.queries.texts)
            assert not texts & set(shown)


def test_lamer_shows_what_the_first_search_found_numbered_and_cut(context):
    script = Script(says(TEXT))
    LameR("m", "bm25-classic", 2, words=4).expand(tiny(), context)
    found = System.parse("bm25-classic").run(tiny(), context)["q1"].documents
    assert len(found) > 2
    cut = [" ".join(DOCUMENTS[document].split()[:4]) for document in found[:2]]
    assert f"[1] {cut[0]}\n\n[2] {cut[1]}\n\n" in script.prompts[0]
    assert "[3]" not in script.prompts[0]
    assert "wrong" in script.prompts[0]


def test_lamer_by_default_shows_ten_passages_of_bm25_of_512_words(context):
    script = Script(lambda request: TEXT)
    collection = tiny(queries={"q1": "gums"})
    long = replace(
        collection,
        documents=type(collection.documents)([f"d{n:02}" for n in range(12)], [f"gums{' word' * 600}"] * 12),
    )
    LameR("m").expand(long, context)
    passages = re.findall(r"\[(\d+)\] (.+)", script.prompts[0])
    assert [int(number) for number, _ in passages] == list(range(1, 11))
    assert {len(text.split()) for _, text in passages} == {512}


def test_lamer_without_any_passage_says_so_and_hands_on_what_failed_before_it(context):
    script = Script(says("<think>", "toe"), "first")
    Script(lambda request: "x", "second")
    last = Script(lambda request: TEXT, "m")
    LameR("m", "hyde(first) >> bm25").expand(tiny(queries={**QUERIES, "q3": "zzz"}), context)
    assert "(nothing was found)" not in last.prompts[0]
    assert context.notes.incomplete == {"q1": "the reasoning never ended"}
    assert len(script.asked) == 3
    LameR("m").expand(tiny(queries={"q3": "zzz"}), context)
    assert "(nothing was found)" in last.prompts[-1]


def test_a_prompt_of_ones_own(tmp_path, context):
    file = tmp_path / "my prompt.txt"
    file.write_text("Tell me of {query} {x} {noun}.\n", encoding="utf-8")
    script = Script(says(TEXT))
    stage = HyDE("m", prompt=str(file))
    stage.expand(tiny(), context)
    assert script.prompts[0] == f"Tell me of {QUERIES['q1']} {{x}} Biology post."
    record = context.notes.facts
    assert record["prompt"]["source"] == str(file)
    assert record["first_prompt"] == script.prompts[0]
    before, other = stage.key(), HyDE("m").key()
    file.write_text("Tell me about {query}", encoding="utf-8")
    assert len({before, stage.key(), other}) == 3
    system = System.parse(str(stage >> BM25()))
    assert system == stage >> BM25()


@pytest.mark.parametrize(
    ("content", "method", "said"),
    [
        (None, "hyde", "cannot read the prompt"),
        (b"no place", "hyde", "must have {query}"),
        (b"{query}", "lamer", "must have {passages}"),
        (b"\xff{query}", "answer", "not UTF-8"),
    ],
)
def test_a_prompt_that_cannot_serve_is_refused_before_anything_runs(content, method, said, tmp_path):
    file = tmp_path / "p.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SpecError, match=re.escape(said)) as caught:
        System.parse(f'{method}(local, prompt="{file}") >> bm25')
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("hyde >> bm25", "lacks llm"),
        ("hyde(gpt-4p) >> bm25", "unknown model 'gpt-4p'; did you mean gpt-4o"),
        ("hyde(local, samples=0) >> bm25", "samples must be 1 or more"),
        ("hyde(local, temperature=-1) >> bm25", "temperature must not be negative"),
        ("hyde(local, max_tokens=0) >> bm25", "max_tokens must be 1 or more"),
        ("hyde(local, join=sideways) >> bm25", "join must be replace, concat, mean"),
        ("lamer(local, depth=0) >> bm25", "depth and words must be 1 or more"),
        ("lamer(local, first=hyde(local)) >> bm25", "no retriever"),
        ("search-r1(local, turns=0) >> bm25", "turns must be 1 or more"),
        ("search-o1(local, tool=nothing) >> bm25", "unknown stage 'nothing'"),
    ],
)
def test_wrong_options_are_one_line(spec, said):
    with pytest.raises(SpecError, match=said) as caught:
        System.parse(spec)
    assert "\n" not in str(caught.value)


def test_sampling_may_be_overridden_and_changes_the_key():
    stage = HyDE("gpt-4o", temperature=0.0, max_tokens=64)
    assert (stage.model.sampling.temperature, stage.model.sampling.max_tokens) == (0.0, 64)
    assert stage.model.sampling.top_p == HyDE("gpt-4o").model.sampling.top_p
    assert stage.fingerprint()["sampling"] != HyDE("gpt-4o").fingerprint()["sampling"]
    assert HyDE("gpt-4o").requirements.key == "OPENAI_API_KEY"
    assert len({stage.key(), HyDE("gpt-4o").key(), HyDE("gpt-4o-mini").key(), Query2Doc("gpt-4o").key()}) == 4
    assert str(stage) == "hyde(gpt-4o, temperature=0, max_tokens=64)"


def test_a_result_remembers_what_was_asked_and_what_it_took(context):
    script = Script(says(RawAnswer(TEXT, finish="length"), "<think>so"))
    start = time.perf_counter()
    expanded = PlainAnswer("m", max_tokens=32).expand(tiny(), context)
    whole = time.perf_counter() - start
    record = context.notes.facts
    assert record["model"] == "scripted:m"
    assert record["sampling"] == {"max_tokens": 32}
    assert record["first_prompt"] == script.prompts[0]
    assert record["prompt"] == {
        "source": "answer.qa-reference.txt",
        "hash": bundled("answer.qa-reference", "r2med.expand").hash,
    }
    account = record["account"]
    assert (account["requests"], account["incomplete"], account["cost"]) == (2, 1, 0.0)
    assert account["completion_tokens"] > 0
    assert record["cut_by_limit"] == 1
    assert 0 < record["seconds"] <= whole, "the time of the requests is a part of the whole"
    assert expanded.generations[0] == (Generation(TEXT, "answer", "scripted:m"),)
    assert expanded.generations[1][0].incomplete


@pytest.mark.parametrize("method", [*METHODS, "search-r1", "search-o1"])
def test_a_plan_asks_nothing_and_shows_the_first_prompt(method, context):
    script = Script(says(TEXT))
    (stage, _) = System.parse(f"{method}(m, samples=2) >> bm25").stages
    facts = stage.forecast(tiny(), context)
    assert not script.asked
    assert QUERIES["q1"] in facts["first prompt"]
    requests = next(value for name, value in facts.items() if name.startswith("requests"))
    assert requests == 4
    assert next(value for name, value in facts.items() if name.startswith("prompt tokens")) > 100
    if method == "lamer":
        assert "(10 passages by bm25)" in facts["first prompt"]
    assert stage.forecast(tiny(queries={}), context)
    stage.expand(tiny(), context)
    if method in ("hyde", "query2doc", "answer"):
        assert script.prompts[0] == facts["first prompt"]
        assert stage.forecast(tiny(), context)["answered already"] == 4


def test_what_is_planned_is_what_is_asked(context, client):
    script = Script(says(TEXT))
    stage = LameR("m", samples=2)
    planned = stage.requests(tiny(), context)
    assert client.estimate(planned).requests == 4
    assert not script.asked
    stage.expand(tiny(), context)
    assert sorted(r.key() for r in script.asked) == sorted(r.key() for r in planned)
    assert client.estimate(planned).cached == 4


def test_one_command_asks_once_whatever_retrievers_follow_and_so_does_the_next():
    script = Script(says(TEXT))
    collection = tiny()
    dataset = Dataset(collection, Gold({"q1": {"scurvy": 1}, "q2": {"gout": 1}}))
    systems = ["hyde(m) >> bm25", "hyde(m) >> bm25-classic", "rrf(hyde(m) >> bm25, bm25)"]
    first = evaluate(systems, dataset)
    assert not first.failures
    assert len(script.asked) == 2
    again = evaluate(systems, dataset, Options(fresh=True))
    assert len(script.asked) == 2
    assert [result.metrics for result in again.results] == [result.metrics for result in first.results]
    with Ledger() as ledger:
        for result in first.results[:2]:
            assert ledger.generations(ledger.get(result.id))["q1"] == [Generation(TEXT, "hyde", "scripted:m")]


def test_expanders_compose(context):
    Script(says(TEXT), "a")
    Script(says("Vitamin C.", "Toe."), "b")
    expanded = System.parse("hyde(a) >> answer(b) >> bm25")
    run = expanded.run(tiny(), context)
    texts = [f"{TEXT} Vitamin C.", f"{OTHER} Toe."]
    assert run == BM25().retrieve(with_texts(tiny(), texts), context)


def test_no_queries_is_no_request(context):
    script = Script(says(TEXT))
    assert LameR("m").expand(tiny(queries={}), context).generations == ()
    assert not script.asked
