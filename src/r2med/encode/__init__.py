"""Texts to vectors: encoders, the loop that runs them, the store that keeps what they made, and exact search."""
