"""The lexical engine: analyzer, tokens, index, BM25, the ranking rule, and texts compared by their words."""
