"""A recipe planned against the data and checkpoints that are there."""
