"""Causes of failure: planted ones are found, and shares are shares."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import r2med
from planted import write_task
from r2med.data.dataset import Generation
from r2med.data.loader import load
from r2med.data.run import Run
from r2med.diagnosis import attribution
from r2med.diagnosis.attribution import beyond_reach, diagnose, read_part
from r2med.diagnosis.causes import LEVELS, Cause, Diagnosis, Placed, QueryCause, changes, moves, overall
from r2med.diagnosis.gap import bare, searches, with_answer
from r2med.encode.encoder import Encoder
from r2med.errors import R2medError
from r2med.llm.budget import Limits
from r2med.llm.cards import add_model
from r2med.llm.client import session
from r2med.llm.scripted import scripted
from r2med.llm.types import Request
from r2med.models.http import AttemptError
from r2med.pipeline.loaded_runs import TOP, LoadedRun, deep_cutoff, load_runs
from r2med.pipeline.system import System
from r2med.runs.ledger import Ledger
from r2med.store.cache import Cache


def of(name: str, folder: Path) -> Diagnosis:
    with Ledger() as ledger:
        (opened,) = next(load_runs(ledger, [name], [str(folder)]))
        return diagnose(opened, ledger)


def causes(found: Diagnosis) -> dict[str, Cause]:
    return {query.query: query.cause for query in found.queries}


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """Sixty documents, so that what stands below place 12 is not found."""
    documents = {f"filler{n}": f"weather report number{n}" for n in range(30)}
    documents |= {f"above{n}": "cough cough cough cough" for n in range(10)}
    documents |= {f"between{n}": "sneeze sneeze sneeze" for n in range(12)}
    documents |= {
        "near": "gout of the toe",
        "eleventh": "cough once in a long text about quite another matter",
        "beyond": "sneeze once in a long text about quite another matter with an itch",
        "bridged": "porphyria is an enzyme defect",
        "apart": "words that nobody asks for",
        "alone": "more words that nobody asks for",
    }
    documents |= {f"more{n}": f"railway timetable number{n}" for n in range(60 - len(documents))}
    queries = {
        "found": "hot toe",
        "low": "cough",
        "deep": "sneeze",
        "bridge": "dark urine and belly pain",
        "unreachable": "stiff neck",
        "undecided": "swollen knee",
    }
    relevant = {
        "found": ["near", "apart"],
        "low": ["eleventh"],
        "deep": ["beyond"],
        "bridge": ["bridged"],
        "unreachable": ["apart"],
        "undecided": ["alone"],
    }
    answers = dict.fromkeys(queries, "meningitis")
    answers |= {"bridge": "acute porphyria", "deep": "itch", "found": "gout"}
    del answers["undecided"]
    return write_task(tmp_path / "planted", documents, queries, relevant, answers)


def test_every_planted_cause_is_found(task: Path) -> None:
    r2med.evaluate("bm25", task)
    found = of("bm25", task)
    assert found.deep == 12
    assert causes(found) == {
        "found": Cause.FOUND,
        "low": Cause.LOW,
        "deep": Cause.BRIDGE,
        "bridge": Cause.BRIDGE,
        "unreachable": Cause.UNREACHABLE,
        "undecided": Cause.UNDECIDED,
    }
    by_query = {query.query: query for query in found.queries}
    assert [placed.cause for placed in by_query["found"].positives] == [Cause.FOUND, Cause.UNREACHABLE]
    assert by_query["low"].positives[0].rank == 11
    assert by_query["deep"].positives[0].rank == 13, "in the list, but too deep to count"
    assert by_query["bridge"].positives[0].rank is None
    assert by_query["bridge"].positives[0].oracle_rank == 1
    assert by_query["undecided"].reason == "the task has no answer to it"


def test_the_search_with_gold_answers_is_kept_and_marked(task: Path) -> None:
    r2med.evaluate("bm25(k1=2)", task)
    found = of("bm25(k1=2)", task)
    with Ledger() as ledger:
        entry = ledger.get(found.oracle)
        assert entry.system == "oracle-answer >> bm25(k1=2)"
        assert entry.oracle is True
        assert of("bm25(k1=2)", task).oracle == found.oracle
        assert len(ledger.entries()) == 2


def test_nothing_is_searched_where_nothing_is_missing(tmp_path: Path) -> None:
    folder = write_task(tmp_path / "t", {"d": "gout"}, {"q": "gout"}, {"q": ["d"]}, {"q": "gout"})
    r2med.evaluate("bm25", folder)
    found = of("bm25", folder)
    assert found.oracle == ""
    assert found.shares()[Cause.FOUND] == 1.0


def test_without_gold_answers_nothing_is_decided(tmp_path: Path) -> None:
    folder = write_task(tmp_path / "t", {"d": "gout"}, {"q": "toe"}, {"q": ["d"]})
    r2med.evaluate("bm25", folder)
    found = of("bm25", folder)
    assert causes(found) == {"q": Cause.UNDECIDED}
    assert found.oracle == ""


def test_a_failed_generation_loses_its_query_only_where_nothing_usable_is_left(task: Path) -> None:
    def answer(request: Request) -> str:
        text = request.messages[-1].content
        if "urine" in text and request.sample == 0:
            raise AttemptError("the server is on fire", retry=False)
        return "stiff neck"

    add_model(scripted(answer, "burning"))
    with session(Limits(retries=0, backoff=0.0)):
        r2med.evaluate(["hyde(burning) >> bm25", "hyde(burning, samples=2) >> bm25"], task)
    lost = {query.query: query for query in of("hyde(burning) >> bm25", task).queries}["bridge"]
    assert lost.cause is Cause.LOST
    assert "on fire" in lost.reason
    again = causes(of("hyde(burning, samples=2) >> bm25", task))
    assert again["bridge"] is Cause.BRIDGE


def test_a_failure_that_is_no_generation_loses_nothing(task: Path) -> None:
    r2med.evaluate("bm25", task)
    with Ledger() as ledger:
        (opened,) = next(load_runs(ledger, ["bm25"]))
        record = replace(opened.entry.record, incomplete={"bridge": "the reranker gave up"})
        again = replace(opened, entry=replace(opened.entry, record=record))
        assert causes(diagnose(again, ledger))["bridge"] is Cause.BRIDGE


def test_lists_shorter_than_the_deep_cutoff_are_noted(task: Path) -> None:
    r2med.evaluate("bm25(depth=11)", task)
    found = of("bm25(depth=11)", task)
    assert len(found.notes) == 1
    assert "lists of 11 documents" in found.notes[0]


def test_changed_data_is_refused(task: Path) -> None:
    r2med.evaluate("bm25", task)
    (task / "corpus.jsonl").write_text((task / "corpus.jsonl").read_text() + '{"id": "new", "text": "gout"}\n')
    with pytest.raises(R2medError, match="has changed since run"):
        of("bm25", task)


# What an encoder does not read


class Words(Encoder):
    """An encoder that only counts words, as one with a prompt of two words."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def settings(self, role):
        return {}

    @property
    def similarity(self):
        return "cosine"

    def load(self):
        raise AssertionError("counting needs no model")

    def lengths(self, texts, role):
        return np.array([2 + len(text.split()) for text in texts], dtype=np.int64)

    def limit(self, role):
        return self._limit

    def encode(self, texts, role):
        raise AssertionError("nothing is encoded")


