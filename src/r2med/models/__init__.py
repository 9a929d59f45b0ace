"""Parts of every model: cards, sources, prompts, HTTP, tokenizers."""
