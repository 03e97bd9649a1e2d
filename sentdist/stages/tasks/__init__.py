"""Load each kind of task and score embeddings on it."""
