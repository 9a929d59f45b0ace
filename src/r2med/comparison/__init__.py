"""Paired comparisons of systems: is one better, and how sure is that?"""
