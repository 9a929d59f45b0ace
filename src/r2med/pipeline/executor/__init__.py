"""Executors: where work runs. This process, shards of a batch system, or a Ray cluster."""
