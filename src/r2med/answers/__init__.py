"""Answers with and without passages: does retrieval change them, and are they right?"""
