"""What any model needs: cards, files, loading, tokenizers, prompts, and the address of a server."""
