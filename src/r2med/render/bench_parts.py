"""Small parts of the query workbench that it shows many times: bars of scores, chips of causes, slopes, options."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from markupsafe import Markup

from r2med.diagnose.causes import QueryCause
from r2med.render.scale import Scale
from r2med.render.svg import hint, tag
from r2med.text.unprintable import harmless

_BARS = (100, 11)
_SLOPE = (40, 20)
_DEPTH = 100
"""The lowest place that a slope has room for."""


@lru_cache(maxsize=8192)
def score_bars(a: float | None, b: float | None = None) -> Markup:
    """Two scores as bars one above the other, A filled and B hollow; what is not known has no bar.

    >>> "A 50.00, B not known" in score_bars(0.5)
    True
    """
    width, height = _BARS
    parts = [hint(said := f"A {_said(a)}, B {_said(b)}")]
    for top, value, look in ((0.5, a, "a"), (6.5, b, "b")):
        if value is not None:
            parts.append(tag("rect", x=0.5, y=top, width=max(1.0, value * (width - 1)), height=4, class_=look))
    facts = {"class_": "ab", "viewBox": f"0 0 {width} {height}", "preserveAspectRatio": "none", "role": "img"}
    return Markup(tag("svg", *parts, **facts, aria_label=said))


def _said(value: float | None) -> str:
    return "not known" if value is None else f"{100 * value:.2f}"


@lru_cache(maxsize=8192)
def place_slope(a: int | None, b: int | None) -> Markup:
    """A line from the place in A to the place in B, high places above; dashed where one list lacks the document."""
    width, height = _SLOPE
    scale = Scale(1, _DEPTH, 3, height - 3, logarithmic=True)
    left, right = (scale(rank or _DEPTH) for rank in (a, b))
    look = "slope" if a and b else "slope open"
    line = tag("line", x1=4, x2=width - 4, y1=left, y2=right, class_=look)
    ends = [
        tag("circle", cx=x, cy=y, r=2.6, class_="mark" if rank else "mark hollow")
        for x, y, rank in ((4, left, a), (width - 4, right, b))
    ]
    return Markup(tag("svg", line, *ends, class_="places", viewBox=f"0 0 {width} {height}", aria_hidden="true"))


def cause_chips(before: QueryCause | None, after: QueryCause | None) -> Markup:
    """What became of a query's relevant documents in A and in B; nothing where nobody knows."""
    known = [(letter, each) for letter, each in (("A", before), ("B", after)) if each is not None]
    return _chips(tuple((letter, each.summary, each.all_found) for letter, each in known))


@lru_cache(maxsize=4096)
def _chips(found: Sequence[tuple[str, str, bool]]) -> Markup:
    chip = Markup('<span class="chip{}">{} {}</span>')
    made = [chip.format(" fine" if fine else "", letter, summary) for letter, summary, fine in found]
    return Markup('<div class="chips">{}</div>').format(Markup("").join(made)) if made else Markup("")


def option_list(names: Iterable[str]) -> Markup:
    """The options of a choice, none of them chosen."""
    return Markup("").join(_option(name) for name in names)


def choose(options: Markup, name: str) -> Markup:
    """The same options with one of them chosen, where it is there.

    >>> str(choose(option_list(["a", "b >> c"]), "b >> c"))
    '<option>a</option><option selected>b &gt;&gt; c</option>'
    """
    return options.replace(_option(name), _option(name, " selected"), 1)


def without(options: Markup, names: Iterable[str]) -> Markup:
    """The same options but for some."""
    for name in names:
        options = options.replace(_option(name), "", 1)
    return options


def _option(name: str, chosen: str = "") -> Markup:
    return Markup("<option{}>{}</option>").format(chosen, harmless(name))
