# Sourced by quickstart.sh: Ray and MLflow on loopback, each with a pid file under .sentdist/, found again by the next call.
# No other user of the machine gets at them: what they write lies in folders of mode 700, and both want a secret.
. "$root/cluster/security.sh"

need_compiler() {
    local name
    for name in ${CXX:-} c++ g++ clang++; do
        if command -v "$name" >/dev/null 2>&1; then
            python -c 'import pathlib, sys, sysconfig; sys.exit(not pathlib.Path(sysconfig.get_paths()["include"], "Python.h").exists())' ||
                fail "Python.h is missing, which compiling against $(python --version) needs. Debian: apt-get install python3-dev"
            return 0
        fi
    done
    fail "no C++ compiler was found, which DeepSpeed's operators and packages without a wheel need. Debian: apt-get install g++; macOS: xcode-select --install"
}

prepare_state() {
    state="$root/.sentdist"
    mkdir -p "$state/logs" && chmod 700 "$state" || fail "$state cannot be written, or is not yours." # shared results: SENTDIST_STORE elsewhere
    ray_port="${SENTDIST_RAY_PORT:-6379}"
    dashboard_port="${SENTDIST_DASHBOARD_PORT:-8265}"
    mlflow_port="${SENTDIST_MLFLOW_PORT:-5001}"
    dashboard="http://127.0.0.1:$dashboard_port"
    if [ "${SENTDIST_ENV_OF:-$root}" != "$root" ] && grep -qsF "SENTDIST_STORE='${SENTDIST_STORE:-}'" "$SENTDIST_ENV_OF/.sentdist/env"; then
        say "This shell has read the .sentdist/env of $SENTDIST_ENV_OF; its store is left alone."
        unset SENTDIST_STORE
    fi
    export SENTDIST_STORE="${SENTDIST_STORE:-$state/store}"
    export MLFLOW_TRACKING_URI="http://127.0.0.1:$mlflow_port"
    export MLFLOW_DISABLE_TELEMETRY=true DO_NOT_TRACK=1 RAY_USAGE_STATS_ENABLED=0 TOKENIZERS_PARALLELISM=false
    export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$state/ray_token"
    unset RAY_AUTH_TOKEN RAY_ADDRESS MLFLOW_TRACKING_PASSWORD MLFLOW_TRACKING_TOKEN
    # Jobs get the path of the password: what they are given directly stands in a command line, which everybody can read.
    export MLFLOW_TRACKING_USERNAME=sentdist SENTDIST_MLFLOW_PASSWORD_FILE="$state/mlflow_password"
    export RAY_API_SERVER_ADDRESS="$dashboard"
    # Ray replaces 127.0.0.1 by the machine's outer address and then listens on all interfaces, unless it is told that this is no cluster.
    export RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0
    make_secret "$RAY_AUTH_TOKEN_PATH"
}

# make_secret FILE [BYTES]: so many random bytes (32), as letters that nobody else can read, unless the file has some already.
make_secret() {
    [ -s "$1" ] || (umask 077 && python -c "import secrets; print(secrets.token_hex(${2:-32}), end='')" >"$1")
    chmod 600 "$1"
}

start_mlflow() {
    if is_ours mlflow && answers "$MLFLOW_TRACKING_URI/health"; then
        [ -s "$SENTDIST_MLFLOW_PASSWORD_FILE" ] ||
            fail "the MLflow at $MLFLOW_TRACKING_URI wants no password, as in earlier releases. Stop it (bash infra/stop.sh) and run this again."
        say "MLflow is up already: $MLFLOW_TRACKING_URI"
        return 0
    fi
    need_port "$mlflow_port" MLflow SENTDIST_MLFLOW_PORT
    say "Starting MLflow at $MLFLOW_TRACKING_URI ..."
    [ -s "$SENTDIST_MLFLOW_PASSWORD_FILE" ] || rm -f "$state/mlflow_users.db" # it knows the password that is gone, and takes no new one
    make_secret "$SENTDIST_MLFLOW_PASSWORD_FILE" 16
    make_secret "$state/mlflow_secret_key"
    cat >"$state/mlflow_auth.ini" <<END
[mlflow]
default_permission = NO_PERMISSIONS
database_uri = sqlite:///${state//%/%%}/mlflow_users.db
authorization_function = sentdist.tracking.mlflow_login:authenticate
auth_cache_ttl_seconds = 600
END
    (
        umask 077 # the data bases and artifacts, for whoever may open .sentdist later
        export MLFLOW_AUTH_CONFIG_PATH="$state/mlflow_auth.ini" MLFLOW_AUTH_ADMIN_USERNAME="$MLFLOW_TRACKING_USERNAME" MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false
        MLFLOW_AUTH_ADMIN_PASSWORD="$(cat "$SENTDIST_MLFLOW_PASSWORD_FILE")" MLFLOW_FLASK_SERVER_SECRET_KEY="$(cat "$state/mlflow_secret_key")"
        export MLFLOW_AUTH_ADMIN_PASSWORD MLFLOW_FLASK_SERVER_SECRET_KEY
        in_background mlflow mlflow server --app-name basic-auth --backend-store-uri "sqlite:///$state/mlflow.db" \
            --artifacts-destination "$state/mlflow-artifacts" --serve-artifacts --host 127.0.0.1 --port "$mlflow_port" --workers 1
    )
    wait_for mlflow "$MLFLOW_TRACKING_URI/health" 300
}

