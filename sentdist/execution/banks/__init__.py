"""Embedding banks in the object store: who holds them, who reads them, whether there is room."""
