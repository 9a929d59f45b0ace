"""Making benchmarks: tasks from one's own questions and documents, nano sets of any task, and audits of labels."""
