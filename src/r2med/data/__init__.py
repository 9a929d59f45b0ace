"""Tasks, datasets, their readers and their checks."""
