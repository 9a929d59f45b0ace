"""Formats of run files: JSON lines, parquet and TREC."""
