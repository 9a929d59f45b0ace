"""Nano sets: small tasks made from large ones, and how well they stand for them."""
