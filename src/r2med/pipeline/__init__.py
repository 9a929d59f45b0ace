"""From a line of text to a measured run: specs, stages, systems, the registry, plans, and evaluate."""