@given(st.lists(st.text(alphabet="ab \n\u3000", max_size=60), max_size=5), st.integers(2, 12))
def test_the_part_that_is_read_is_the_longest_that_fits(texts: list[str], limit: int) -> None:
    encoder = Words(limit)
    for text, part in zip(texts, read_part(encoder, texts), strict=True):
        assert text.startswith(part)
        words = text.split()
        assert part.split() == words[: max(0, limit - 2)]
        assert part == text or len(words) > limit - 2


def test_an_encoder_without_a_limit_reads_everything() -> None:
    assert read_part(Words(0), ["a b c"]) == ["a b c"]


FILLER = "The railway timetable of the northern line lists every station and every connection of the season in full."


@pytest.fixture
def long_task(tmp_path: Path) -> Path:
    """A relevant document that speaks of the answer at its end, and many others that do so at once."""
    documents = {f"other{n}": f"Porphyria case {n}: dark urine, belly pain." for n in range(30)}
    documents |= {f"filler{n}": f"{FILLER} Platform {n}." for n in range(30)}
    documents |= {"late": f"{FILLER} {FILLER} Porphyria.", "elsewhere": f"{FILLER} {FILLER} A bakery."}
    queries = {"q1": "a railway puzzle with dark urine", "q2": "a puzzle with dark urine"}
    answers = {"q1": "porphyria", "q2": "porphyria"}
    return write_task(tmp_path / "long", documents, queries, {"q1": ["late"], "q2": ["elsewhere"]}, answers)


def test_what_lies_beyond_the_encoder_is_truncated_away(long_task: Path) -> None:
    r2med.evaluate("wordllama(max_length=12)", long_task)
    found = {query.query: query for query in of("wordllama(max_length=12)", long_task).queries}
    assert found["q1"].cause is Cause.TRUNCATED
    assert found["q1"].positives[0].beyond == 1.0
    assert found["q2"].cause is Cause.UNREACHABLE, "it has no word of the answer anywhere"
    assert found["q2"].positives[0].beyond is None


@pytest.mark.parametrize("spec", ["wordllama", "bm25", "rrf(bm25, wordllama(max_length=12))"])
def test_nothing_is_beyond_a_system_that_reads_whole_texts(long_task: Path, spec: str) -> None:
    assert beyond_reach(System.parse(spec), load(long_task), {"q1": ["late"]}) == {}


def test_of_several_encoders_the_furthest_reading_counts(long_task: Path) -> None:
    wanted = {"q1": ["late"]}
    short, longer = "wordllama(max_length=12)", "wordllama(max_length=4000)"
    assert beyond_reach(System.parse(f"rrf({short}, {short})"), load(long_task), wanted) == {("q1", "late"): 1.0}
    assert beyond_reach(System.parse(f"rrf({short}, {longer})"), load(long_task), wanted) == {}


