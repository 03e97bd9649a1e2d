"""A training on a cluster: on one worker or several, its engine, its checkpoints and what it reports."""
