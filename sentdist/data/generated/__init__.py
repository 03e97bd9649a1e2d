"""Text generated from a seed: everyday scenes, questions of customers; the same on every machine."""