# Oracles


def test_the_bare_system_keeps_every_setting_of_its_retrievers() -> None:
    system = System.parse("replay >> rrf(replay >> bm25(k1=2), views(replay >> bm25-classic), weights=[1, 2], k=7)")
    assert bare(system).spec == "rrf(bm25(k1=2), views(bm25-classic), weights=[1, 2], k=7)"
    assert system.spec.startswith("replay >> rrf(replay >> bm25"), "the system itself is as it was"
    assert with_answer(system).oracle


def test_stored_lists_cannot_be_searched_with_an_answer() -> None:
    assert not searches(System.parse("rrf(bm25, candidates(bm25))"))
    assert searches(System.parse("rrf(bm25, bm25-classic)"))


# Shares

POSITIVES = st.lists(st.sampled_from(Cause), min_size=1, max_size=5)


def diagnosis(queries: list[list[Cause]]) -> Diagnosis:
    placed = [tuple(Placed(f"d{n}", cause, None) for n, cause in enumerate(own)) for own in queries]
    return Diagnosis("s", "t", 10, [QueryCause(f"q{n}", own) for n, own in enumerate(placed)])


@given(st.lists(POSITIVES, min_size=1, max_size=20))
def test_shares_sum_to_one(queries: list[list[Cause]]) -> None:
    found = diagnosis(queries)
    for level in LEVELS:
        assert sum(found.shares(level).values()) == pytest.approx(1.0)
        assert sum(each.value for each in overall([found, found], level).values()) == pytest.approx(1.0)
    assert found.shares("queries")[Cause.FOUND] >= found.shares("documents")[Cause.FOUND]


@given(st.lists(st.tuples(POSITIVES, POSITIVES), min_size=1, max_size=12))
def test_changes_sum_to_nothing_and_moves_to_all_queries(pairs: list[tuple[list[Cause], list[Cause]]]) -> None:
    before, after = diagnosis([one for one, _ in pairs]), diagnosis([other for _, other in pairs])
    for level in LEVELS:
        assert sum(each.value for each in changes([before], [after], level).values()) == pytest.approx(0.0)
    assert sum(moves([before], [after]).values()) == len(pairs)
    assert all(each.value == 0 for each in changes([before], [before]).values())


@given(st.integers(0, 10**6))
def test_the_deep_cutoff_is_never_the_whole_of_a_collection_worth_searching(documents: int) -> None:
    found = deep_cutoff(documents)
    assert TOP <= found <= 100
    assert documents <= 2 * TOP or found <= documents / 2


def test_json_has_every_query_and_both_kinds_of_shares(task: Path) -> None:
    r2med.evaluate("bm25", task)
    found = of("bm25", task).as_dict()
    assert set(found["shares"]) == {"queries", "documents"}
    assert [query["cause"] for query in found["queries"]].count("bridge missing") == 2
    assert found["queries"][0]["positives"][0]["document"] == "near"


def test_a_query_that_the_run_lacks_is_not_found(task: Path) -> None:
    r2med.evaluate("bm25", task)
    with Ledger() as ledger:
        (found,) = next(load_runs(ledger, ["bm25"]))
        rest = found.run.select([query for query in found.run.queries if query != "found"])
        holed = LoadedRun(found.entry, found.dataset, rest, found.values, {"found": [Generation("x", "hyde")]})
        assert causes(diagnose(holed, ledger))["found"] is Cause.BRIDGE


def test_a_diagnosis_is_made_once_and_recalled_whole(task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    r2med.evaluate("bm25", task)
    made = of("bm25", task)
    monkeypatch.setattr(attribution, "_facts", lambda *_: pytest.fail("decided again"))
    assert of("bm25", task) == made


def test_a_run_that_was_made_again_is_diagnosed_again(task: Path) -> None:
    r2med.evaluate("bm25", task)
    of("bm25", task)
    with Ledger() as ledger:
        entry = next(each for each in ledger.entries(system="bm25"))
        nothing = Run.from_lists({query: ([], []) for query in entry.queries})
        ledger.add(replace(entry, created="", scores=ledger.scores(entry)), nothing)
        entry = ledger.get(entry.id)
        ledger.add(replace(entry, seconds=entry.seconds + 1, scores=ledger.scores(entry)), nothing)
    assert Cause.FOUND not in causes(of("bm25", task)).values()


def test_a_diagnosis_without_its_search_or_damaged_is_made_again(task: Path) -> None:
    r2med.evaluate("bm25", task)
    made = of("bm25", task)
    with Ledger() as ledger:
        ledger.remove([ledger.get(made.oracle)])
    again = of("bm25", task)
    assert again == made
    with Ledger() as ledger:
        assert ledger.get(made.oracle)
    (file,) = (Cache.default().root / "causes").glob("*/diagnosis.json")
    for damage in (b"", b"{}", file.read_bytes()[:-20], b"[]", file.read_bytes().replace(b"1", b"0")):
        file.write_bytes(damage)
        assert of("bm25", task) == made
