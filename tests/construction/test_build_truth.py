"""A build whose truth is known: SciFact, with a judge that answers from its judgements and errs at a stated rate."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import pytest

from building import judgement, part, write_rows, write_tables
from r2med.construction.builder import Builder, init
from r2med.data.loader import load
from r2med.llm.cards import add_model
from r2med.llm.items import ItemStore
from r2med.llm.scripted import scripted
from r2med.measure.score import positive

QUERIES, DEPTH, ERROR = 60, 10, 0.1


def chance(*names: str) -> float:
    """A number from 0 to 1 that only the names decide."""
    return int.from_bytes(hashlib.blake2b("\t".join(names).encode(), digest_size=6).digest(), "big") / 2**48


class Truth:
    """SciFact's claims with real texts of a language model as answer and reasoning; judges that know the judgements."""

    def __init__(self, folder: Path) -> None:
        self.dataset = load(folder)
        self.folder = folder
        queries = self.dataset.collection.queries
        self.claims = {queries.text(name): name for name in sorted(self.dataset.gold.qrels)[:QUERIES]}
        self.documents = {text.strip(): name for name, text in self.dataset.collection.documents}
        self.answers = self._expansions("query2doc")
        self.paths = self._expansions("lamer")

    def _expansions(self, kind: str) -> dict[str, str]:
        file = next(path for path in sorted((self.folder / "expansions").iterdir()) if kind in path.name)
        rows = dict(line.split("\t", 1) for line in file.read_text("utf-8").splitlines() if "\t" in line)
        # The published lines have the claim before what the model wrote, several times.
        return {name: rows[name].replace(claim, "").strip() for claim, name in self.claims.items()}

    def relevant(self, query: str, document: str) -> bool:
        return self.dataset.gold.qrels[query].get(document, 0) > 0

    def judge(self, name: str, rate: float) -> str:
        """A judge who errs about a pair at the rate, each judge about others."""

        def say(request) -> str:
            prompt = request.messages[-1].content
            query, document = self.claims[part(prompt, "Question:")], self.documents[part(prompt, "Passage:")]
            right = chance(name, query, document) >= rate
            return judgement(3, 3) if self.relevant(query, document) == right else judgement(0, 0)

        add_model(scripted(say, name))
        return name

    def reasoner(self) -> str:
        add_model(scripted(lambda r: self.paths[self.claims[part(r.messages[-1].content, "Question:")]], "reasoner"))
        return "reasoner"

    def build(self, place: Path, judges: list[str], until: str = "", **tables) -> Builder:
        init(place)
        rows = [{"id": name, "question": text, "answer": self.answers[name]} for text, name in self.claims.items()]
        write_rows(place / "questions.jsonl", rows)
        plan = {
            "documents": {"path": str(self.folder), "near": 0},
            "chunk": {"tokens": 0},
            "rules": {"on": False},
            "reason": {"model": self.reasoner()},
            "mine": {"depth": DEPTH},
            "judge": {"models": judges, "combine": "min"},
        }
        write_tables(place, plan | tables)
        builder = Builder(place)
        builder.run(until)
        return builder


@pytest.fixture(scope="module")
def truth():
    import needs

    return Truth(needs.collection("scifact"))


def pools(builder: Builder, view: str = "") -> dict[str, set[str]]:
    """Each question's candidates, of all views or of one alone."""
    with ItemStore(builder.folder) as store:
        return {
            question: {
                passage
                for passage, ways in outcome.value["candidates"].items()
                if not view or any(way[1] == view for way in ways)
            }
            for question, outcome in store.stream("mine")
        }


def found(truth: Truth, pool: dict[str, set[str]]) -> int:
    return sum(truth.relevant(query, document) for query, documents in pool.items() for document in documents)


def interval(rate: float, number: int) -> float:
    """Four standard errors of a share: a fair build lies outside once in 16,000 times."""
    return 4 * math.sqrt(rate * (1 - rate) / number)


def test_three_views_find_more_and_labels_are_as_good_as_the_judge_and_the_cuts_say(truth, tmp_path):
    builder = truth.build(tmp_path / "one", [truth.judge("errs", ERROR)])
    whole = pools(builder)
    known = found(truth, whole)
    alone = {view: found(truth, pools(builder, view)) for view in ("question", "answer", "reasoning")}
    assert known > max(alone.values())

    pairs = sum(map(len, whole.values()))
    positives = {
        (query, passage)
        for query, outcome in builder.outcomes["select"].items()
        for passage, verdict in outcome.value["verdicts"].items()
        if verdict == "positive"
    }
    right = sum(truth.relevant(*pair) for pair in positives)
    wrong = len(positives) - right
    assert abs(right / known - (1 - ERROR)) < interval(ERROR, known)
    assert abs(wrong / (pairs - known) - ERROR) < interval(ERROR, pairs - known)

    # Two judges who both must say so: the same pools, the first judge's replies are there already.
    both = truth.build(tmp_path / "two", [truth.judge("errs", ERROR), truth.judge("errs too", ERROR)])
    kept = positive(load(tmp_path / "two" / "task").gold.qrels)
    labels = [(query, document) for query, judged in kept.items() for document in judged]
    true = sum(truth.relevant(*pair) for pair in labels)
    assert pools(both) == whole
    assert abs(true / known - (1 - ERROR) ** 2) < interval((1 - ERROR) ** 2, known)
    assert abs((len(labels) - true) / (pairs - known) - ERROR**2) < interval(ERROR**2, pairs - known)
    expected = known * (1 - ERROR) ** 2
    precision = expected / (expected + (pairs - known) * ERROR**2)
    assert abs(true / len(labels) - precision) < interval(precision, len(labels))
