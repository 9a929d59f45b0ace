"""What is found of a task in rows of texts, and what is not."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leaking import WORDS, changed, checked, dataset, find, pairs, words, write_rows

from r2med.data.loader import load
from r2med.errors import R2medError
from r2med.leakage.index import COMMON, GRAM, METHODS, Settings
from r2med.lexical.hashes import normalise

NOISE = words(200, 99)


def swapped(text: str) -> str:
    """The second half of a text before the first."""
    parts = text.split()
    return " ".join(parts[len(parts) // 2 :] + parts[: len(parts) // 2])


@pytest.fixture(scope="module")
def biology():
    return load("sample/Biology")


@pytest.mark.parametrize(
    ("change", "method"),
    [
        (lambda text: text, "exact"),
        (lambda text: text.upper().replace(".", " !"), "normalised"),
        (lambda text: f"{NOISE} {text} {NOISE}", "ngram"),
        (swapped, "near"),
        (lambda text: changed(text, 0.1), "near"),
    ],
    ids=["exact", "normalised", "embedded", "reordered", "10% changed"],
)
def test_planted_texts_of_the_sample_are_found(change, method: str, biology, tmp_path) -> None:
    collection, gold = biology.collection, biology.gold
    positive = next(iter(gold.qrels[collection.queries.ids[3]]))
    others = {document for judged in gold.qrels.values() for document in judged}
    plain = next(name for name in collection.documents.ids if name not in others)
    rows = [
        {"query": NOISE, "pos": [NOISE, change(collection.queries.texts[3])]},
        {"text": NOISE},
        {"nested": {"deep": [[change(collection.documents.text(positive))]]}, "label": 1},
        {"text": change(collection.documents.text(plain)), "other": None},
    ]
    report = checked(write_rows(tmp_path / "train.jsonl", rows))
    assert pairs(report) == {
        (1, "sample/Biology", "query", collection.queries.ids[3], method),
        (3, "sample/Biology", "positive", positive, method),
        (4, "sample/Biology", "document", plain, method),
    }
    shares = report.tasks[0]
    assert (shares.queries.affected, shares.positives.affected, shares.documents.affected) == (1, 1, 2)
    assert shares.queries.total == len(collection.queries)
    assert shares.documents.total == len(collection.documents)
    assert shares.positives.total == len(others)
    assert shares.documents.methods == {method: 2}
    assert report.leaks()


def test_clean_training_data_is_clean(tmp_path) -> None:
    report = checked(write_rows(tmp_path / "train.jsonl", [{"text": NOISE}, {"n": 1}]), "sample")
    assert not report.leaks(documents=True)
    assert report.pairs == 0
    assert len(report.tasks) == 8
    assert all(task.queries.share == task.documents.share == 0 for task in report.tasks)


def test_documents_alone_leak_only_when_they_count(biology, tmp_path) -> None:
    judged = {document for grades in biology.gold.qrels.values() for document in grades}
    text = next(text for name, text in biology.collection.documents if name not in judged)
    report = checked(write_rows(tmp_path / "train.jsonl", [{"text": text}]))
    assert not report.leaks()
    assert report.leaks(documents=True)


runs_of_words = st.lists(st.sampled_from(WORDS[:3]), min_size=5, max_size=30).map(" ".join)


@settings(max_examples=60)
@given(st.lists(runs_of_words, min_size=1, max_size=4), st.lists(st.lists(runs_of_words, max_size=3), max_size=4))
def test_shared_runs_are_counted_as_sets_would_count_them(documents: list[str], rows: list[list[str]]) -> None:
    data = dataset(documents)
    with tempfile.TemporaryDirectory() as folder:
        found = find(data, rows, Path(folder), methods=("ngram",))

    def grams(text: str) -> set[tuple[str, ...]]:
        parts = normalise(text).split()
        # Texts too short for a run of 13 words are looked for as a whole.
        length = min(GRAM, len(parts))
        return {tuple(parts[at : at + length]) for at in range(len(parts) - length + 1)}

    wanted = {}
    for number, texts in enumerate(rows, 1):
        for name, document in [*data.collection.documents, *data.collection.queries]:
            length, mine = min(GRAM, len(document.split())), grams(document)
            held = {
                tuple(parts[at : at + length])
                for parts in (normalise(text).split() for text in texts)
                for at in range(len(parts) - length + 1)
            }
            if mine & held:
                wanted[number, name] = ("ngram", pytest.approx(len(mine & held) / len(mine)))
    assert found == wanted


def test_a_run_of_13_words_is_enough_and_one_of_12_is_not(tmp_path) -> None:
    document = words(50, 1).split()
    rows = [[f"{NOISE} {' '.join(document[20 : 20 + length])} {NOISE}"] for length in (12, 13, 14)]
    found = find(dataset([" ".join(document)]), rows, tmp_path)
    assert found == {
        (2, "d0"): ("ngram", pytest.approx(1 / 38)),
        (3, "d0"): ("ngram", pytest.approx(2 / 38)),
    }


def test_a_run_does_not_reach_from_one_text_into_the_next(tmp_path) -> None:
    document = words(30, 1).split()
    rows = [[" ".join(document[:12]), " ".join(document[12:24])], [" ".join(document[:24])]]
    assert {row for row, _ in find(dataset([" ".join(document)]), rows, tmp_path, methods=("ngram",))} == {2}


def test_overlap_asks_for_more_than_one_run(tmp_path) -> None:
    document = words(62, 1)
    half = f"{NOISE} {' '.join(document.split()[:37])} {NOISE}"
    assert find(dataset([document]), [[half]], tmp_path, overlap=0.5) == {(1, "d0"): ("ngram", 0.5)}
    assert find(dataset([document]), [[half]], tmp_path, overlap=0.51) == {}


def test_short_queries_are_found_inside_longer_texts(tmp_path) -> None:
    query = "which vitamin do sailors lack at sea"
    data = dataset([NOISE], [query, f"{query} today", "sailors lack vitamins at sea often"])
    rows = [[f"{words(20, 1)} Which vitamin do SAILORS lack, at sea? {words(20, 2)}"], [query[:-4]], [f"x {query}"]]
    found = find(data, rows, tmp_path)
    assert found.pop((3, "q0")) == ("near", pytest.approx(6 / 7))
    assert found.pop((3, "q1"), None) == ("near", pytest.approx(6 / 8))
    assert found.pop((2, "q0")) == ("near", pytest.approx(5 / 6))
    assert found.pop((2, "q1")) == ("near", pytest.approx(5 / 7))
    assert found == {(1, "q0"): ("ngram", 1.0)}


def test_texts_of_few_words_are_not_compared_unless_asked_for(tmp_path) -> None:
    data = dataset(["A", "Introduction", "Acute renal failure", words(9, 1)])
    rows = [["a"], ["introduction"], ["acute renal failure"], [words(9, 1)]]
    assert find(data, rows, tmp_path).keys() == {(4, "d3")}
    assert find(data, rows, tmp_path, min_words=3).keys() == {(3, "d2"), (4, "d3")}
    assert find(data, rows, tmp_path, min_words=1).keys() == {(1, "d0"), (2, "d1"), (3, "d2"), (4, "d3")}
    assert find(data, rows, tmp_path, min_words=10) == {}
    longer = words(40, 2)
    assert find(dataset([longer]), [[f"{NOISE} {longer}"]], tmp_path, min_words=40).keys() == {(1, "d0")}
    assert find(dataset([longer]), [[f"{NOISE} {longer}"]], tmp_path, min_words=41) == {}


def test_too_short_texts_are_counted(tmp_path) -> None:
    report = checked(write_rows(tmp_path / "train.jsonl", [{"text": NOISE}]), min_words=10_000)
    shares = report.tasks[0]
    assert shares.queries.too_short == shares.queries.total
    assert shares.documents.too_short == shares.documents.total


def test_every_id_of_a_repeated_text_is_affected(tmp_path) -> None:
    text = words(40, 1)
    documents = [text, text.upper(), words(40, 2), *[text] * (COMMON + 5)]
    found = find(dataset(documents, [text]), [[text], [f"{NOISE} {text} {NOISE}"]], tmp_path)
    same = {"d0", "q0", *(f"d{n}" for n in range(3, len(documents)))}
    assert {name for (row, name), how in found.items() if row == 1 and how == ("exact", 1.0)} == same
    assert found[1, "d1"] == ("normalised", 1.0)
    assert {name for row, name in found if row == 2} == {*same, "d1"}


def test_a_formula_of_many_texts_is_nobodys_content(tmp_path) -> None:
    formula = words(20, 5)
    many = [f"{words(40, n)} {formula}" for n in range(COMMON + 1)]
    assert find(dataset(many), [[formula]], tmp_path / "many") == {}
    few = find(dataset(many[:-1]), [[formula]], tmp_path / "few")
    assert {name for _, name in few} == {f"d{n}" for n in range(COMMON)}


@pytest.mark.parametrize("method", METHODS)
def test_a_method_alone_finds_what_it_finds(method: str, tmp_path) -> None:
    text = words(60, 1)
    rows = [[text], [text.upper()], [changed(text, 0.1)], [f"{NOISE} {text}"]]
    wanted = {"exact": {1}, "normalised": {1, 2}, "near": {1, 2, 3}, "ngram": {1, 2, 3, 4}}
    found = find(dataset([text]), rows, tmp_path, methods=(method,))
    assert {row for row, _ in found} == wanted[method]
    assert {how for how, _ in found.values()} == {method}


def test_only_named_fields_are_looked_at(biology, tmp_path) -> None:
    query = biology.collection.queries.texts[0]
    file = write_rows(tmp_path / "train.jsonl", [{"query": NOISE, "pos": query}, {"query": query}, {"pos": [query]}])
    assert {line for line, *_ in pairs(checked(file))} == {1, 2, 3}
    assert {line for line, *_ in pairs(checked(file, fields=("query",)))} == {2}
    assert {line for line, *_ in pairs(checked(file, fields=("query", "pos")))} == {1, 2, 3}


@pytest.mark.parametrize(
    "wrong",
    [
        {"methods": ("fuzzy",)},
        {"methods": ()},
        {"threshold": 0.4},
        {"threshold": 1.1},
        {"overlap": 2},
        {"min_words": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong) -> None:
    with pytest.raises(R2medError):
        Settings(**wrong)