# mlflow_link [FRAGMENT]: opens MLflow with one click, as a notebook server's link does; see sentdist/tracking/mlflow_login.py.
mlflow_link() {
    printf 'http://%s:%s@127.0.0.1:%s/login%s' "$MLFLOW_TRACKING_USERNAME" "$(cat "$SENTDIST_MLFLOW_PASSWORD_FILE")" "$mlflow_port" "${1:-}"
}

start_ray() {
    if is_ours ray && answers "$dashboard/api/version"; then
        [ -s "$state/ray_folder" ] ||
            fail "the Ray at $dashboard keeps its files where others can change them, as in earlier releases. Stop it (bash infra/stop.sh) and run this again."
        say "Ray is up already: $dashboard"
        return 0
    fi
    need_port "$ray_port" "Ray's head" SENTDIST_RAY_PORT
    need_port "$dashboard_port" "Ray's dashboard" SENTDIST_DASHBOARD_PORT
    say "Starting Ray at $dashboard ..."
    local folder
    folder="$(ray_folder "$(printf '%s' "$root" | cksum | cut -d' ' -f1)")" || exit 1 # not in the checkout, whose path may be long
    printf '%s' "$folder" >"$state/ray_folder"
    close_metrics
    local attempt
    for attempt in 1 2 3; do # Ray gives its own node 30 s, which a machine that is busy with other work may exceed
        rm -rf "$folder"
        launch_ray "$folder"
        while is_ours ray && ! grep -qs "Ray runtime started" "$state/logs/ray.log"; do sleep 1; done
        { ! is_ours ray && grep -qs "timed out during startup" "$state/logs/ray.log"; } || break
        say "Ray did not come up within its 30 s; once more ..."
    done
    wait_for ray "$dashboard/api/version" 300 "Ray runtime started"
}

launch_ray() {
    in_background ray ray start --head --block --node-ip-address 127.0.0.1 --port "$ray_port" \
        --dashboard-host 127.0.0.1 --dashboard-port "$dashboard_port" --dashboard-agent-listen-port 0 \
        --ray-client-server-port "$(free_port)" --min-worker-port 20000 --max-worker-port 29999 \
        --object-store-memory "${SENTDIST_OBJECT_STORE_BYTES:-1000000000}" --temp-dir "$1" --disable-usage-stats
}

# What another shell needs to talk to these servers.
write_env() {
    cat >"$state/env" <<END
export SENTDIST_ENV_OF='$root' VIRTUAL_ENV='$VIRTUAL_ENV' PATH='$VIRTUAL_ENV/bin':"\$PATH"
export SENTDIST_STORE='$SENTDIST_STORE' MLFLOW_TRACKING_URI='$MLFLOW_TRACKING_URI'
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH='$RAY_AUTH_TOKEN_PATH' RAY_ADDRESS='127.0.0.1:$ray_port' RAY_API_SERVER_ADDRESS='$dashboard' RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0
export MLFLOW_TRACKING_USERNAME='$MLFLOW_TRACKING_USERNAME' MLFLOW_TRACKING_PASSWORD="\$(cat '$SENTDIST_MLFLOW_PASSWORD_FILE')"
export MLFLOW_DISABLE_TELEMETRY=true DO_NOT_TRACK=1 RAY_USAGE_STATS_ENABLED=0
END
}

