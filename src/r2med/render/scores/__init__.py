"""The table of systems by tasks, on a terminal, as text, LaTeX and in files."""
