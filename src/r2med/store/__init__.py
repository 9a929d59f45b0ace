"""What is kept: the ledger of runs and the content-addressed cache."""
