"""How results look on a terminal: the consoles and the one table."""
