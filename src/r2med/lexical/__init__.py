"""The lexical engine: analyzer, tokens, index, BM25 and the ranking rule. It imports nothing of r2med but errors."""
