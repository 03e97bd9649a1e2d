"""Trainable parts of objectives: heads, relation vectors, adversaries. The equations are in objectives/NAME.py."""
