"""HTML of pages: templates in one environment, in which every text is escaped unless it was drawn here."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from importlib import resources
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

import r2med
from r2med.data.task_names import GROUP_TITLES, called, task_headings
from r2med.data.tasks import registry
from r2med.encode.late_interaction import TokenMatch
from r2med.formatting import harmless, percent, signed, start_of
from r2med.lexical.highlight import Kinds, excerpt, parts
from r2med.render.palette import style_sheet
from r2med.runs.cost import Cost

_MAX_PAIRS = 12  # pairs of tokens in a line


def shown_tokens(matches: Sequence[TokenMatch]) -> str:
    """List the best matches of the query's own tokens, the closest first, and the sum of its markers and masks.

    >>> shown_tokens([TokenMatch("wrist", "wrist", 0.9, True, 4, 9), TokenMatch("[MASK]", "nerve", 0.5, False, 0, 5)])
    'wrist → wrist 0.90; 1 marker or mask adds 0.5'
    """
    written = sorted((match for match in matches if match.written), key=lambda match: -match.similarity)
    pairs = [f"{match.query} → {match.document} {match.similarity:.2f}" for match in written[:_MAX_PAIRS]]
    pairs += [f"{len(written) - _MAX_PAIRS} more"] if len(written) > _MAX_PAIRS else []
    parts = [", ".join(pairs)] if pairs else []
    if others := [match.similarity for match in matches if not match.written]:
        several = "1 marker or mask adds" if len(others) == 1 else f"{len(others)} markers and masks add"
        parts.append(f"{several} {sum(others):.3g}")
    return "; ".join(parts)


def matched(text: str, matches: Sequence[TokenMatch]) -> Markup:
    """Mark the tokens of a text that tokens of the query fit best, with token and similarity; escape all of it.

    >>> matched("<i> wrist", [TokenMatch("wrist", "wrist", 0.9, True, 4, 9)])
    Markup('&lt;i&gt; <mark class="query" title="wrist 0.90">wrist</mark>')
    """
    places: dict[tuple[int, int], list[TokenMatch]] = {}
    for match in matches:
        if match.start >= 0:
            places.setdefault((match.start, match.end), []).append(match)
    pieces, done = [], 0
    for (start, end), several in sorted(places.items()):
        if start < done:
            continue
        title = ", ".join(f"{match.query} {match.similarity:.2f}" for match in several)
        kind = "query" if any(match.written for match in several) else "generated"
        pieces.append(escape(harmless(text[done:start])))
        mark = Markup('<mark class="{}" title="{}">{}</mark>')
        pieces.append(mark.format(kind, harmless(title), harmless(text[start:end])))
        done = end
    return Markup("").join([*pieces, escape(harmless(text[done:]))])


_ADDRESS = re.compile(r"(https?://[^\s<>\"']+[^\s<>\"'.,;:)])")


@dataclass(frozen=True)
class Frame:
    """Surroundings of a page, which differ between outputs."""

    links: Mapping[str, str]  # the menu: names to addresses
    current: str = ""
    root: str = ""  # what stands before the address of a static file
    live: bool = False  # whether a server answers: tables are then sorted and filtered by it
    inline: Mapping[str, str] = field(default_factory=dict)  # style and script, where the page must hold them itself
    busy: bool = False  # whether anything is running
    policy: str = ""  # the Content-Security-Policy, where no header can say it
    person: str = ""  # who the page is for, where it is for one person


STYLE = "render/style.css"
"""The style sheet of every page."""


def bundled_file(kind: str, name: str) -> str:
    """Return a file of a package by the package's name and its own: `reviews/item.html` of the kind `templates`."""
    package, _, file = name.partition("/")
    return resources.files(f"r2med.{package}").joinpath(kind, file).read_text("utf-8")


def static(name: str) -> str:
    """Return a static file's text; the style sheet begins with the colours of the palette.

    Names are of a package and a file in its folder `static`: `render/style.css`.
    """
    text = bundled_file("static", name)
    return style_sheet() + text if name == STYLE else text


def inlined(links: Mapping[str, str], *files: str) -> Frame:
    """Return the frame of a page that needs no other file: it holds its style and scripts, which its policy allows.

    Style sheets among the files follow the one that every page has.

    >>> inlined({}).policy.startswith("default-src 'none'; style-src 'sha256-")
    True
    """
    style, script = (
        "".join(static(name) for name in (STYLE, *files) if name.endswith(ending)) for ending in (".css", ".js")
    )
    allowed = f"script-src {_digest(script)}; " if script else ""
    images = "data: blob:" if script else "data:"
    policy = f"default-src 'none'; {allowed}style-src {_digest(style)}; img-src {images}; base-uri 'none'"
    icon = f"data:image/svg+xml;base64,{base64.b64encode(static('render/icon.svg').encode()).decode('ascii')}"
    return Frame(links, inline={"style": Markup(style), "script": Markup(script), "icon": icon}, policy=policy)


def _digest(text: str) -> str:
    """Return the hash by which a policy names the one script or style that it allows."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def render(template: str, frame: Frame, **values: Any) -> str:
    """Render a whole page."""
    return environment().get_template(template).render(frame=frame, **values)


def render_card(template: str, **values: Any) -> str:
    """Render the Markdown card of a dataset, in which nothing is escaped."""
    return environment().overlay(autoescape=False, finalize=None).get_template(template).render(**values)


def short(task: str, tasks: Sequence[str] = ()) -> str:
    """Return the heading of a task's column among others."""
    return task_headings(tasks or [task])[task]


