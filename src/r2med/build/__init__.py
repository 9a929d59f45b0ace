"""Making benchmarks: nano sets of any task."""
