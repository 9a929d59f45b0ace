"""Judged tasks made from a team's own questions and documents."""
