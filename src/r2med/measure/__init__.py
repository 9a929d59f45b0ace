"""Measuring: runs against judgements."""
