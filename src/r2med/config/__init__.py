"""A user's own settings, from `r2med.toml` here or `config.toml` in `R2MED_HOME`, and experiments.

    [aliases]
    best = "rrf(bm25, minilm) >> bge-reranker(depth=100)"

    [servers]
    vllm-farm = ["http://gpu1:8000/v1", "http://gpu2:8000/v1"]

    [requests]
    timeout = 120
    retries = 2
    concurrency = 8
    requests_per_minute = 60

    [limits]
    memory = "4GB"

An alias may use other aliases and may stand wherever a stage or a system may. It never enters a result: the ledger
knows the system that it stands for. Servers under one name share answers, vectors and scores. Requests are those to
chat, embedding and rerank servers. Memory is what building an index, reading a large corpus and searching may take.
What a command says wins; neither changes a result.
"""
