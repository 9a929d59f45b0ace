"""Where work runs: this process, shards of a batch system, or a Ray cluster."""
