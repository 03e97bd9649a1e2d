"""Measurements against named peers, and the pages and figures that are made from them."""
