"""Text analysis: the exact tokens of Anserini's default English analyzer."""

from r2med.text.analyzer import (
    ANALYZER,
    ANALYZER_VERSION,
    BREAK,
    BREAK_PATTERN,
    STOP_WORDS,
    PieceTokens,
    analyze,
    analyze_pieces,
)

__all__ = [
    "ANALYZER",
    "ANALYZER_VERSION",
    "BREAK",
    "BREAK_PATTERN",
    "STOP_WORDS",
    "PieceTokens",
    "analyze",
    "analyze_pieces",
]
