"""Executors of work: this process, shards of a batch system, or a Ray cluster."""
