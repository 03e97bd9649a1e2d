"""Plan a recipe against existing data and checkpoints, and estimate its time and memory."""
