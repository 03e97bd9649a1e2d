"""A real PostgreSQL on loopback, of the programs that Debian's package `postgresql` installs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sentdist.services.processes import free_port
from tests.support.waiting import wait_for

USER = "nobody"  # PostgreSQL does not run as root


def why_no_postgres() -> str | None:
    """The reason for which this machine cannot have one; None if it can."""
    if _program("initdb") is None:
        return "PostgreSQL is not there (Debian: apt-get install --no-install-recommends postgresql)"
    return None if os.geteuid() == 0 else "PostgreSQL is started as another user here: that needs root"


@contextmanager
def postgres(database: str, password: str) -> Iterator[str]:
    """The address of a database for the user of its own name."""
    folder = Path(tempfile.mkdtemp(prefix="sd-pg-", dir="/tmp"))
    shutil.chown(folder, USER)
    secret = folder / "password"
    secret.write_text(password)
    shutil.chown(secret, USER)
    port = free_port()
    made = ["--auth=scram-sha-256", f"--username={database}", f"--pwfile={secret}", "--no-sync", f"--pgdata={folder}/data"]
    subprocess.run([str(_program("initdb")), *made], user=USER, check=True, capture_output=True)
    options = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": folder, "fsync": "off"}
    given = [f"--{name}={value}" for name, value in options.items()]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen([str(_program("postgres")), f"-D{folder}/data", *given], user=USER, stdout=log, stderr=log)
    environment = os.environ | {"PGPASSWORD": password}

    def run(name: str, *arguments: str) -> int:
        command = [str(_program(name)), "--host=127.0.0.1", f"--port={port}", f"--username={database}", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, check=False).returncode

    try:
        wait_for(lambda: run("pg_isready") == 0, what=f"PostgreSQL, see {folder / 'log'}")
        assert run("createdb", database) == 0
        yield f"postgresql+psycopg2://{database}:{password}@127.0.0.1:{port}/{database}"
    finally:
        server.send_signal(signal.SIGINT)  # a quick end in order
        server.wait(timeout=60)
        shutil.rmtree(folder)


def _program(name: str) -> Path | None:
    found = shutil.which(name)
    places = [Path(found)] if found else sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return places[-1] if places else None
