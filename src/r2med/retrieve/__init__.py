"""Searching: queries in, run out."""
