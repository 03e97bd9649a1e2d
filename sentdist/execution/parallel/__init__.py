"""Work in parts over workers that are taken one by one: shards, embeddings, search."""