def named(task: str) -> Markup:
    """Write a task with its folder on hover.

    >>> named("/home/me/guidelines"), named("sample/Biology")
    (Markup('<span title="/home/me/guidelines">guidelines</span>'), Markup('sample/Biology'))
    """
    name = called(task)
    return escape(task) if name == task else Markup('<span title="{}">{}</span>').format(task, name)


def setting(value: object) -> str:
    """Write a setting of a stage for people.

    >>> setting({"temperature": 0.8, "stop": ["a", "b"]}), setting(False), setting(None), setting([])
    ('temperature 0.8, stop a, b', 'no', 'none', 'none')
    >>> setting([["backend", "static"], ["prompt", ""]])
    'backend static, prompt none'
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {setting(inner)}" for name, inner in value.items()) or "none"
    if isinstance(value, list | tuple | set | frozenset):
        words = [" ".join(map(setting, part)) if isinstance(part, list | tuple) else setting(part) for part in value]
        return ", ".join(words) or "none"
    return "none" if value in (None, "") else str(value)


def minus(text: str) -> str:
    """Write the signs of negative numbers as minus signs.

    >>> minus("-0.286 (-0.41 to -0.1)"), minus("gpt-4"), minus("2026-11-18")
    ('−0.286 (−0.41 to −0.1)', 'gpt-4', '2026-11-18')
    """
    return re.sub(r"(?<![\w.)-])-(?=[\d.])", "\N{MINUS SIGN}", text)


def ticks(text: str) -> Markup:
    """Set in a code face what stands between backticks.

    >>> ticks("those who said `unsure` & left")
    Markup('those who said <code>unsure</code> &amp; left')
    """
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


@cache
def environment() -> Environment:
    """Return the templates with everything that they use."""
    templates = Environment(
        loader=FunctionLoader(partial(bundled_file, "templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        # A page must not hold control characters.
        finalize=lambda value: harmless(value) if type(value) is str else value,
    )
    templates.filters |= {
        "marked": marked,
        "matched": matched,
        "token_line": shown_tokens,
        "excerpt": lambda text, kinds, words: _excerpt(text, tuple(kinds.items()), words),
        "short": short,
        "called": called,
        "named": named,
        "setting": setting,
        "minus": minus,
        "ticks": ticks,
        "percent": percent,
        "address": address,
        "places": places,
        "start_of": start_of,
        "quoted": shlex.quote,
    }
    templates.globals |= {
        "version": r2med.__version__,
        "groups": GROUP_TITLES,
        "spent": spent,
        "signed": signed,
        "known_tasks": registry(),
    }
    return templates


def spent(cost: Cost | None) -> dict[str, str]:
    """Return the cost of a system under the headings of every other table; a dash for what was published without it.

    >>> spent(Cost(requests=12, prompt_tokens=3000, dollars=None, searching=6.0, queries=3))
    {'Requests': '12', 'Tokens': '3,000', 'Dollars': '?', 'Seconds a query': '2.000'}
    """
    requests, tokens, _, dollars, seconds = ["\N{EN DASH}"] * 5 if cost is None else cost.cells()
    return {"Requests": requests, "Tokens": tokens, "Dollars": dollars, "Seconds a query": seconds}


def marked(text: str, kinds: Kinds) -> Markup:
    """Mark the matching words of a text, and escape all of it.

    >>> marked("<b>gums</b> bleed", {"bleed": "query"})
    Markup('&lt;b&gt;gums&lt;/b&gt; <mark class="query">bleed</mark>')
    """
    return _marked(text, tuple(kinds.items()))


@lru_cache(maxsize=2048)  # the same documents are looked at again and again
def _marked(text: str, pairs: tuple[tuple[str, str], ...]) -> Markup:
    pieces = []
    for part in parts(text, dict(pairs)):
        inner = str(escape(harmless(part.text)))
        pieces.append(f'<mark class="{escape(part.kind)}">{inner}</mark>' if part.kind else inner)
    return Markup("".join(pieces))


@lru_cache(maxsize=2048)
def _excerpt(text: str, pairs: tuple[tuple[str, str], ...], words: int) -> str:
    return excerpt(text, dict(pairs), words)


def places(text: str) -> list[tuple[str, str]]:
    """Split a text into stretches, each with the URL that it is, or with an empty one.

    >>> places("see https://a.example/x, page 3")
    [('see ', ''), ('https://a.example/x', 'https://a.example/x'), (', page 3', '')]
    """
    return [(piece, piece if _ADDRESS.fullmatch(piece) else "") for piece in _ADDRESS.split(text) if piece]


def address(path: str, **values: object) -> str:
    """Return a path with its query; lists are repeated and empty values left out.

    >>> address("/run", id="a b", task="", run=["x", "y"])
    '/run?id=a+b&run=x&run=y'
    """
    pairs = {name: value for name, value in values.items() if value not in ("", None, [], ())}
    query = urlencode(pairs, doseq=True, errors="replace")
    return f"{path}?{query}" if query else path
