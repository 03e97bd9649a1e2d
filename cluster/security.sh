# Sourced by the scripts that start Ray: what keeps other users of the machine, and of the network, out. cluster/README.md says what it is worth.

# Ray makes its own folders open to everybody. Whoever can write there can put another package in the place of a job's, which then runs as its owner.
# private_folder PATH [VARIABLE]: makes it with mode 700, or takes it if it is a folder of ours with that mode below folders in which others cannot replace it;
# prints PATH. Else says why not and that VARIABLE names another place, and fails.
private_folder() {
    python3 - "$1" "${2:-SENTDIST_TEMP}" <<'PYTHON'
import os, pathlib, stat, sys

path = pathlib.Path(os.path.abspath(sys.argv[1]))


def stop(found: str, remedy: str) -> None:
    sys.exit(f"\nStopped: {path} must be a folder of yours that nobody else can enter; found {found}. {remedy}")


elsewhere = f"Look at what it is and who made it, or choose another place: {sys.argv[2]}=/path/to/a/folder/of/yours."
try:
    os.mkdir(path, 0o700)
except FileExistsError:
    pass
except OSError as error:
    stop(error.strerror, elsewhere)
is_at = os.lstat(path)
if not stat.S_ISDIR(is_at.st_mode):
    stop("a symbolic link" if stat.S_ISLNK(is_at.st_mode) else "a file", elsewhere)
if is_at.st_uid != os.getuid():
    stop(f"one of the user with the number {is_at.st_uid}", elsewhere)
if stat.S_IMODE(is_at.st_mode) & 0o077:
    stop(f"mode {stat.S_IMODE(is_at.st_mode):o}", f"If what lies in it is yours: chmod 700 {path}. Else remove it.")
for parent in dict.fromkeys([*path.parents, *path.parent.resolve().parents, path.parent.resolve()]):
    above = os.stat(parent)
    if above.st_uid not in (0, os.getuid()):
        stop(f"that {parent} belongs to the user with the number {above.st_uid}", elsewhere)
    if above.st_mode & 0o022 and not above.st_mode & stat.S_ISVTX:
        stop(f"that others may rename what lies in {parent} (mode {stat.S_IMODE(above.st_mode):o})", elsewhere)
print(path)
PYTHON
}

# ray_folder NAME: a folder for Ray's files, inside a private one. Paths of sockets may have 107 letters, of which Ray's own names take up to 69.
ray_folder() {
    local folder
    folder="$(private_folder "${SENTDIST_TEMP:-/tmp}/sentdist-$(id -u)")/$1" || return 1
    if [ "${#folder}" -gt 38 ]; then
        printf '\nStopped: %s has %s letters, more than the 38 that leave room for the names of sockets. Set SENTDIST_TEMP to a shorter folder.\n' "$folder" "${#folder}" >&2
        return 1
    fi
    printf '%s' "$folder"
}

# close_metrics: Ray's three ports for Prometheus ask for no token, and tell the names of tasks and actors; without METRICS=1 none is opened.
close_metrics() {
    [ "${METRICS:-0}" != 1 ] || return 0
    export RAY_enable_metrics_collection=0 AUTOSCALER_METRIC_PORT=-1 DASHBOARD_METRIC_PORT=-1 # no port: noted in a log file, and left at that
}

# use_tls ADDRESSES ROLE: with TLS=1 Ray encrypts what it sends between hosts, and both ends show a certificate. Those that RAY_TLS_SERVER_CERT,
# RAY_TLS_SERVER_KEY and RAY_TLS_CA_CERT name are taken; else the head (ROLE head) makes an authority in ~/.sentdist_tls, which every other host needs
# a copy of, and each host a certificate for its ADDRESSES (one or more, with spaces between).
use_tls() {
    [ "${TLS:-0}" = 1 ] || return 0
    export RAY_USE_TLS=1
    [ -z "${RAY_TLS_SERVER_CERT:-}${RAY_TLS_SERVER_KEY:-}${RAY_TLS_CA_CERT:-}" ] || return 0 # Ray says which of them is missing
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
