"""Translated tasks: questions in another language, with gates against changed meaning."""
