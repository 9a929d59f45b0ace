"""Chat models: one client for every OpenAI-compatible server, with kept replies, limits and costs."""
