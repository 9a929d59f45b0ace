"""What goes into a build: the plan, tables of questions and documents, folders of files; and all that can be wrong."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sqlite3

import polars as pl
import pytest
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from building import write_rows, write_tables
from r2med.construction.builder import Builder, init, show, status
from r2med.construction.files import UnreadableFile, read_file
from r2med.construction.items import Document, Question, cut, passages_of
from r2med.construction.judging import occurs
from r2med.construction.package import remarks
from r2med.construction.plan import RuleSettings, read_plan
from r2med.construction.question_steps import broken_rule, gives_away
from r2med.data.loader import load
from r2med.errors import MissingExtra, R2medError
from r2med.lexical.near_duplicates import NEAR, SAME, find_duplicates
from r2med.lexical.segmentation import count_tokens
from r2med.llm.cards import add_model
from r2med.llm.scripted import scripted

ROWS = [
    {"id": "q1", "question": "What is missing when the gums of a sailor bleed?", "answer": "Vitamin C"},
    {"id": "q2", "question": "What does the thyroid need for its hormones to form?", "answer": "Iodine"},
]


@pytest.fixture
def folder(tmp_path):
    """A plan that needs a judge only, with two questions and one document."""
    place = tmp_path / "b"
    init(place)
    write_rows(place / "questions.jsonl", ROWS)
    verdict = '{"answers": 3, "supports": 3, "reason": "so", "quote": ""}'
    add_model(scripted(lambda request: verdict, "yes"))
    write_tables(place, {"judge": {"models": ["yes"]}})
    return place


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[judge]\nmodels = ['yes']\nsamples = 0", "plan.toml:3: [judge] samples must be a whole number of at least 1"),
        (
            "[judge]\nmodels = ['yes']\n\n[mine]\ndepht = 3",
            "plan.toml:5: [mine] depht is not a known key; did you mean depth?",
        ),
        ("[judge]\nmodels = 'yes'", "plan.toml:2: [judge] models must be a list of texts, not 'yes'"),
        ("[judge]\nmodels = ['yse']", "plan.toml:2: [judge] models unknown model 'yse'"),
        ("[judge]\nmodels = []", "plan.toml:2: [judge] models must name a model"),
        ("[juge]", "plan.toml:1: juge is not a known key; did you mean judge?"),
        ("judge = 3", "plan.toml:1: judge must be a table"),
        ("[judge]\nmodels = ['yes'", "not readable as TOML"),
        ("[judge]\nmodels=['yes']\n[mine]\nsystems=['bm26']", "plan.toml:4: [mine] systems"),
        ("[judge]\nmodels=['yes']\n[mine]\nsystems=['oracle-answer >> bm25']", "is shown the gold answers"),
        (
            "[judge]\nmodels=['yes']\nscale=[3, 0]",
            "plan.toml:3: [judge] scale must be the lowest and the highest grade",
        ),
        (
            "[judge]\nmodels=['yes']\n[select]\nanswers = 4",
            "plan.toml:4: [select] answers must be above 0 and at most 3",
        ),
        ("[judge]\nmodels=['yes']\n[select]\nband_answers = 2.5", "[select] band_answers must not be above answers"),
        ("[judge]\nmodels=['yes']\n[mine]\nviews=['reasoning']", "has reasoning alone"),
        ("[judge]\nmodels=['yes']\n[intent]\nkeep=['cure']", "plan.toml:4: [intent] keep has 'cure'"),
        ("[judge]\nmodels=['yes']\n[prompts]\njudge = 'none.txt'", "judge: cannot read the prompt"),
        (
            "[judge]\nmodels=['yes']\n[prompts]\njugde = 'plan.toml'",
            "[prompts] jugde is not a prompt; did you mean judge",
        ),
        ("[judge]\nmodels=['yes']\n[prompts]\njudge = 'plan.toml'", "a prompt for judge must have {guideline}"),
    ],
)
def test_a_wrong_plan_is_refused_with_file_line_and_key(folder, text, message):
    (folder / "plan.toml").write_text(text)
    with pytest.raises(R2medError, match=re.escape(message)) as error:
        Builder(folder)
    assert "\n" not in str(error.value)


def test_the_plan_that_init_writes_states_every_setting_with_its_default(folder, tmp_path):
    init(tmp_path / "fresh")
    written = (tmp_path / "fresh" / "plan.toml").read_text()
    (tmp_path / "fresh" / "plan.toml").write_text(
        written.replace("models = []                        # at", "models = ['yes'] #")
    )
    plan, plain = read_plan(tmp_path / "fresh"), read_plan(folder)
    for name in (
        "task",
        "chunk",
        "rules",
        "intent",
        "difficulty",
        "rewrite",
        "reason",
        "mine",
        "judge",
        "select",
        "label",
        "ask",
    ):
        assert getattr(plan, name) == getattr(plain, name), name
        table = written.partition(f"[{name}]")[2].partition("\n[")[0]
        for setting in getattr(plan, name).__struct_fields__:
            assert re.search(rf"(?m)^{setting} = ", table), f"[{name}] {setting}"


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_questions_come_from_tables_with_columns_of_any_name(folder, kind):
    rows = [{"nr": row["id"], "frage": row["question"], "antwort": row["answer"], "wahl": "a | b"} for row in ROWS]
    path = folder / f"q.{kind}"
    if kind == "jsonl":
        write_rows(path, rows)
    else:
        frame = pl.DataFrame(rows)
        frame.write_csv(path) if kind == "csv" else frame.write_parquet(path)
    columns = {"id": "nr", "question": "frage", "answer": "antwort", "options": "wahl"}
    write_tables(folder, {"questions": {"path": path.name, **columns}, "judge": {"models": ["yes"]}})
    builder = Builder(folder)
    builder.run("read")
    assert [row.value["options"] for row in builder.outcomes["read"].values()] == [("a", "b")] * 2
    assert builder.counts[0].kept == 2


def test_a_table_without_a_mapped_column_names_file_line_and_column(folder):
    (folder / "q.csv").write_text("id,quest,answer\n1,why?,so\n")
    write_tables(folder, {"questions": {"path": "q.csv"}, "judge": {"models": ["yes"]}})
    with pytest.raises(R2medError, match=r"q\.csv:2: no column 'question'; did you mean quest\?"):
        Builder(folder).run()


def test_questions_that_cannot_be_used_are_counted_with_the_reason(folder):
    bad = [
        ROWS[0] | {"question": "Another question under the same id?"},
        {"id": "q4", "question": "Why is that so?", "answer": " "},
    ]
    bad += [{"id": "", "question": "Whose is it?", "answer": "x"}, {"id": "q5", "question": "", "answer": "x"}]
    write_rows(folder / "questions.jsonl", [*ROWS, *bad])
    built = Builder(folder).run("read")
    reasons = {"with the id of another question": 1, "without an answer": 1, "without an id": 1, "without text": 1}
    assert dict(built.counts[0].dropped) == reasons
    assert built.counts[0].kept == 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("questions.jsonl", b"", "holds no rows"),
        ("questions.jsonl", b"not json\n", "questions.jsonl:1: not JSON"),
        ("questions.jsonl", b'{"id": "1", "question": "\xe9?", "answer": "b"}\n', "questions.jsonl:1: not UTF-8"),
        ("questions.jsonl", b'{"id": "1", "question": "why?", "answer": ""}\n', "are without an answer"),
        ("q.csv", "id,question,answer\n1,é,b\n".encode("latin-1"), "not UTF-8"),
        ("q.csv", b"id,question,answer\n1,2,3,4\n", "q.csv:2: more cells than the header"),
        ("q.parquet", b"PAR1", "is not a whole parquet file"),
    ],
)
def test_a_table_that_cannot_be_read_is_one_line(folder, name, content, message):
    (folder / name).write_bytes(content)
    write_tables(folder, {"questions": {"path": name}, "judge": {"models": ["yes"]}})
    with pytest.raises(R2medError, match=re.escape(message)):
        Builder(folder).run()


def pdf(text: str) -> bytes:
    import io

    writer = PdfWriter()
    page = writer.add_blank_page(400, 400)
    font = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    fonts = DictionaryObject({NameObject(key): NameObject(value) for key, value in font.items()})
    page[NameObject("/Resources")] = DictionaryObject(
        {NameObject("/Font"): DictionaryObject({NameObject("/F1"): fonts})}
    )
    stream = DecodedStreamObject()
    stream.set_data(f"BT /F1 12 Tf 20 300 Td ({text}) Tj ET".encode())
    page[NameObject("/Contents")] = writer._add_object(stream)
    content = io.BytesIO()
    writer.write(content)
    return content.getvalue()


def test_files_of_every_kind_are_read_and_those_that_cannot_be_are_counted(folder):
    place = folder / "documents"
    page = (
        "<html><title>Goitre</title><h1>Iodine</h1><p>The thyroid <b>needs</b> iodine.</p><script>x()</script></html>"
    )
    files = {
        "old.txt": "Vitamin C is für Seeleute gut, and a lack of it makes gums bleed.".encode("latin-1"),
        "page.html": page.encode(),
        "sub/paper one.pdf": pdf("Iodine is oxidised by thyroid peroxidase."),
        "broken.pdf": b"%PDF-1.4 nothing more",
        "empty.html": b"<html></html>",
        "blank.txt": b"  \n",
        "binary.txt": b"\0\1\2",
        ".hidden.txt": b"never read",
        "slides.pptx": b"never read",
    }
    for name, content in files.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_bytes(content)
    builder = Builder(folder)
    built = builder.run("chunk")
    count = next(count for count in built.counts if count.step == "documents")
    assert count.kept == 4
    assert sum(count.dropped.values()) == 5
    assert count.names["pptx: files of this kind are not read"] == ["slides.pptx"]
    assert sum(len(names) for names in count.names.values()) == 5
    assert any(remark.endswith("): broken.pdf") for remark in remarks(count))
    assert status(folder).counts[1] == count
    assert built.as_dict()["steps"][1]["names"] == count.names
    assert count.dropped["html: no text in it"] == 1
    assert count.dropped["txt: not a text file"] == 1
    assert any(reason.startswith("pdf: not a readable PDF") for reason in count.dropped)
    texts = {name: outcome.value.get("text", "") for name, outcome in builder.outcomes["documents"].items()}
    assert "für" in texts["old.txt"]
    assert texts["page.html"] == "Iodine\nThe thyroid needs iodine.\n"
    assert "thyroid peroxidase" in texts["sub/paper one.pdf"]


@pytest.mark.parametrize(
    ("package", "file"),
    [("pypdfium2", "paper.pdf"), ("selectolax", "page.html"), ("mammoth", "letter.docx"), ("rensa", "plain.txt")],
)
def test_a_package_that_is_not_installed_is_one_line_with_what_to_install(folder, monkeypatch, package, file):
    (folder / "documents" / file).write_bytes(b"Iodine.")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))
    with pytest.raises(MissingExtra) as refused:
        Builder(folder).run()
    assert str(refused.value) == f"this needs {package}: pip install 'r2med[build]'"
    # Without such files, and without looking for near-duplicates, nothing of it is needed.
    (folder / "documents" / file).unlink()
    (folder / "documents" / "scurvy.md").rename(folder / "documents" / "scurvy.txt")
    write_tables(folder, {"documents": {"near": 0.0}, "judge": {"models": ["yes"]}})
    assert Builder(folder).run("chunk").counts


def test_a_file_that_changed_is_read_again_and_no_other(folder, monkeypatch):
    (folder / "documents" / "b.txt").write_text("Iodine is needed by the thyroid.")
    Builder(folder).run("chunk")
    (folder / "documents" / "b.txt").write_text("Iodine is needed.")
    read = []
    monkeypatch.setattr(
        "r2med.construction.sources.read_file", lambda path, place: read.append(path.name) or read_file(path, place)
    )
    Builder(folder).run("chunk")
    assert read == ["b.txt"]


def test_documents_come_from_tables_and_from_folders_of_every_layout(folder):
    texts = {"d1": "A lack of vitamin C makes gums bleed.", "d2": "The thyroid needs iodine."}
    rows = [{"id": name, "text": text} for name, text in texts.items()]
    (folder / "r2med").mkdir()
    (folder / "beir").mkdir()
    (folder / "hub" / "corpus").mkdir(parents=True)
    write_rows(folder / "r2med" / "corpus.jsonl", rows)
    write_rows(folder / "beir" / "corpus.jsonl", [{"_id": row["id"], "title": "", "text": row["text"]} for row in rows])
    pl.DataFrame(rows).write_parquet(folder / "hub" / "corpus" / "corpus.parquet")
    pl.DataFrame(rows).write_parquet(folder / "table.parquet")
    pl.DataFrame(rows).write_csv(folder / "table.csv")
    write_rows(folder / "table.jsonl", rows)
    built = []
    for path in ("r2med", "beir", "hub", "table.parquet", "table.csv", "table.jsonl"):
        write_tables(folder, {"documents": {"path": path}, "judge": {"models": ["yes"]}})
        Builder(folder).run()
        task = load(folder / "task")
        assert dict(task.collection.documents) == texts, path
        built.append(task.fingerprint)
    assert len(set(built)) == 1


def test_a_missing_folder_of_documents_and_one_without_any_say_so(folder, tmp_path):
    for path, message in ((tmp_path / "none", "no such file or folder"), (tmp_path / "empty", "holds no .txt")):
        if path.name == "empty":
            path.mkdir()
        write_tables(folder, {"documents": {"path": str(path)}, "judge": {"models": ["yes"]}})
        with pytest.raises(R2medError, match=message):
            Builder(folder).run()


def test_passages_have_about_so_many_tokens_stay_below_their_heading_and_know_their_place():
    sentence = "Collagen needs vitamin C, says Dr. Hart. It is hydroxylated in the cell. "
    text = f"# One\n{sentence * 9}\n# Two\nA short part.\n"
    second = text.index("# Two")
    document = Document("d", "Title", text, "s", _headings((0, 6, "One"), (second, second + 6, "Two")))
    passages = passages_of(document, cut(document, 40))
    assert len(passages) > 3
    for passage in passages:
        assert document.text[passage.start : passage.end] == passage.text
        assert count_tokens(passage.text) <= 50
        assert not passage.text.endswith("Dr.")
    assert passages[-1].title == "Title: Two"
    assert passages[-1].text == "A short part."
    assert {passage.title for passage in passages[:-1]} == {"Title: One"}
    assert "".join(p.text for p in passages[:-1]).replace(" ", "") == (sentence * 9).replace(" ", "")
    whole = passages_of(document, cut(document, 0))
    assert [passage.id for passage in whole] == ["d"]
    assert whole[0].text == text.strip()


def _headings(*rows):
    from r2med.construction.items import Heading

    return tuple(Heading(*row) for row in rows)


def test_a_sentence_without_an_end_is_cut_between_words():
    document = Document("d", "", "word " * 500, "")
    spans = cut(document, 50)
    assert len(spans) == 10
    assert all(document.text[span.start : span.end].split() == ["word"] * 50 for span in spans)


def test_documents_that_say_the_same_are_folded_into_the_first(folder):
    long = " ".join(f"finding{number} follows from cause{number}" for number in range(60))
    texts = [long, "something else entirely about iodine", long.upper() + "!", long.replace("cause7", "reason7"), long]
    assert find_duplicates(texts, 0.8) == {2: (0, SAME), 3: (0, NEAR), 4: (0, SAME)}
    assert find_duplicates(texts, 0) == {2: (0, SAME), 4: (0, SAME)}
    rows = [{"id": f"d{number}", "text": text, "link": f"http://x/{number}"} for number, text in enumerate(texts)]
    write_rows(folder / "documents.jsonl", rows)
    write_rows(folder / "questions.jsonl", [row | {"source": "http://x/3"} for row in ROWS])
    tables = {
        "questions": {"source": "source"},
        "documents": {"path": "documents.jsonl", "source": "link"},
        "chunk": {"tokens": 0},
        "judge": {"models": ["yes"]},
        "mine": {"depth": 1},
    }
    write_tables(folder, tables)
    built = Builder(folder).run()
    assert next(count for count in built.counts if count.step == "fold").dropped == {SAME: 2, NEAR: 1}
    # The source of a question is judged although no search finds it, under the document that it was folded into.
    found = {each["passage"]: each["found"] for each in show(folder, "q2")["candidates"]}
    assert found["d0"][-1] == {"system": "source", "view": "source", "rank": 0}


def test_a_source_that_is_not_among_the_documents_is_marked(folder):
    write_rows(folder / "questions.jsonl", [row | {"source": "nowhere.pdf"} for row in ROWS])
    write_tables(folder, {"questions": {"source": "source"}, "judge": {"models": ["yes"]}})
    built = Builder(folder).run("mine")
    assert built.counts[-1].marks == {"the source is not among the documents": built.counts[-1].items}


@pytest.mark.parametrize(
    ("text", "answer", "options", "why"),
    [
        ("What is it?", "scurvy", (), "fewer than 5 words"),
        ("Given the radiograph shown below, what does he have?", "gout", (), "needs an image"),
        (
            "Which of the following is the most likely cause here?",
            "gout",
            (),
            '"which of the following" without options',
        ),
        ("Which of the following is the most likely cause here?", "gout", ("gout", "mumps"), ""),
        ("Why does scurvy make the gums bleed so much?", "Scurvy", (), "the answer is in the question"),
        ("Why do the gums of old sailors bleed so much?", "Scurvy", (), ""),
    ],
)
def test_rules_drop_what_nobody_can_answer_fairly(text, answer, options, why):
    assert broken_rule(Question("q", text, answer, options), RuleSettings()) == why


def test_a_rewritten_question_may_not_hold_the_answer_unless_the_original_does():
    question = Question("q", "Which of these bleeds?", "The gums", ("The gums", "Hair"))
    assert gives_away(question, "Do gums bleed?")
    assert not gives_away(question, "What bleeds?")
    assert not gives_away(Question("q", "Gums: which is true?", "gums", ("gums",)), "What of gums?")


def test_quotes_must_occur_in_the_passage():
    text = "Scurvy is caused by a lack of vitamin C.  Gums swell – and bleed."
    assert occurs("caused by a lack of Vitamin C", text)
    assert occurs("gums swell - and bleed", text)
    assert occurs("Scurvy … bleed", text)
    assert not occurs("bleed … Scurvy", text)
    assert not occurs("a lack of vitamin D", text)
    assert not occurs("...", text)


def test_an_unreadable_file_says_why(tmp_path):
    (tmp_path / "a.pdf").write_bytes(b"")
    with pytest.raises(UnreadableFile, match="not a readable PDF"):
        read_file(tmp_path / "a.pdf", tmp_path)


def test_rewriting_that_gives_the_answer_away_is_tried_again_then_dropped(folder):
    rows = [ROWS[0] | {"options": ["Vitamin C", "Iron"]}, ROWS[1] | {"options": ["Iodine", "Iron"]}]
    write_rows(folder / "questions.jsonl", rows)
    asked = []

    def say(request) -> str:
        asked.append(request.sample)
        return "Is it vitamin C that is missing?" if "sailor" in request.messages[-1].content else "What does it need?"

    add_model(scripted(say, "writer"))
    tables = {
        "questions": {"options": "options"},
        "judge": {"models": ["yes"]},
        "rewrite": {"model": "writer", "attempts": 3},
    }
    write_tables(folder, tables)
    built = Builder(folder).run("rewrite")
    assert built.counts[-1].dropped == {"the answer is given away": 1}
    assert sorted(asked) == [0, 0, 1, 2]


def test_when_no_question_is_left_the_reason_is_said(folder):
    write_rows(folder / "questions.jsonl", [{"id": "1", "question": "Why?", "answer": "x"}])
    with pytest.raises(
        R2medError, match=r"no question is left after rules .most often: fewer than 5 words.; see: r2med"
    ):
        Builder(folder).run()


def test_a_folder_that_is_no_build_is_never_overwritten(folder):
    (folder / "task").mkdir()
    (folder / "task" / "mine.txt").write_text("precious")
    with pytest.raises(R2medError, match="was not made by r2med build; move it away"):
        Builder(folder).run()
    assert (folder / "task" / "mine.txt").read_text() == "precious"


def test_a_damaged_row_is_made_again(folder):
    Builder(folder).run()
    before = (folder / "task" / "build.json").read_bytes()
    with sqlite3.connect(folder / "build.sqlite") as file:
        empty = json.dumps({"value": {}, "marks": []}).encode()
        file.execute("UPDATE item SET value = ? WHERE step IN ('judge', 'mine', 'chunk')", (empty,))
    # A task that is there and whole is left alone; it is made again once it is not.
    shutil.rmtree(folder / "task")
    Builder(folder).run()
    assert (folder / "task" / "build.json").read_bytes() == before
