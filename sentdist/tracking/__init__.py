"""What MLflow shows of sweeps and searches. All of it can be written again from the records in the store; nothing waits for a server.

Where to begin: `tracker.py` says what a sweep reports, `sweep_runs.py` what stands on each run. Nothing else imports MLflow.
"""
