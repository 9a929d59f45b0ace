"""Finished runs: their record, the ledger that keeps them, usage and cost, selection, and the report."""
