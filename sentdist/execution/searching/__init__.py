"""A search carried out: who suggests, what is decided, where trials run."""
