"""Show sweeps and searches in MLflow: one run a trial, one parent a sweep. No other package imports MLflow."""
