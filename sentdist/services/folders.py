"""Folders that no other user can enter: what servers keep lies in such folders, and the code that they run.

`python -m sentdist.services.folders private PATH [VARIABLE]` and `… ray NAME` do it for the shell scripts of cluster/.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from sentdist.errors import ServerError

LONGEST = 38  # letters: paths of sockets may have 107, of which Ray's own names take up to 69
TEMP = "SENTDIST_TEMP"
UIDS = Path("/proc/self/uid_map")  # first number within, first number outside, how many
OVERFLOW = Path("/proc/sys/kernel/overflowuid")


def private_folder(path: Path, *, variable: str = TEMP) -> Path:
    """Make it with mode 700, or take it if it is a folder of ours with that mode below folders in which others cannot replace it.

    Ray makes its own folders open to everybody; whoever can write there can put another package in the place of a job's, which
    then runs as its owner. A container that knows its user alone (Apptainer) shows every other one, root among them, by one number: folders
    above may have it there. variable: what names another place, for the message.

    Raises:
        ServerError: it is something else, or cannot be made.
    """
    path = Path(os.path.abspath(path))
    elsewhere = f"Look at what it is and who made it, or choose another place: {variable}=/path/to/a/folder/of/yours."
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise _refused(path, str(error.strerror), elsewhere) from None
    is_at = os.lstat(path)
    if not stat.S_ISDIR(is_at.st_mode):
        raise _refused(path, "a symbolic link" if stat.S_ISLNK(is_at.st_mode) else "a file", elsewhere)
    if is_at.st_uid != os.getuid():
        raise _refused(path, f"one of the user with the number {is_at.st_uid}", elsewhere)
    if stat.S_IMODE(is_at.st_mode) & 0o077:
        raise _refused(path, f"mode {stat.S_IMODE(is_at.st_mode):o}", f"If what lies in it is yours: chmod 700 {path}. Else remove it.")
    for parent in dict.fromkeys([*path.parents, *path.parent.resolve().parents, path.parent.resolve()]):
        above = os.stat(parent)
        if above.st_uid not in (0, os.getuid(), _hidden_root()):
            raise _refused(path, f"that {parent} belongs to the user with the number {above.st_uid}", elsewhere)
        if above.st_mode & 0o022 and not above.st_mode & stat.S_ISVTX:
            raise _refused(path, f"that others may rename what lies in {parent} (mode {stat.S_IMODE(above.st_mode):o})", elsewhere)
    return path


def _hidden_root() -> int:
    """The number by which this process sees root: 0, or, where its user namespace has no root, the one of all whom that does not have."""
    try:
        known = [list(map(int, line.split())) for line in UIDS.read_text().splitlines()]
        return 0 if any(outside == 0 for _, outside, _ in known) else int(OVERFLOW.read_text())
    except (OSError, ValueError):  # no Linux
        return 0


def ray_folder(name: str) -> Path:
    """A place for Ray's files, inside a private folder of the system's temporary one; it is not made.

    Raises:
        ServerError: the private folder is refused, or the path is too long for the names of sockets.
    """
    folder = private_folder(Path(os.environ.get(TEMP) or "/tmp") / f"sentdist-{os.getuid()}") / name
    if len(str(folder)) > LONGEST:
        raise ServerError(
            where=str(folder),
            found=f"{len(str(folder))} letters",
            expected=f"at most {LONGEST}, which leave room for the names of sockets",
            remedy=f"Set {TEMP} to a shorter folder.",
        )
    return folder


def _refused(path: Path, found: str, remedy: str) -> ServerError:
    return ServerError(where=str(path), found=found, expected="a folder of yours that nobody else can enter", remedy=remedy)


def main(arguments: list[str]) -> None:
    """Print the path of a folder for a shell script, or say why there is none and exit with 1."""
    kind, name, *variable = arguments
    try:
        print(ray_folder(name) if kind == "ray" else private_folder(Path(name), variable=variable[0] if variable else TEMP))
    except ServerError as error:
        sys.exit(f"\nStopped: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
