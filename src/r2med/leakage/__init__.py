"""Leakage: which queries, positives and documents of an evaluation occur in training data."""
