"""Charts: their descriptions, their layout, and how they are drawn."""
