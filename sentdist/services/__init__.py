"""The servers of one person on one machine: a Ray head and MLflow, started, found again and ended."""
