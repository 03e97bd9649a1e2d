# Sourced by quickstart.sh: a sweep as a job of the servers that `sentdist up` started, in a shell that has read .sentdist/env.

# What a job gets beside its code. It stands in the command line of `ray job submit`, which every user of the machine can read: no secrets, but their paths.
job_environment() {
    python -c 'import json, os, sys; print(json.dumps({"env_vars": {name: os.environ[name] for name in sys.argv[1:] if name in os.environ}}))' \
        SENTDIST_STORE SENTDIST_DATA MLFLOW_TRACKING_URI MLFLOW_TRACKING_USERNAME SENTDIST_MLFLOW_PASSWORD_FILE \
        MLFLOW_DISABLE_TELEMETRY DO_NOT_TRACK TOKENIZERS_PARALLELISM HF_HUB_OFFLINE
}

# Follows the job's own lines as they come (Python keeps what it writes into a pipe until it has 8 kB, some eighty lines). What the submission client says of itself goes to a log: it repeats the end of a failed job's output.
submit_sweep() {
    PYTHONUNBUFFERED=1 ray job submit --working-dir . --runtime-env-json "$(job_environment)" --log-style record --log-color false \
        -- python -m rayjobs.sweep "$@" 2>.sentdist/logs/submit.log | tee .sentdist/logs/sweep.log |
        python -u infra/job_lines.py || {
        grep -q ' job_manager.py:' .sentdist/logs/sweep.log || tail -n 1 .sentdist/logs/submit.log >&2 # it never came to a job
        return 1
    }
}
