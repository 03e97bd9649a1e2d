"""A recipe planned against the data and checkpoints that are there, with estimates of the time and memory that it takes."""
