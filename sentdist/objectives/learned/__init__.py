"""What some objectives learn beside the encoder: heads, vectors of relations, adversaries. objectives/NAME.py hands them its equation."""
