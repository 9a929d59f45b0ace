"""A user's own reranker, in the words of the documentation; names that stand for rerankers; cards."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rerank_parts import collection, context, order, run_over

import r2med
from r2med.cli.main import app
from r2med.errors import SpecError
from r2med.pipeline.spec import Call
from r2med.pipeline.system import System
from r2med.rerank.cards import api_cards, card, cards, find_reranker
from r2med.rerank.cross_encoder import CrossEncoder
from r2med.rerank.user import OwnReranker

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "rerankers.md"
FAULTY = '''
class Faulty:
    """Does something wrong for queries that say so."""

    def __init__(self, bias: float = 0.0) -> None:
        self.bias = bias

    def score(self, query, documents):
        if "raise" in query:
            raise KeyError("scurvy")
        if "few" in query:
            return [1.0]
        if "nan" in query:
            return [float("nan")] * len(documents)
        if "none" in query:
            return None
        return [len(document) + self.bias for document in documents]


class Encoder:
    def encode_queries(self, texts): ...

    def encode_documents(self, texts): ...


class Picky:
    def __init__(self):
        raise OSError("no such file: weights.bin")

    def score(self, query, documents):
        return [0.0] * len(documents)
'''

FAILS_ONCE = """
class Faulty:
    def score(self, query, documents):
        return [1 / ("tickle" not in query)] * len(documents)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder from which commands are started, with a module of the user's in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "faulty_module.py").write_text(FAULTY, encoding="utf-8")
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name in ("faulty_module", "my_reranker"):
            del sys.modules[name]


def test_the_example_of_the_documentation_runs(here: Path) -> None:
    code = re.search(r"<!-- file: my_reranker.py -->\n```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    (here / "my_reranker.py").write_text(code[1], encoding="utf-8")
    specs = re.findall(r'r2med run "(bm25 >> my_reranker:[^"]*)"', DOCS.read_text(encoding="utf-8"))
    assert specs
    for spec in specs:
        report = r2med.evaluate(spec, "sample/MedQA-Diag")
        assert not report.failures
        assert not report.results[0].incomplete
        assert report.results[0].metrics != r2med.evaluate("bm25", "sample/MedQA-Diag").results[0].metrics


def test_each_query_that_fails_is_named_and_the_others_survive(here: Path) -> None:
    queries = {"q1": "raise", "q2": "few", "q3": "nan", "q4": "none", "q5": "fine"}
    data, own = collection(queries), context()
    before = run_over(data)
    stage = System.parse("bm25 >> faulty_module:Faulty(depth=4)").stages[1]
    after = stage.rerank(data, before, own)
    assert own.notes.incomplete == {
        "q1": "faulty_module:Faulty failed: faulty_module.py:10: KeyError: 'scurvy'",
        "q2": "1 scores for 4 documents",
        "q3": "the score of d1 is nan",
        "q4": "an array of shape () scores for 4 documents",
    }
    for query in ("q1", "q2", "q3", "q4"):
        assert order(after, query) == order(before, query)
    assert order(after, "q5") == ["d3", "d2", "d1", "d4", "d5"]


def test_the_row_is_marked_incomplete(here: Path) -> None:
    (here / "faulty_module.py").write_text(FAILS_ONCE, encoding="utf-8")
    report = r2med.evaluate("bm25 >> faulty_module:Faulty", "sample/Biology")
    assert list(report.results[0].incomplete) == ["bio-q01"]
    assert "*" in str(report)


def test_options_go_to_the_class_and_specs_round_trip(here: Path) -> None:
    for spec in ("bm25 >> faulty_module:Faulty(depth=4, bias=2.5)", "bm25 >> faulty_module:Faulty"):
        system = System.parse(spec)
        assert str(system) == spec
        assert System.parse(str(system)) == system


def test_an_edited_class_is_another_reranker(here: Path) -> None:
    before = OwnReranker("faulty_module:Faulty").key()
    (here / "faulty_module.py").write_text(FAULTY + "\n# changed\n", encoding="utf-8")
    assert OwnReranker("faulty_module:Faulty").key() != before


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("faulty_module:Faulty(bais=1)", "bais"),
        ("faulty_module:Faulty(3)", "name the options"),
        ("faulty_module:Faulty(depth=many)", "depth must be a whole number"),
        ("faulty_module:Faulty(depth=0)", "depth must be at least 1"),
        ("faulty_module:Nothing", "has no class or function Nothing"),
        ("no_such_module:Faulty", "cannot import no_such_module"),
    ],
)
def test_wrong_specs_are_refused_before_anything_runs(here: Path, spec: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        System.parse(f"bm25 >> {spec}")


def test_a_class_that_cannot_be_made_is_one_line(here: Path) -> None:
    report = r2med.evaluate(["bm25", "bm25 >> faulty_module:Picky"], "sample/Biology")
    assert len(report.results) == 1
    made = "faulty_module:Picky cannot be made: faulty_module.py:28: OSError: no such file: weights.bin"
    assert report.failures[0].message == made


def test_names_that_are_no_rerankers_are_left_to_others(here: Path) -> None:
    for name in ("bge", "bm25", "faulty_module:Encoder", "./", "hf:BAAI/bge-m3", "x@http://localhost:1/v1"):
        assert find_reranker(Call(name)) is None


def test_every_card_is_a_stage() -> None:
    for name, found in cards().items():
        stage = find_reranker(Call(name, (), (("depth", 10),)))
        assert isinstance(stage, CrossEncoder)
        assert str(stage) == f"{name}(depth=10)"
        assert stage.card == found
        assert stage.key() != CrossEncoder(name).key()
        assert stage.requirements.hub[0] == found.id
    assert {"bge-reranker", "monobert", "rankllama"} <= set(cards())
    assert {"cohere", "jina"} <= set(api_cards())


def test_every_reranker_that_is_listed_is_shown_with_what_it_reads_and_answers() -> None:
    listed = json.loads(CliRunner().invoke(app, ["models", "--reranker", "--json"]).stdout)
    assert len(listed) > 20
    for row in listed:
        inside = row["name"].rpartition("(")[2].removesuffix(")")
        for name in {row["name"], inside} - {"voyage"}:  # which is an encoder, too
            shown = json.loads(CliRunner().invoke(app, ["models", "show", name, "--json"]).stdout)
            assert {key: shown[key] for key in row} == row
            assert row["name"].startswith("api-rerank") or (shown["prompt"] and shown["answer"])
    told = CliRunner().invoke(app, ["models", "show", "rank1-7b"]).stdout
    assert "answer           true or false" in told
    assert "Passage: {passage}" in told
    assert "o3-mini" in CliRunner().invoke(app, ["models", "show", "o3-mini"]).stdout


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("colbertv2.0", "unknown model 'colbertv2.0'; did you mean colbertv2?"),
        ("grouprank", "did you mean grouprank-"),
        ("bgee", "did you mean bge?"),
        ("./colbertv2", "no such folder"),
    ],
)
def test_a_model_of_any_kind_is_suggested(asked: str, said: str) -> None:
    ran = CliRunner().invoke(app, ["models", "show", asked])
    assert ran.exit_code == 1
    assert said in str(ran.exception)
    assert ("did you mean" in str(ran.exception)) == ("/" not in asked)


