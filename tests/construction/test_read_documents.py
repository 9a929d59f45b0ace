"""Reading a document changes nothing that it says: files of every kind against their exact text."""

from __future__ import annotations

import re

import pytest
from nasty_documents import (
    COLUMNS,
    NUMBERS,
    TABLE,
    columns_pdf,
    lines_pdf,
    paragraph,
    row,
    running_heads_pdf,
    table_pdf,
    turned_table_pdf,
    write_docx,
)

from r2med.construction.files import UnreadableFile, read_file
from r2med.construction.pdf import join_lines


@pytest.fixture
def read(tmp_path):
    def read_content(name, content):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_file(tmp_path / name, tmp_path)

    return read_content


def raised(text):
    """The text with HTML's markup for what follows a caret."""
    return re.sub(r"\^([-−]?\d+)", r"<sup>\1</sup>", text.replace("<", "&lt;"))


@pytest.mark.parametrize("kind", ["pdf", "html", "md", "txt", "docx"])
def test_clinical_numbers_are_read_as_they_stand_in_files_of_every_kind(read, kind):
    sentences = [f"Take {number} then." for number in NUMBERS]
    content = {
        "pdf": lambda: lines_pdf(*sentences),
        "html": lambda: "".join(f"<p>{raised(text)}</p>" for text in sentences),
        "md": lambda: "\n\n".join(raised(text) for text in sentences),
        "txt": lambda: "\n".join(sentences),
        "docx": lambda: write_docx("".join(map(paragraph, sentences))),
    }[kind]()
    assert " ".join(read(f"numbers.{kind}", content).text.split()) == " ".join(sentences)


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["after 10-", "20 minutes"], "after 10-20 minutes"),
        (["after 10–", "20 minutes"], "after 10–20 minutes"),
        (["level of IL-", "6 rose"], "level of IL-6 rose"),
        (["a 3-", "fold rise"], "a 3-fold rise"),
        (["5 mg/", "kg a day"], "5 mg/kg a day"),
        (["from 5 -", "10 mg"], "from 5 - 10 mg"),
        (["the treat-", "ment"], "the treatment"),
        (["a beta-", "blocker"], "a beta-blocker"),
        (["a T-", "cell"], "a T-cell"),
        (["Guillain-", "Barré"], "Guillain-Barré"),
        (["short-", "and long-acting"], "short- and long-acting"),
        (["a long-", "term plan, the long-term one"], "a long-term plan, the long-term one"),
        (["the long-", "term, as is a long stay or a short term"], "the long-term, as is a long stay or a short term"),
        (["to treat a treat-", "ment"], "to treat a treatment"),
        (["hyper\u00ad", "tension"], "hypertension"),
    ],
)
def test_a_word_over_two_lines_is_joined_and_a_number_keeps_its_hyphen(read, lines, text):
    assert join_lines([lines]) == f"{text}\n"
    assert read("a.pdf", lines_pdf(*lines)).text == f"{text}\n"


@pytest.mark.parametrize("by_line", [True, False])
def test_two_columns_are_read_one_after_the_other_however_they_are_drawn(read, by_line):
    assert read("a.pdf", columns_pdf(by_line)).text == COLUMNS


def test_rows_of_a_pdf_table_stay_rows(read):
    assert read("a.pdf", table_pdf()).text == TABLE


def test_running_heads_and_page_numbers_of_a_pdf_are_left_out(read):
    expected = "The first page ends in the middle of a sentence. Give 5 mg.\nThen 10 mg.\n"
    assert read("a.pdf", running_heads_pdf()).text == expected


@pytest.mark.parametrize(
    ("title", "expected"),
    [("untitled", "a"), ("Microsoft Word - draft3.doc", "a"), ("", "a"), ("Goitre", "Goitre")],
)
def test_a_title_that_says_nothing_gives_way_to_the_name_of_the_file(read, title, expected):
    assert read("a.pdf", lines_pdf("Iodine.", title=title)).title == expected


def test_a_pdf_with_a_password_is_refused(read):
    with pytest.raises(UnreadableFile, match="not a readable PDF"):
        read("a.pdf", lines_pdf("Iodine.", password="secret"))


@pytest.mark.parametrize("charset", ["windows-1251", "koi8-r", "utf-8"])
@pytest.mark.parametrize(
    "head", ['<meta charset="{}">', "<meta http-equiv='Content-Type' content='text/html; charset={}'>"]
)
def test_a_page_is_read_in_the_charset_that_it_declares(read, charset, head):
    text = "Пациенту дали 5 мг."
    assert read("a.html", f"{head.format(charset)}<p>{text}</p>".encode(charset)).text == f"{text}\n"


