"""From a line of text to a measured run: the spec language, stages, systems, the registry, plans, and evaluate."""
