"""Runs a search: who suggests, what is decided, where trials run."""
