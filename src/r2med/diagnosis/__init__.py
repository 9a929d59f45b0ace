"""Causes of failure: where relevant documents are lost, and what would find them."""
