"""Text in LaTeX: every sign as itself, written in ASCII, so that it is printed in any font encoding."""

from __future__ import annotations

import unicodedata
from itertools import zip_longest

_SIGNS = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\texttt{\char34}", "`": r"\textasciigrave{}", "†": r"$\dagger$", "‡": r"$\ddagger$",
    "≠": r"$\neq$", "≥": r"$\geq$", "≤": r"$\leq$", "≈": r"$\approx$", "±": r"$\pm$", "×": r"$\times$",
    "→": r"$\rightarrow$", "←": r"$\leftarrow$", "∞": r"$\infty$", "·": r"$\cdot$", "°": r"$^{\circ}$",
    "µ": r"$\mu$", "–": "--{}", "—": "---{}", "…": r"\ldots{}", "‘": "`{}", "’": "'{}", "“": "``{}", "”": "''{}",
    "ß": r"\ss{}", "æ": r"\ae{}", "Æ": r"\AE{}", "œ": r"\oe{}", "Œ": r"\OE{}", "ø": r"\o{}", "Ø": r"\O{}",
    "ł": r"\l{}", "Ł": r"\L{}", "ı": r"\i{}", "ο": "o", "§": r"\S{}", "²": "$^{2}$", "³": "$^{3}$",
}  # fmt: skip
_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi o pi rho varsigma sigma tau upsilon phi"
    " chi psi omega"
)
_SIGNS |= {chr(ord("α") + place): rf"$\{name}$" for place, name in enumerate(_GREEK.split()) if name != "o"}
_ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u", "\u0307": ".",
    "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0327": "c", "\u0323": "d", "\u0331": "b",
}  # fmt: skip
_LIGATURES = "-',"
"""Two of these in a row would become another sign."""
_BREAKS = "/_,()=:"
"""What a name may be broken after; TeX itself breaks after hyphens."""
_UNBROKEN = 14


def escaped(text: str) -> str:
    r"""Text that LaTeX prints as it is; a sign that its fonts lack is named by its code point.

    >>> escaped("hyde(gpt-4o) >> my_model & 5%")
    'hyde(gpt-4o) \\textgreater{}\\textgreater{} my\\_model \\& 5\\%'
    >>> escaped("café ≥ 中")
    "caf\\'{e} $\\geq$ \\texttt{[U+4E2D]}"
    """
    return "".join(_pieces(text))


def breakable(text: str) -> str:
    r"""The same for a narrow column: it may be broken after signs such as a slash, and inside what has none.

    >>> breakable("BAAI/bge-m3")
    'BAAI/\\allowbreak{}bge-m3'
    """
    pieces = _pieces(text)
    parts: list[str] = []
    length = 0
    for piece, after in zip_longest(pieces, pieces[1:], fillvalue=" "):
        parts.append(piece)
        length += len("[U+0000]") if piece.startswith(r"\texttt{[") else 1
        if after == " " or piece in (" ", "-"):
            length = 0
        elif length >= _UNBROKEN or piece[-1] in _BREAKS:
            parts.append(r"\allowbreak{}")
            length = 0
    return "".join(parts)


def unprintable(text: str) -> list[str]:
    """The signs of a text that are named by their code points, each once.

    >>> unprintable("é 中 中")
    ['中']
    """
    signs = dict.fromkeys(unicodedata.normalize("NFC", text))
    return [sign for sign in signs if not sign.isspace() and _named(sign) == _sign(sign)]


def one_line(text: str) -> str:
    """A text that cannot leave a comment or a cell: all white space single blanks."""
    return " ".join(text.split())


def _pieces(text: str) -> list[str]:
    """What each sign becomes."""
    plain = one_line(unicodedata.normalize("NFC", text))
    return [
        "{}" * (before == sign and sign in _LIGATURES) + _sign(sign)
        for before, sign in zip(" " + plain, plain, strict=False)
    ]


def _sign(sign: str) -> str:
    if sign in _SIGNS:
        return _SIGNS[sign]
    if " " <= sign <= "~":
        return sign
    parts = unicodedata.normalize("NFD", sign)
    base, accent = parts[0], _ACCENTS.get(parts[1:])
    if accent and base.isascii() and base.isalpha():
        return rf"\{accent}{{{chr(92) + base if base in 'ij' else base}}}"
    return _named(sign)


def _named(sign: str) -> str:
    return rf"\texttt{{[U+{ord(sign):04X}]}}"
