"""Rendering: the one table, sections, text formats, charts and HTML. It knows no study."""
