"""Text generated from a seed: what customers report to a help desk, what its staff note; the same on every machine."""
