"""Finished runs: their record, the ledger that keeps them, their cost, which ones are meant, and the report."""
