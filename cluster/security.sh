# Sourced by the scripts that start Ray: what keeps other users of the machine, and of the network, out. cluster/README.md says what it is worth.

# Ray makes its own folders open to everybody. Whoever can write there can put another package in the place of a job's, which then runs as its owner.
# private_folder PATH: makes it with mode 700, or takes it if it is a folder of ours with that mode below folders in which others cannot replace it;
# prints PATH. Else says why not, and fails.
private_folder() {
    python3 - "$1" <<'PYTHON'
import os, pathlib, stat, sys

path = pathlib.Path(os.path.abspath(sys.argv[1]))


def stop(found: str, remedy: str) -> None:
    sys.exit(f"\nStopped: {path} must be a folder of yours that nobody else can enter; found {found}. {remedy}")


elsewhere = "Look at what it is and who made it, or choose another place: SENTDIST_TEMP=/path/to/a/folder/of/yours."
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
