"""Encoders: texts to vectors, the loop that runs them, the store of vectors, and exact search."""
