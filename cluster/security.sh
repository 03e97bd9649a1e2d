# Sourced by the scripts that start Ray: protection from other users of the machine and the network (see infra/docs/security.md), and shutdown of a node.

# private_folder PATH [VARIABLE]: a folder of mode 700 that others cannot replace; prints PATH, or fails with the reason. Implemented in Python, since
# `sentdist up` needs the same.
private_folder() {
    python3 -P -m sentdist.services.state private "$@"
}

# ray_folder NAME: a private folder for Ray's files, with a path short enough for sockets.
ray_folder() {
    python3 -P -m sentdist.services.state ray "$1"
}

# close_metrics: Ray's three ports for Prometheus need no token and show names of tasks and actors; they are opened only with METRICS=1.
close_metrics() {
    [ "${METRICS:-0}" != 1 ] || return 0
    export RAY_enable_metrics_collection=0 AUTOSCALER_METRIC_PORT=-1 DASHBOARD_METRIC_PORT=-1 # -1 is no port; Ray only logs this
}

# use_tls ADDRESSES ROLE: with TLS=1 Ray encrypts traffic between hosts, and both ends show a certificate. RAY_TLS_SERVER_CERT,
# RAY_TLS_SERVER_KEY and RAY_TLS_CA_CERT name existing certificates. Otherwise the head (ROLE head) makes an authority in ~/.sentdist_tls, which you copy
# to every other host, and each host makes a certificate for its ADDRESSES (separated by spaces).
use_tls() {
    [ "${TLS:-0}" = 1 ] || return 0
    export RAY_USE_TLS=1
    [ -z "${RAY_TLS_SERVER_CERT:-}${RAY_TLS_SERVER_KEY:-}${RAY_TLS_CA_CERT:-}" ] || return 0 # Ray reports a missing one
    local folder name names address
    folder="$(private_folder "${SENTDIST_TLS:-$HOME/.sentdist_tls}" SENTDIST_TLS)" || return 1
    if [ ! -s "$folder/ca.key" ] || [ ! -s "$folder/ca.crt" ]; then
        if [ "$2" != head ]; then
            printf '\nStopped: %s lacks ca.crt and ca.key. Copy them from the head: scp HEAD:.sentdist_tls/ca.* %s/\n' "$folder" "$folder" >&2
            return 1
        fi
        (umask 077 && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=sentdist cluster" \
            -addext keyUsage=critical,keyCertSign -keyout "$folder/ca.key" -out "$folder/ca.crt" 2>"$folder/openssl.log") || tls_failed "$folder" || return 1
    fi
    name="$folder/$(hostname)" names="DNS:localhost,DNS:$(hostname),IP:127.0.0.1"
    for address in $1; do
        names="$names,IP:$address"
    done
    (umask 077 && openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=sentdist host" -keyout "$name.key" 2>/dev/null |
        openssl x509 -req -days 3650 -CA "$folder/ca.crt" -CAkey "$folder/ca.key" -set_serial "0x$(openssl rand -hex 8)" -out "$name.crt" \
            -extfile <(printf 'subjectAltName=%s' "$names") 2>"$folder/openssl.log") || tls_failed "$folder" || return 1
    export RAY_TLS_SERVER_CERT="$name.crt" RAY_TLS_SERVER_KEY="$name.key" RAY_TLS_CA_CERT="$folder/ca.crt"
}

tls_failed() {
    printf '\nStopped: openssl could not make the certificates in %s: %s\n' "$1" "$(tail -n 1 "$1/openssl.log" 2>/dev/null)" >&2
    return 1
}

# leaves_in_time ADDRESS COMMAND …: runs a node of the cluster at ADDRESS. On SIGTERM it first notifies the cluster and gives trainings on this host
# NOTICE_S seconds (20) for their checkpoints.
leaves_in_time() {
    local address="$1" notice_s="${NOTICE_S:-20}" node
    shift
    "$@" &
    node="$!"
    # shellcheck disable=SC2064
    trap "RAY_ADDRESS='$address' python3 -P -m rayjobs.leave --within $((notice_s + 10)) && sleep $notice_s; kill $node" TERM
    trap 'kill "$node"' INT # Ctrl-C, which background processes ignore
    end_with "$node"
}

# end_with PID: waits for a child process, also when signals arrive, and exits with its status.
end_with() {
    local status=0
    wait "$1" || status=$?
    while kill -0 "$1" 2>/dev/null; do # a signal ends `wait`, not the process
        status=0
        wait "$1" || status=$?
    done
    exit "$status"
}
