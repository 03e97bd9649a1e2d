"""Run a search: suggest trials, prune, stop within a budget, in this process or on a cluster."""
