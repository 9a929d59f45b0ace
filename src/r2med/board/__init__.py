"""Boards: published rows and local rows, ranked together, and what may be said of their differences."""
