"""Measures of aspects equal ndeval's and those of BRIGHT-Pro; judgements with aspects are read, scored and refused."""

from __future__ import annotations

import json

import pytest

import r2med
from r2med.data.loader import load
from r2med.data.qrels import read_qrels
from r2med.data.run import Run
from r2med.data.validate import validate
from r2med.errors import DataError
from r2med.measure.metrics import Measure, parse_all
from r2med.measure.score import score

QUERIES = ("q1", "q2", "q3")
LISTS = {
    query: list(dict.fromkeys(f"d{(number * rank * 7 + 3 * rank + number) % 19:02}" for rank in range(19)))
    for number, query in enumerate(QUERIES, 1)
}
# By pyndeval 0.0.8, of the table of `diversity`: alpha-nDCG@5, alpha-nDCG@10, strec@1 and strec@5.
NDEVAL = {
    "q1": [0.818611, 0.84575, 0.25, 1.0],
    "q2": [0.396824, 0.537141, 0.0, 1.0],
    "q3": [0.618831, 0.713399, 0.25, 1.0],
}
# By the evaluation scripts of yale-nlp/Bright-Pro (b31d5f1), of the table of `bright_pro`: weighted alpha-nDCG at 5 and
# 25, weighted aspect recall at 2 and 5.
BRIGHT_PRO = {
    "1": [0.672869, 0.757605, 0.5, 1.0],
    "2": [0.676983, 0.880462, 0.428571, 0.428571],
    "3": [0.517684, 0.776518, 0.285714, 0.428571],
}
WEIGHTS = {"a": 3, "b": 1, "c": 2, "d": 1}


def run_of(names):
    ranks = zip(names, LISTS.values(), strict=True)
    return Run.from_lists({name: (ranked, [-float(rank) for rank in range(len(ranked))]) for name, ranked in ranks})


def diversity(folder):
    """TREC's diversity judgements: topic, subtopic, document, 0 or 1; a document may cover several subtopics."""
    rows = [
        (query, aspect, f"d{place:02}", int((5 * column * number + 3 * place + place * place) % 7 < 2))
        for number, query in enumerate(QUERIES, 1)
        for column, aspect in enumerate("abcd")
        for place in range(15)
    ]
    file = folder / "qrels.diversity.txt"
    file.write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
    return file


