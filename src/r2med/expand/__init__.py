"""Expanders: queries in, queries out, with what a model wrote for each of them."""