def test_charsets_by_xml_and_byte_order_mark_and_those_that_browsers_widen(read):
    page = '<?xml version="1.0" encoding="Shift_JIS"?><html><body><p>用量は①5 mg</p></body></html>'
    assert read("a.html", page.encode("cp932")).text == "用量は①5 mg\n"
    western = "<meta charset=ISO-8859-1><p>5–10 µg “daily”</p>"
    assert read("b.html", western.encode("cp1252")).text == "5–10 µg “daily”\n"
    assert read("c.html", "<p>≥5 мг</p>".encode("utf-16")).text == "≥5 мг\n"
    assert read("d.txt", "≥5 мг".encode("utf-16")).text == "≥5 мг"


def test_a_page_that_is_not_what_it_declares_is_refused(read):
    with pytest.raises(UnreadableFile, match=r"not the utf-8 that it says it is \(byte 0xb5 at 25\)"):
        read("a.html", "<meta charset=utf-8><p>5 µg".encode("latin-1"))
    with pytest.raises(UnreadableFile, match=r"declares a charset that is not known \(klingon\)"):
        read("b.html", "<meta charset=klingon><p>5")


@pytest.mark.parametrize(
    ("charset", "text"),
    [
        ("cp1252", "Temperature of 38.5 °C, 5 µg ± 2, 10–20 mg."),
        ("cp1252", "Der Patient erhielt täglich 500 mg Acetylsalicylsäure; die Übelkeit ließ nach."),
        ("cp1251", "Пациенту назначили метформин 500 мг два раза в день в течение трёх недель."),
        ("cp932", "患者にはメトホルミン500mgを1日2回、3週間投与した。副作用は認められなかった。"),
        ("gb18030", "患者每日两次服用二甲双胍500毫克，连续三周，未见不良反应。"),
        ("cp1253", "Ο ασθενής έλαβε μετφορμίνη 500 mg δύο φορές την ημέρα για τρεις εβδομάδες."),
        ("cp949", "환자에게 메트포르민 500mg을 하루 두 번 3주 동안 투여하였다."),
    ],
)
def test_a_text_that_is_not_utf8_is_read_in_the_charset_that_fits(read, charset, text):
    assert read("a.txt", text.encode(charset)).text == text


def test_a_text_that_two_charsets_fit_is_refused_with_their_names(read):
    text = "Hastaya üç hafta boyunca günde iki kez 500 mg verildi; ağrı şikayeti yoktu."
    with pytest.raises(UnreadableFile, match=r"not UTF-8, and could be cp125. or cp125.*: save it as UTF-8"):
        read("a.txt", text.encode("cp1254"))


PAGE = """<html><head><title>Untitled document</title><style>p{}</style></head><body>
<header><a>Menu</a><h1>Dosing</h1></header><nav>Home</nav>
<p hidden>secret</p><div style="display: none">secret</div><div style="Visibility:hidden">secret</div>
<article><header><p>By A. Writer</p></header>
<p>White cells 4 &times; 10<sup>9</sup>/L, Na<sup>+</sup> 140, 1<sup>st</sup> dose, H<sub>2</sub>O,
 2<sup>1</sup>/<sub>2</sub> tablets, <del>5 mg</del> 10 mg, hyper&shy;tension.</p>
<math><mn>3</mn><mfrac><mn>1</mn><mn>4</mn></mfrac></math>
<table><tr><th>Level</th><th>Dose</th></tr><tr><td>&lt;1.5</td><td>increase<br>by 20%</td></tr>
<tr><td></td><td>hold</td></tr></table>
<ol start="3"><li>Wash</li><li>Wait 5 min</li></ol><ul><li>Rest</li></ul>
<pre>a  b
c</pre></article><footer>Imprint</footer><script>x()</script></body></html>"""


def test_a_page_is_read_as_it_is_shown_with_rows_numbers_and_powers(read):
    document = read("a.html", PAGE)
    assert document.title == "Dosing"
    assert document.text.splitlines() == [
        "Dosing",
        "By A. Writer",
        "White cells 4 × 10^9/L, Na+ 140, 1st dose, H2O, 2 1/2 tablets, 10 mg, hypertension.",
        "3 1/4",
        "Level | Dose",
        "<1.5 | increase by 20%",
        "| hold",
        "3. Wash",
        "4. Wait 5 min",
        "Rest",
        "a  b",
        "c",
    ]


