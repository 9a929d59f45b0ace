"""Lint of relevant documents: every planted fault is found, with its line, and nothing of real collections."""

from __future__ import annotations

import json

import pytest

import needs
from r2med.data.dataset import Texts
from r2med.data.lint import CUT_HTML, LINKS, ONE_WORD, find_flaws, unlabelled_copies
from r2med.data.loader import load
from r2med.data.validate import validate

LONG = (
    "Hepcidin binds ferroportin and has it degraded, so that iron stays within enterocytes and macrophages, and the"
    " concentration of iron in plasma falls while ferritin is high; inflammation raises hepcidin through interleukin 6."
)
FAULTS = {
    ONE_WORD: ["Osteoporosis", "  Osteoporosis.\n", "(1)", "--", "Müdigkeit"],
    LINKS: [
        "https://en.wikipedia.org/wiki/Iron",
        "Source: http://a.org/x?y=1#z",
        "www.who.int, www.cdc.gov",
        "[Sickle cell disease](https://x.org/scd) [next](/2)",
        "doi: 10.1056/NEJMoa2034577",
        "<https://a.org>",
        '<a href="/x">Home</a> | <a href="/y">About us</a>',
    ],
    CUT_HTML: [
        'Iron is stored in the liver <a href="https://x.org/iro',
        "Iron is stored in the liver <div",
        "Iron is stored in the liver </div",
        'class="external text">Iron is stored</span> in the liver',
        "<div><p>Iron is stored in the liver and spleen",
        "Iron is stored</table> in the liver",
        "Fe<sup>2+ is stored in the liver",
    ],
}
FINE = [
    LONG,
    "Osteoporosis is treated.",
    "IL-6",
    "骨质疏松症的治疗",
    "โรคกระดูกพรุน",
    "See https://x.org/iron for how iron is stored in the liver.",
    "In n < 5 patients with p<0.05 and CD4 > 200",
    "where a<b and i<p",
    "<p>Iron is stored<br>in the <b>liver</b>.</p><ul><li>one<li>two</ul>",
    "H<sub>2</sub>O and Fe<sup>2+</sup>",
    'mean (a = "b") > 3 mg',
    "patients <18 years, BP <120, and a title",
]


def flaws(texts, near=0.0, judged=None):
    documents = Texts([f"d{place}" for place in range(len(texts))], texts)
    return find_flaws(documents, judged or {"q": dict.fromkeys(documents.ids, 1)}, near)


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in FAULTS.items() for text in texts])
def test_a_planted_fault_is_found(kind, text):
    assert kind in [flaw.kind for flaw in flaws([text])]


@pytest.mark.parametrize("text", FINE)
def test_what_is_fine_is_not_flagged(text):
    assert flaws([text]) == []


def edited(text, *places):
    words = text.split()
    for place in places:
        words[place] = "edited"
    return " ".join(words)


def test_copies_of_relevant_documents_that_are_not_judged():
    texts = [LONG, "other", LONG.upper().replace(",", " ;"), edited(LONG, 3), edited(LONG, 3, 9, 15, 21, 27), ""]
    judged = {"q1": {"d0": 2, "d5": 1}, "q2": {"d0": 1, "d2": 0}, "q3": {"d1": 0}}
    (same,) = flaws(texts, judged=judged)
    assert (same.kind, same.query, same.document, same.copies) == ("unlabelled-copy", "q1", "d0", ("d2",))
    assert same.message == "the relevant document 'd0' of 'q1' has the same words as 'd2', which 'q1' does not judge"
    near = flaws(texts, 0.8, judged)
    pairs = [(flaw.kind, flaw.query, flaw.copies) for flaw in near]
    assert pairs == [("unlabelled-copy", "q1", ("d2",)), ("near-copy", "q1", ("d3",)), ("near-copy", "q2", ("d3",))]
    assert unlabelled_copies(near, judged) == {"q1": {"d2": 2, "d3": 2}, "q2": {"d3": 1}}


def test_copies_over_many_blocks_equal_a_plain_search():
    texts = [edited(LONG, place % 7) + f" {place % 900}" for place in range(5000)]
    judged = {f"q{place}": {f"d{place}": 1} for place in range(0, 5000, 611)}
    expected = {
        query: tuple(
            f"d{other}" for other, text in enumerate(texts) if text == texts[int(name[1:])] and f"d{other}" != name
        )
        for query, (name,) in judged.items()
    }
    assert {flaw.query: flaw.copies for flaw in flaws(texts, judged=judged)} == {q: c for q, c in expected.items() if c}


def test_validate_lists_them_with_the_line_of_the_judgement(tmp_path):
    texts = {"d1": LONG, "d2": LONG, "d3": "Anaemia", "d4": "https://a.org", "d5": "Iron <div", "d6": edited(LONG, 4)}
    lines = [json.dumps({"id": name, "text": text}) for name, text in texts.items()]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    (tmp_path / "query.jsonl").write_text('{"id": "q1", "text": "iron"}\n')
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td3\t1\nq1\td4\t1\nq1\td5\t2\n")
    report = validate(tmp_path, near=0.8)
    assert [(problem.code, problem.line) for problem in report.problems] == [
        ("unlabelled-copy", 2), ("near-copy", 2), ("one-word", 3), ("links-only", 4), ("cut-html", 5),
    ]  # fmt: skip
    assert report.ok
    assert validate(tmp_path, strict=True).ok
    assert [
        group.code for group in validate(tmp_path).groups()
    ] == "one-word links-only cut-html unlabelled-copy".split()
    assert load(tmp_path).warnings == ()


@pytest.mark.parametrize("name", ["scifact", "medline"])
def test_real_collections_are_fine(name):
    documents = load(needs.collection(name)).collection.documents
    assert find_flaws(documents, {query: {query: 1} for query in documents.ids}) == []
