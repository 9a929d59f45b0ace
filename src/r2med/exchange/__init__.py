"""Formats of other tools: run files scored and imported, results exported, submissions packed and verified."""
