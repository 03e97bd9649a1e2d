"""What some objectives learn beside the encoder: heads, vectors of relations, adversaries. The equation is in objectives/NAME.py."""
