"""The matches of late interaction as people read them: a line of pairs, and the document with its tokens marked."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from r2med.encode.token_alignment import TokenMatch
from r2med.text.unprintable import harmless

_SHOWN = 12
"""Pairs of tokens in a line."""


def shown_tokens(matches: Sequence[TokenMatch]) -> str:
    """The best matches of the query's own tokens, the closest first, and what its markers and masks add together.

    >>> shown_tokens([TokenMatch("wrist", "wrist", 0.9, True, 4, 9), TokenMatch("[MASK]", "nerve", 0.5, False, 0, 5)])
    'wrist → wrist 0.90; 1 marker or mask adds 0.5'
    """
    written = sorted((each for each in matches if each.written), key=lambda each: -each.similarity)
    shown = [f"{each.query} → {each.document} {each.similarity:.2f}" for each in written[:_SHOWN]]
    rest = len(written) - len(shown)
    words = ", ".join([*shown, *([f"{rest} more"] if rest else [])])
    others = [each.similarity for each in matches if not each.written]
    several = "1 marker or mask adds" if len(others) == 1 else f"{len(others)} markers and masks add"
    return "; ".join([*([words] if words else []), *([f"{several} {sum(others):.3g}"] if others else [])])


def matched(text: str, matches: Sequence[TokenMatch]) -> Markup:
    """A text with the tokens marked that tokens of the query fit best, each saying which and how well; all escaped.

    >>> matched("<i> wrist", [TokenMatch("wrist", "wrist", 0.9, True, 4, 9)])
    Markup('&lt;i&gt; <mark class="query" title="wrist 0.90">wrist</mark>')
    """
    places: dict[tuple[int, int], list[TokenMatch]] = {}
    for match in matches:
        if match.start >= 0:
            places.setdefault((match.start, match.end), []).append(match)
    pieces, done = [], 0
    for (start, end), found in sorted(places.items()):
        if start < done:
            continue
        said = ", ".join(f"{each.query} {each.similarity:.2f}" for each in found)
        pieces.append(str(escape(harmless(text[done:start]))))
        inner = escape(harmless(text[start:end]))
        kind = "query" if any(each.written for each in found) else "generated"
        pieces.append(f'<mark class="{kind}" title="{escape(harmless(said))}">{inner}</mark>')
        done = end
    return Markup("".join([*pieces, str(escape(harmless(text[done:])))]))
