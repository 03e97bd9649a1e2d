"""Printed results of papers, one module per paper, named as in recipes, with the cells of ours that reproduce each row."""
