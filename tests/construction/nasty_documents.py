"""Documents that are hard to read, written for this project, each with the exact text that a reader should find."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import reportlab
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

NUMBERS = (
    "10-20 mg", "10–20 mg", "0.5 mg", "0,5 mg", "<0.5 ng/mL", ">4 mmol/L", "≥18 years", "≤2.5 mg/dL", "5 ± 2 days",
    "-5 mmol/L", "−5 °C", "5 mg/kg/day", "1,200 mL", "1.200 mL", "1/2 tablet", "½ tablet", "120/80 mmHg", "1:1000",
    "2024-11-18", "18/11/2024", "95% CI 0.81-1.04", "p<0.001", "p = 0.05", "2 × 10^9/L", "1.73 m^2", "10^-3 mol",
    "5 µg", "37.5 °C", "IL-6", "COVID-19", "B12", "q.6h", "Ca2+", "FEV1", "6-8 h", "3-fold", "100 000 IU", "T4",
)  # fmt: skip
"""Clinical numbers as they are to be read; a power of ten is raised in the files and has a caret in the text."""

_VERA = "Vera"
pdfmetrics.registerFont(TTFont(_VERA, str(Path(reportlab.__file__).parent / "fonts" / "Vera.ttf")))
_SIZE, _STEP = 10, 14


def write_pdf(draw: Callable[[Canvas], None], title: str = "", password: str = "") -> bytes:
    """A PDF that a function draws, with an embedded font of many characters."""
    content = io.BytesIO()
    locked = StandardEncryption(password, canPrint=0) if password else None
    canvas = Canvas(content, pagesize=(420, 595), encrypt=locked)
    if title:
        canvas.setTitle(title)
    canvas.setFont(_VERA, _SIZE)
    draw(canvas)
    canvas.save()
    return content.getvalue()


def line(canvas: Canvas, x: float, y: float, text: str, size: float = _SIZE) -> None:
    """Draw a text; what follows a caret, up to the next letter, slash or space, is raised and small."""
    place = canvas.beginText(x, y)
    for number, part in enumerate(text.split("^")):
        digits = len(part) - len(part.lstrip("-−0123456789")) if number else 0
        if digits:
            place.setFont(_VERA, size * 0.6)
            place.setRise(size * 0.4)
            place.textOut(part[:digits])
        place.setFont(_VERA, size)
        place.setRise(0)
        place.textOut(part[digits:])
    canvas.drawText(place)


def lines_pdf(*texts: str, **options: str) -> bytes:
    """A PDF of one page, a line for each text."""

    def draw(canvas: Canvas) -> None:
        for number, text in enumerate(texts):
            line(canvas, 40, 500 - _STEP * number, text)

    return write_pdf(draw, **options)


LEFT = [
    "Start metformin at 500 mg once a",
    "day and raise the dose every 10-",
    "14 days to 2,000 mg if it can be",
    "taken without harm to the gut.",
]
RIGHT = [
    "Stop the drug if the clearance is",
    "below 30 mL/min, for the risk of",
    "lactic acidosis, which is 3-10 of",
    "100,000 treated for a whole year.",
]
COLUMNS = (
    "Dosing of metformin in type 2 diabetes: a guideline of one page\n"
    "Start metformin at 500 mg once a day and raise the dose every 10-14 days to 2,000 mg if it can be taken without"
    " harm to the gut.\n"
    "Stop the drug if the clearance is below 30 mL/min, for the risk of lactic acidosis, which is 3-10 of 100,000"
    " treated for a whole year.\n"
)


def columns_pdf(by_line: bool) -> bytes:
    """Two columns, drawn line by line across both, or one after the other."""

    def draw(canvas: Canvas) -> None:
        line(canvas, 30, 530, "Dosing of metformin in type 2 diabetes: a guideline of one page")
        cells = [(30, row, text) for row, text in enumerate(LEFT)] + [
            (220, row, text) for row, text in enumerate(RIGHT)
        ]
        for x, row, text in sorted(cells, key=lambda cell: cell[1]) if by_line else cells:
            line(canvas, x, 500 - _STEP * row, text)

    return write_pdf(draw)


def table_pdf() -> bytes:
    """A table of four rows between two sentences."""
    return write_pdf(_draw_table)


def turned_table_pdf(turn: int) -> bytes:
    """The same table on a page that is shown turned, as wide tables are."""

    def draw(canvas: Canvas) -> None:
        canvas.setPageRotation(turn)
        canvas.translate(*{0: (0, 0), 90: (420, 0), 180: (420, 595), 270: (0, 595)}[turn])
        canvas.rotate(turn)
        _draw_table(canvas)

    return write_pdf(draw)


def _draw_table(canvas: Canvas) -> None:
    rows = [
        ("Drug", "Dose", "Limit"),
        ("Alpha", "<1.5", "raise by 20%"),
        ("Beta", "1.5-4", "keep"),
        ("Gamma", ">4", "hold"),
    ]

    line(canvas, 40, 400, "The dose goes by the level.")
    for number, row in enumerate(rows):
        for x, cell in zip((40, 150, 260), row, strict=True):
            line(canvas, x, 370 - _STEP * number, cell)
    line(canvas, 40, 280, "Ask if in doubt.")


TABLE = (
    "The dose goes by the level.\nDrug | Dose | Limit\nAlpha | <1.5 | raise by 20%\nBeta | 1.5-4 | keep\n"
    "Gamma | >4 | hold\nAsk if in doubt.\n"
)


def running_heads_pdf() -> bytes:
    """Three pages with a head and a number at the foot; a sentence goes over a page."""
    texts = ["The first page ends in the middle of", "a sentence. Give 5 mg.", "Then 10 mg."]

    def draw(canvas: Canvas) -> None:
        for number, text in enumerate(texts, 1):
            canvas.setFont(_VERA, _SIZE)
            line(canvas, 40, 570, "Journal of Careful Reading 2024; 12")
            line(canvas, 40, 480, text)
            line(canvas, 200, 20, f"Page {number} of 3")
            canvas.showPage()

    return write_pdf(draw)


_PARTS = "http://schemas.openxmlformats.org"
_WORD_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml"


def write_docx(body: str) -> bytes:
    """A Word file of the given paragraphs, in its own XML, with a header."""
    space = f'xmlns:w="{_PARTS}/wordprocessingml/2006/main"'
    types = "".join(
        f'<Override PartName="/word/{part}.xml" ContentType="{_WORD_TYPE}.{kind}+xml"/>'
        for part, kind in (("document", "document.main"), ("styles", "styles"), ("header1", "header"))
    )
    style = '<w:style w:type="paragraph" w:styleId="Heading1"><w:name w:val="heading 1"/></w:style>'
    files = {
        "[Content_Types].xml": f'<Types xmlns="{_PARTS}/package/2006/content-types"><Default Extension="rels"'
        f' ContentType="application/vnd.openxmlformats-package.relationships+xml"/>{types}</Types>',
        "_rels/.rels": _relations(officeDocument="word/document.xml"),
        "word/_rels/document.xml.rels": _relations(styles="styles.xml", header="header1.xml"),
        "word/styles.xml": f"<w:styles {space}>{style}</w:styles>",
        "word/header1.xml": f"<w:hdr {space}><w:p><w:r><w:t>Running head</w:t></w:r></w:p></w:hdr>",
        "word/document.xml": f"<w:document {space}><w:body>{body}</w:body></w:document>",
    }
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, f'<?xml version="1.0" encoding="UTF-8"?>{text}')
    return content.getvalue()


def _relations(**targets: str) -> str:
    links = "".join(
        f'<Relationship Id="{kind}" Type="{_PARTS}/officeDocument/2006/relationships/{kind}" Target="{target}"/>'
        for kind, target in targets.items()
    )
    return f'<Relationships xmlns="{_PARTS}/package/2006/relationships">{links}</Relationships>'


def paragraph(text: str, style: str = "") -> str:
    """A paragraph of Word; what follows a caret is raised."""
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    runs = []
    for number, part in enumerate(text.replace("&", "&amp;").replace("<", "&lt;").split("^")):
        digits = len(part) - len(part.lstrip("-−0123456789")) if number else 0
        runs += [f'<w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:t>{part[:digits]}</w:t></w:r>'] * bool(
            digits
        )
        runs.append(f'<w:r><w:t xml:space="preserve">{part[digits:]}</w:t></w:r>')
    return f"<w:p>{properties}{''.join(runs)}</w:p>"


def row(*cells: str) -> str:
    """A row of a table of Word."""
    return f"<w:tr>{''.join(f'<w:tc>{paragraph(cell)}</w:tc>' for cell in cells)}</w:tr>"
