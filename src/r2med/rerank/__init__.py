"""Rerankers: a ranked list in, the same documents in a better order out."""