MARKDOWN = """---
author: A. Writer
tags: [dose]
---
*Dosing* of **metformin**
=========================

Give <0.5 mg/kg, or 10<sup>9</sup>/L; see [the table](x.html).

Limits `in mg`
--------------

| Level | Dose |
|---|---|
| <1.5 | +20% |

2. Second
3. Third

```
# not a heading
```
"""


def test_markdown_is_read_without_its_markup_and_front_matter(read):
    document = read("a.md", MARKDOWN)
    assert document.title == "Dosing of metformin"
    assert [heading.text for heading in document.headings] == ["Dosing of metformin", "Limits in mg"]
    assert all(document.text[each.start : each.end] == f"{each.text}\n" for each in document.headings)
    assert document.text.splitlines() == [
        "Dosing of metformin",
        "Give <0.5 mg/kg, or 10^9/L; see the table.",
        "Limits in mg",
        "Level | Dose",
        "<1.5 | +20%",
        "2. Second",
        "3. Third",
        "# not a heading",
    ]


def test_a_word_file_is_read_with_headings_and_rows_without_heads_and_deleted_words(read):
    deleted = "<w:p><w:r><w:t>Take 5</w:t></w:r><w:del><w:r><w:delText>0</w:delText></w:r></w:del></w:p>"
    rows = f"<w:tbl>{row('Level', 'Dose')}{row('<1.5', '10^9/L')}</w:tbl>"
    document = read("a.docx", write_docx(paragraph("Dosing", "Heading1") + deleted + rows + paragraph("End.")))
    assert document.title == "Dosing"
    assert [heading.text for heading in document.headings] == ["Dosing"]
    assert document.text.splitlines() == ["Dosing", "Take 5", "Level | Dose", "<1.5 | 10^9/L", "End."]


def test_a_word_file_that_is_broken_or_has_equations_is_refused(read):
    with pytest.raises(UnreadableFile, match="not a readable Word file"):
        read("a.docx", b"never a zip")
    with pytest.raises(UnreadableFile, match="it has equations: save it as PDF"):
        read("b.docx", write_docx("<m:oMath/>"))
    with pytest.raises(UnreadableFile, match="a symbol that is not known"):
        read("c.docx", write_docx('<w:p><w:r><w:sym w:font="Own" w:char="F0B3"/></w:r></w:p>'))


def test_fields_and_raised_numbers_of_a_word_file_are_read(read):
    field = '<w:p><w:fldSimple w:instr="REF dose"><w:r><w:t>10 to the 9th, 10</w:t></w:r></w:fldSimple>'
    power = '<w:r><w:rPr><w:position w:val="6"/><w:sz w:val="12"/></w:rPr><w:t>9</w:t></w:r></w:p>'
    assert read("a.docx", write_docx(field + power)).text == "10 to the 9th, 10^9\n"


@pytest.mark.parametrize(
    "text",
    [
        *("5*3*2 mg", "2*500*(3*4)", "K\n>5.5 mmol/L: stop", ">= 5.5 mmol/L", ">.5 mg"),
        *("ALT <ULN and AST >ULN", "<LLN or >ULN", "if x<y and z>w", "-5 mmol/L", "10~20"),
    ],
)
def test_signs_between_numbers_are_no_markup_in_markdown(read, text):
    assert read("a.md", text).text == " ".join(text.split()) + "\n"


def test_markup_that_looks_like_signs_is_still_markup(read):
    text = "*5* mg <b>now</b> <span class='x'>5</span> <https://x.org/5> <!-- note -->\n\n> 5 of us said\n\n<br/>"
    assert read("a.md", text).text == "5 mg now 5 https://x.org/5\n5 of us said\n"


@pytest.mark.parametrize("text", ["12%^3 of all", "fell to 0.5.^3 Then", "in 5 (2)^14 of"])
def test_a_raised_number_is_never_glued_to_what_stands_before_it(read, text):
    assert read("a.html", f"<p>{raised(text)}</p>").text == f"{text}\n"
    assert read("a.pdf", lines_pdf(text)).text == f"{text}\n"


@pytest.mark.parametrize("turn", [0, 90, 180, 270])
def test_a_turned_page_is_read_as_a_level_one(read, turn):
    assert read("a.pdf", turned_table_pdf(turn)).text == TABLE
