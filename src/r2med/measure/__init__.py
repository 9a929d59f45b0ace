"""Measures, intervals, tests and agreement."""
