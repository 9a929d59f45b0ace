"""Audits of labels: where label sets differ, and what that changes."""
