# Sourced by quickstart.sh: a sweep as a job of the servers that `sentdist up` started, in a shell that has read .sentdist/env.

# whole_path PATH: as it leads from here; an address stays. A job runs in a copy of this folder, from which ../data leads elsewhere.
whole_path() {
    case "$1" in
        /* | '~'* | *://*) printf '%s' "$1" ;;
        *) printf '%s' "$PWD/$1" ;;
    esac
}

# What a job gets beside its code: of secrets only the paths, but an address of a store or of data may hold one.
job_environment() {
    [ -z "${SENTDIST_DATA:-}" ] || local -x SENTDIST_DATA="$(whole_path "$SENTDIST_DATA")"
    python -c 'import json, os, sys; print(json.dumps({"env_vars": {name: os.environ[name] for name in sys.argv[1:] if name in os.environ}}, ensure_ascii=False))' \
        SENTDIST_STORE SENTDIST_DATA MLFLOW_TRACKING_URI MLFLOW_TRACKING_USERNAME SENTDIST_MLFLOW_PASSWORD_FILE \
        MLFLOW_DISABLE_TELEMETRY DO_NOT_TRACK TOKENIZERS_PARALLELISM HF_HUB_OFFLINE
}

# Follows the job's own lines as they come (Python keeps what it writes into a pipe until it has 8 kB, some eighty lines). What the submission client says of itself goes to a log: it repeats the end of a failed job's output.
# Every user of the machine can read command lines: what the job gets stands in a file.
submit_sweep() {
    local before="" word words=()
    for word in "$@"; do
        case "$before" in --data | --store) word="$(whole_path "$word")" ;; esac
        case "$word" in --data=* | --store=*) word="${word%%=*}=$(whole_path "${word#*=}")" ;; esac
        words+=("$word")
        before="$word"
    done
    job_environment >.sentdist/job_environment.json
    PYTHONUNBUFFERED=1 ray job submit --working-dir . --runtime-env .sentdist/job_environment.json --log-style record --log-color false \
        -- python -m rayjobs.sweep "${words[@]}" 2>.sentdist/logs/submit.log | tee .sentdist/logs/sweep.log |
        python -u infra/job_lines.py || {
        grep -q ' job_manager.py:' .sentdist/logs/sweep.log || tail -n 1 .sentdist/logs/submit.log >&2 # it never came to a job
        return 1
    }
}
