"""Show sweeps and searches in MLflow. Everything can be rebuilt from the store; nothing waits for a server.

`tracker.py` defines what a sweep reports, `sweep_runs.py` the content of each run. No other package imports MLflow.
"""