def test_the_published_three_are_as_published() -> None:
    assert (card("bge-reranker").id, card("bge-reranker").max_length) == ("BAAI/bge-reranker-v2-m3", 512)
    assert (card("monobert").id, card("monobert").head) == ("castorini/monobert-large-msmarco", "second")
    rankllama = card("rankllama")
    assert (rankllama.id, rankllama.adapter, rankllama.max_length) == (
        "meta-llama/Llama-2-7b-hf",
        "castorini/rankllama-v1-7b-lora-passage",
        1024,
    )
    assert (rankllama.query, rankllama.document) == ("query: {query}", "document: {document}")


def test_a_card_of_ones_own(own_home: Path) -> None:
    file = own_home / "rerankers.toml"
    file.write_text(
        '[model.mine]\nlike = "monobert"\nid = "me/mine"\n[api.ours]\nid="m"\nurl="http://x/v1"\nkey_env="K"\n'
    )
    assert (card("mine").head, card("mine").id, card("mine").revision) == ("second", "me/mine", "main")
    assert api_cards()["ours"].url == "http://x/v1"
    file.write_text('[api.next]\nlike = "jina"\nid = "next"\n' + file.read_text())
    assert api_cards()["next"] == replace(api_cards()["jina"], name="next", id="next")
    assert str(System.parse("bm25 >> mine(depth=3)")) == "bm25 >> mine(depth=3)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[model.x]\nhead = 'one'", "x: id is missing"),
        ("[model.x]\nid = 'a/b'\nmax_lenght = 3", "unknown field 'max_lenght'; did you mean max_length"),
        ("[model.x]\nid = 3", "id must be a text"),
        ("[model.x]\nid = 'a/b'\nmax_length = true", "max_length must be a whole number"),
        ("[model.x]\nid = 'a/b'\nhead = 'first'", "head must be one of"),
        ("[model.x]\nid = 'a/b'\nquery = 'no place'", "must have {query} in it once"),
        ("[model.x]\nid = 'a/b'\nanswers = ['yes']", "both pieces and answers"),
        ("[model.x]\nid = 'a/b'\npieces = 'one text'", "must be a list of texts"),
        ("[model.x]\nlike = 'nobody'", "is like 'nobody'"),
        ("[model.x]\nid = 'a/b'\nmax_length = 2", "leaves no room"),
        ("[modell.x]\nid = 'a/b'", "unknown table 'modell'"),
        ("[model.x", "not readable as TOML"),
        ("[model.x]\nid = 'a/b'\ninstruction = {exam = 'c'}", "instruction must be a text, not {'exam': 'c'}"),
    ],
)
def test_wrong_cards_say_where_and_what(own_home: Path, text: str, words: str) -> None:
    (own_home / "rerankers.toml").write_text(text)
    with pytest.raises(SpecError, match=re.escape(words)):
        cards()
