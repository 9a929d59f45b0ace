"""Frontier, routing and tuning: which options and which systems are worth their price."""