def bright_pro(folder):
    """The aspects of BRIGHT-Pro: one of each document, with a weight."""
    rows = []
    for number in (1, 2, 3):
        of_aspect = {f"d{place:02}": "abcd"[(place * number + place // 3) % 4] for place in range(12)}
        for aspect, weight in WEIGHTS.items():
            documents = [f'"{document}"' for document, other in of_aspect.items() if other == aspect]
            name = f"earth_science-{number}-a{'abcd'.index(aspect) + 1}"
            rows.append(f'{{"id": "{name}", "weight": {weight}, "supporting_docs": [{", ".join(documents)}]}}\n')
    file = folder / "aspects.jsonl"
    file.write_text("".join(rows))
    return file


@pytest.mark.parametrize(
    ("write", "measures", "reference"),
    [
        (diversity, "alpha-nDCG@5 alpha-nDCG@10 aspect-recall@1 aspect-recall@5", NDEVAL),
        (bright_pro, "alpha-nDCG@5 alpha-nDCG@25 aspect-recall@2 aspect-recall@5", BRIGHT_PRO),
    ],
)
def test_measures_equal_those_of_the_references(tmp_path, write, measures, reference):
    read = read_qrels(write(tmp_path))
    assert not read.warnings
    asked = parse_all(measures.split())
    scores = score(run_of(reference), read.qrels, asked, read.aspects)
    values = {query: list(row.values()) for query, row in scores.per_query().items()}
    assert values == {query: pytest.approx(row, abs=1e-6) for query, row in reference.items()}


def test_a_list_that_is_not_there_or_too_short_scores_what_it_has(tmp_path):
    read = read_qrels(diversity(tmp_path))
    short = Run.from_lists({"q1": (["d00"], [1.0]), "q2": (["elsewhere"], [1.0])})
    scores = score(short, read.qrels, [Measure("aspect-recall@5"), Measure("alpha-nDCG@5")], read.aspects)
    covered = sum("d00" in aspect.documents for aspect in read.aspects["q1"].values())
    assert scores.values(Measure("aspect-recall@5")).tolist() == [covered / 4, 0.0, 0.0]
    assert scores.values(Measure("alpha-nDCG@5"))[1:].tolist() == [0.0, 0.0]


def task(folder, qrels, name="qrels.tsv"):
    """A small task with these judgements."""
    folder.mkdir(exist_ok=True)
    (folder / "corpus.jsonl").write_text("".join(f'{{"id": "d{n}", "text": "gums bleed {n}"}}\n' for n in range(6)))
    (folder / "query.jsonl").write_text('{"id": "q1", "text": "bleed 1 2"}\n{"id": "q2", "text": "gums 3"}\n')
    (folder / name).write_text(qrels)
    return folder


HEAD = "query-id\tcorpus-id\tscore\taspect\tweight\n"
GOOD = (
    HEAD + "q1\td1\t1\tcause\t2\nq1\td2\t1\tcause\t2\nq1\td2\t2\tdose\t0.5\nq1\td4\t0\tdose\t0.5\nq2\td3\t1\tonly\t1\n"
)


def test_aspects_are_read_beside_grades_and_enter_the_fingerprint(tmp_path):
    data = load(task(tmp_path / "a", GOOD))
    assert data.gold.qrels == {"q1": {"d1": 1, "d2": 2, "d4": 0}, "q2": {"d3": 1}}
    assert data.gold.aspects["q1"] == {"cause": (frozenset({"d1", "d2"}), 2.0), "dose": (frozenset({"d2"}), 0.5)}
    plain = "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t2\nq1\td4\t0\nq2\td3\t1\n"
    seen = {data.fingerprint, load(task(tmp_path / "b", plain)).fingerprint}
    seen.add(load(task(tmp_path / "c", GOOD.replace("0.5", "0.75"))).fingerprint)
    seen.add(load(task(tmp_path / "d", GOOD.replace("only", "other"))).fingerprint)
    assert len(seen) == 4
    rows = HEAD + "".join(sorted(GOOD.removeprefix(HEAD).splitlines(keepends=True), reverse=True))
    assert load(task(tmp_path / "e", rows)).fingerprint == data.fingerprint


def test_data_without_aspects_keeps_its_fingerprint(tmp_path):
    # As they were before there were aspects.
    assert load("sample/Biology").fingerprint == "663a5e5520e12938b5071ce0315d6f45"
    assert load("sample/MedQA-Diag").gold.fingerprint == "3c026294f11b6468e73603dc13ba39db"
    trec = [load(task(tmp_path / name, f"q1 {one} d1 1\nq2 {two} d3 1\n")) for name, one, two in ("a00", "b12")]
    assert trec[0].fingerprint == trec[1].fingerprint
    assert not trec[0].gold.aspects


def test_a_run_an_import_and_the_board_have_them(tmp_path):
    folder = task(tmp_path / "data", GOOD)
    report = r2med.evaluate("bm25", folder, measures=["alpha-nDCG@2", "aspect-recall@1"])
    assert report.results[0].metrics["aspect-recall@1"] > 0
    again = r2med.evaluate("bm25", folder, measures=["aspect-recall@2"])
    assert again.results[0].cached
    assert again.results[0].metrics["aspect-recall@2"] >= report.results[0].metrics["aspect-recall@1"]


def test_a_task_without_aspects_is_one_line_before_anything_runs():
    report = r2med.evaluate("bm25", "sample/Biology", measures=["alpha-nDCG@10"])
    assert [failure.message for failure in report.failures] == [
        "alpha-nDCG@10 needs judgements with a column aspect, and these have none; choose another measure"
    ]


def test_a_query_without_aspects_is_one_line(tmp_path):
    report = r2med.evaluate("bm25", task(tmp_path, GOOD.replace("only", "")), measures=["aspect-recall@10"])
    assert "and 1 query has none, the first 'q2'; choose another measure" in report.failures[0].message


@pytest.mark.parametrize("weight", ["0", "-1", "heavy", "", "nan", "inf"])
def test_a_weight_that_is_none_is_one_line(tmp_path, weight):
    folder = task(tmp_path, HEAD + f"q1\td1\t1\tcause\t{weight}\nq2\td3\t1\tonly\t1\n")
    with pytest.raises(DataError, match=r"qrels\.tsv:2: the weight \(weight\) must be a number above 0, not"):
        load(folder)


def test_weights_and_grades_that_contradict_are_one_line(tmp_path):
    with pytest.raises(DataError, match=r":3: the aspect 'cause' of q1 weighs 3 here and 2 before"):
        load(task(tmp_path, HEAD + "q1\td1\t1\tcause\t2\nq1\td2\t1\tcause\t3\n"))
    with pytest.raises(DataError, match=r":3: judges q1 d1 as 0, .*:2 as 1"):
        load(task(tmp_path, HEAD + "q1\td1\t1\tcause\t2\nq1\td1\t0\tcause\t2\n"))
    assert not validate(task(tmp_path, GOOD)).problems


def test_written_rows_are_read_back(tmp_path):
    gold = load(task(tmp_path / "a", GOOD)).gold
    rows = "".join(json.dumps(row) + "\n" for query in gold.qrels for row in gold.rows(query))
    assert load(task(tmp_path / "b", rows, "qrels.jsonl")).gold.fingerprint == gold.fingerprint
