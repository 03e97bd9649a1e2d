"""The folder `.sentdist` of `sentdist up`: secrets, addresses, notes of running servers, `env`; private folders for Ray."""

from __future__ import annotations

import os
import secrets
import shlex
import socket
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sentdist.errors import ServerError
from sentdist.services.processes import HOST, RunningServer, noted

FOLDER = ".sentdist"
USER = "sentdist"
SERVERS = ("ray", "mlflow")
# Variables of the shell that would lead the servers, or processes started by them, to other servers; besides all of MLflow.
FOREIGN = ("RAY_AUTH_TOKEN", "RAY_ADDRESS", "RAY_REDIS_ADDRESS", "RAY_external_storage_namespace")
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "1", "RAY_USAGE_STATS_ENABLED": "0", "TOKENIZERS_PARALLELISM": "false"}
DIRECT = "127.0.0.1,localhost"  # a proxy cannot reach them, and would see token and password
PORTS = {"ray": 6379, "dashboard": 8265, "mlflow": 5001}  # on 127.0.0.1


@dataclass(frozen=True, kw_only=True)
class State:
    """The folder `.sentdist` of a working folder."""

    home: Path
    ports: Mapping[str, int]  # see PORTS
    store: str

    @property
    def folder(self) -> Path:
        return self.home / FOLDER

    @property
    def token_file(self) -> Path:
        return self.folder / "ray_token"

    @property
    def password_file(self) -> Path:
        return self.folder / "mlflow_password"

    @property
    def ray(self) -> str:
        return f"{HOST}:{self.ports['ray']}"

    @property
    def dashboard(self) -> str:
        return f"http://{HOST}:{self.ports['dashboard']}"

    @property
    def mlflow(self) -> str:
        return f"http://{HOST}:{self.ports['mlflow']}"

    @property
    def mlflow_link(self) -> str:
        """A link to MLflow with the password, like a notebook server's. See tracking/mlflow_login.py."""
        return f"http://{USER}:{self.password_file.read_text()}@{HOST}:{self.ports['mlflow']}/login"

    def log(self, server: str) -> Path:
        return self.folder / "logs" / f"{server}.log"

    def note_file(self, server: str) -> Path:
        return self.folder / f"{server}.json"

    def running(self, server: str) -> RunningServer | None:
        """Return the note that `up` wrote about the server in this folder; it may have ended.

        Raises:
            ServerError: it was started on another machine.
        """
        return _noted_here(self.home, server)

    def check_owner(self) -> None:
        """Raise ServerError if another user owns the folder or may write into it, and so change its secrets and notes."""
        if os.path.lexists(self.folder):
            _check_mine(self.folder, others_may=0o755, remedy="Check who made it; remove it, or go to another folder.")

    def prepare(self) -> None:
        """Make the private folder with Ray's token; commands that store results make it, too, open to readers.

        Raises:
            ServerError: it cannot be made, or others may change it.
        """
        self.check_owner()
        with suppress(OSError):  # reported by `private_folder`
            self.folder.chmod(0o700)  # shared results: --store elsewhere
        private_folder(self.folder)
        (self.folder / "logs").mkdir(exist_ok=True)
        (self.folder / ".gitignore").write_text("*\n")  # keeps secrets and results out of repositories and of jobs' packages
        make_secret(self.token_file)

    @property
    def addresses(self) -> dict[str, str]:
        """Environment variables by which commands and jobs find the servers and the store; with paths of secrets, no secrets."""
        return {
            "SENTDIST_STORE": self.store,
            "MLFLOW_TRACKING_URI": self.mlflow,
            "MLFLOW_TRACKING_USERNAME": USER,
            "SENTDIST_MLFLOW_PASSWORD_FILE": str(self.password_file),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token_file),
            "RAY_API_SERVER_ADDRESS": self.dashboard,
            # Otherwise Ray replaces 127.0.0.1 by the external address and listens on all interfaces.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            **QUIET,
        }

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the servers."""
        direct = ",".join(filter(None, (DIRECT, inherited.get("no_proxy") or inherited.get("NO_PROXY"))))
        kept = {name: value for name, value in inherited.items() if name not in FOREIGN and not name.startswith("MLFLOW_")}
        # A job's `python` is that of these servers, also if `up` was called by its path.
        path = os.pathsep.join(filter(None, (str(Path(sys.executable).parent), inherited.get("PATH"))))
        return kept | self.addresses | {"no_proxy": direct, "NO_PROXY": direct, "PATH": path}

    def write_env(self) -> Path:
        """Write the file that a shell sources to use these servers; return its path."""
        scripts = Path(sys.executable).parent
        lines = [f"export RAY_ADDRESS={self.ray}"]
        if sys.prefix != sys.base_prefix:
            lines.append(f"export VIRTUAL_ENV={shlex.quote(sys.prefix)}")
        lines.append(f'export PATH={shlex.quote(str(scripts))}:"$PATH"')
        lines += [f"export {name}={shlex.quote(value)}" for name, value in self.addresses.items()]
        lines.append(f'export MLFLOW_TRACKING_PASSWORD="$(cat {shlex.quote(str(self.password_file))})"')
        lines.append(f'export no_proxy="{DIRECT},${{no_proxy:-${{NO_PROXY:-}}}}"; export NO_PROXY="$no_proxy"')
        lines.append("unset RAY_AUTH_TOKEN MLFLOW_TRACKING_TOKEN")
        path = self.folder / "env"
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o600)
        return path


def state_of(home: Path, *, asked: Mapping[str, int] | None = None, store: str | None = None) -> State:
    """Return the state with the given ports and store, else those of servers started here, else the defaults.

    Raises:
        ServerError: they were started on another machine.
    """
    running = [one for server in SERVERS if (one := _noted_here(home, server)) is not None]
    ports = dict(PORTS)
    for one in running:
        ports |= one.ports
    kept = next((one.store for one in running if one.store), None)
    return State(home=home, ports={**ports, **(asked or {})}, store=store or kept or str(home / FOLDER / "store"))


def _noted_here(home: Path, server: str) -> RunningServer | None:
    one = noted(home / FOLDER / f"{server}.json")
    if one is None or one.home != str(home):  # copied with the folder
        return None
    if one.host != socket.gethostname():
        raise ServerError(
            where=str(home / FOLDER / f"{server}.json"), found=f"a server that was started on {one.host}", expected="this machine",
            remedy="Run `sentdist down` there; or, if that machine is gone, remove the file.",
        )  # fmt: skip
    return one


def make_secret(path: Path, *, num_bytes: int = 32) -> str:
    """Return the secret in a file; write random bytes as hex digits, readable by the owner only, if there is none."""
    if not path.exists() or not path.stat().st_size:
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(num_bytes))
    path.chmod(0o600)
    return path.read_text()


LONGEST = 38  # characters: paths of sockets may have 107, of which Ray's names take up to 69
TEMP = "SENTDIST_TEMP"


def private_folder(path: Path, *, variable: str = TEMP) -> Path:
    """Make a folder with mode 700, or accept this user's folder of that mode.

    Ray's own folders are open to all users, who could replace the package of a job, which runs as its owner.

    Args:
        variable: names another place, for errors.

    Raises:
        ServerError: it is something else, or cannot be made.
    """
    path = Path(os.path.abspath(path))
    remedy = f"Check who made it: `chmod 700` if its content is yours; else choose another place ({variable}=FOLDER)."
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ServerError(where=str(path), found=str(error.strerror), expected="a folder", remedy=remedy) from None
    _check_mine(path, others_may=0o700, remedy=remedy)
    return path


def _check_mine(path: Path, *, others_may: int, remedy: str) -> None:
    """Raise ServerError for a link, another user's folder, or a mode beyond `others_may`."""
    status = os.lstat(path)
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode) or status.st_uid != os.getuid() or mode & 0o777 & ~others_may:
        found = f"a link, another user's folder, or one that others may use (mode {mode:o})"
        raise ServerError(where=str(path), found=found, expected="a folder that only you can use", remedy=remedy)


def ray_folder(name: str) -> Path:
    """Return a path for Ray's files in this user's private folder below the temporary folder; it is not made.

    Raises:
        ServerError: the private folder is refused, or the path is too long for the names of sockets.
    """
    folder = private_folder(Path(os.environ.get(TEMP) or "/tmp") / f"sentdist-{os.getuid()}") / name
    if len(str(folder)) > LONGEST:
        raise ServerError(
            where=str(folder), found=f"{len(str(folder))} characters",
            expected=f"at most {LONGEST}, which leave room for the names of sockets", remedy=f"Set {TEMP} to a shorter folder.",
        )  # fmt: skip
    return folder


def main(arguments: list[str]) -> None:
    """Print the path of a folder for a shell script; exit with an error and code 1 if it is refused."""
    kind, name, *variable = arguments
    try:
        print(ray_folder(name) if kind == "ray" else private_folder(Path(name), variable=variable[0] if variable else TEMP))
    except ServerError as error:
        sys.exit(f"\nStopped: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
