"""Local servers of one user: start, find and stop a Ray head and MLflow."""