# What a job gets beside its code. It stands in the command line of `ray job submit`, which every user of the machine can read: no secrets, but their paths.
job_environment() {
    python -c 'import json, os, sys; print(json.dumps({"env_vars": {name: os.environ[name] for name in sys.argv[1:] if name in os.environ}}))' \
        SENTDIST_STORE SENTDIST_DATA MLFLOW_TRACKING_URI MLFLOW_TRACKING_USERNAME SENTDIST_MLFLOW_PASSWORD_FILE \
        MLFLOW_DISABLE_TELEMETRY DO_NOT_TRACK TOKENIZERS_PARALLELISM HF_HUB_OFFLINE
}

# Follows the job's own lines as they come (Python keeps what it writes into a pipe until it has 8 kB, some eighty lines). What the submission client says of itself goes to a log: it repeats the end of a failed job's output.
submit_sweep() {
    PYTHONUNBUFFERED=1 ray job submit --address "$dashboard" --working-dir . --runtime-env-json "$(job_environment)" --log-style record --log-color false \
        -- python -m rayjobs.sweep "$@" 2>"$state/logs/submit.log" | tee "$state/logs/sweep.log" |
        python -u infra/job_lines.py || {
        is_ours ray || fail "Ray ended while it was needed. Its log: $state/logs/ray.log"
        grep -q ' job_manager.py:' "$state/logs/sweep.log" || tail -n 1 "$state/logs/submit.log" >&2 # it never came to a job
        return 1
    }
}

# in_background NAME COMMAND...: in a session of its own, so that Ctrl-C here does not reach it.
in_background() {
    local name="$1"
    shift
    nohup python -c 'import os, sys; os.setsid(); os.execvp(sys.argv[1], sys.argv[1:])' "$@" >"$state/logs/$name.log" 2>&1 </dev/null &
    printf '%s' "$!" >"$state/$name.pid"
}

# is_ours NAME: the process of the pid file lives, and is what the file says (pids are used again).
is_ours() {
    [ -s "$state/$1.pid" ] && ps -ww -p "$(cat "$state/$1.pid")" -o command= 2>/dev/null | grep -q "$1"
}

# wait_for NAME URL SECONDS [WORDS]: until the server answers, and its log has the words.
wait_for() {
    local name="$1" url="$2" limit="$3" words="${4:-}" since=$SECONDS
    while ! { { [ -z "$words" ] || grep -qs "$words" "$state/logs/$name.log"; } && answers "$url"; }; do
        if ! is_ours "$name"; then
            tail -n 15 "$state/logs/$name.log" >&2
            fail "$name ended while starting. Its whole log: $state/logs/$name.log"
        fi
        [ $((SECONDS - since)) -lt "$limit" ] || fail "$name did not answer at $url within $limit s. Its log: $state/logs/$name.log"
        sleep 1
    done
}

answers() {
    python - "$1" "${RAY_AUTH_TOKEN_PATH:-}" <<'END' >/dev/null 2>&1
import pathlib, sys, urllib.request
token = pathlib.Path(sys.argv[2]).read_text().strip()
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
request = urllib.request.Request(sys.argv[1], headers={"Authorization": f"Bearer {token}"} if "/api/" in sys.argv[1] else {})
sys.exit(opener.open(request, timeout=3).status != 200)
END
}

# need_port PORT WHO VARIABLE
need_port() {
    python -c 'import socket, sys; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("127.0.0.1", int(sys.argv[1])))' "$1" 2>/dev/null ||
        fail "port $1, wanted by $2, is in use by $(port_owner "$1"). End that, or choose another port: $3=$(free_port) bash infra/quickstart.sh"
}

port_owner() {
    local found=""
    if command -v lsof >/dev/null 2>&1; then
        found="$(lsof -nP -iTCP:"$1" -sTCP:LISTEN -Fpc 2>/dev/null | sed -n 's/^p/process /p; s/^c/ /p' | tr -d '\n')" || true
    elif command -v ss >/dev/null 2>&1; then
        found="$(ss -ltnpH "sport = :$1" 2>/dev/null | sed -n 's/.*users:(("\([^"]*\)",pid=\([0-9]*\).*/process \2 (\1)/p' | head -n 1)" || true
    fi
    printf '%s' "${found:-another program}"
}

free_port() {
    python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
