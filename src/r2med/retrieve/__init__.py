"""Retrievers: queries in, ranked lists out; fusion and routing."""
