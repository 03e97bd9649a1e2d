"""Distribute parts of a job (shards, embeddings, search) over a pool of workers."""
