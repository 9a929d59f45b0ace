"""Training data that keeps the way from question to evidence, and retrievers trained on it."""
