"""The functions of the shell scripts: private folders, what a job gets. How they install: test_installing.py."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bash import bash, heeds_ctrl_c

ROOT = Path(__file__).parents[2]


STARTS_RAY = {
    "one_host.sh": {"HEAD_IP": "10.0.0.5"},
    "several_hosts.sh": {"HEAD_IP": "10.0.0.5", "NODE_IP": "10.0.0.6"},
    "slurm.sh": {"SLURM_JOB_NODELIST": "x", "SLURM_JOB_ID": "77", "SLURM_JOB_NUM_NODES": "1"},
}


def _starts_ray(script: str, folder: Path, temp: Path) -> subprocess.CompletedProcess[str]:
    """Run a script of cluster/ with programs that only say how they were called."""
    tools = {
        "ray": 'printf \'%s\\n\' "$@"; [ -z "${SENTDIST_ENDED:-}" ] || echo 0 >"$SENTDIST_ENDED"',
        "scontrol": "echo localhost",
        "srun": 'while [[ "$1" == --* ]]; do shift; done; exec "$@"',
    }
    for name, does in tools.items():
        tool = folder / name
        tool.write_text(f"#!/bin/bash\n{does}\n")
        tool.chmod(0o755)
    (folder / "token").write_text("secret")
    environment = STARTS_RAY[script] | {"RAY_AUTH_TOKEN_PATH": str(folder / "token"), "SENTDIST_TEMP": str(temp), "HOME": str(folder)}
    return bash(f"PATH={folder}:$PATH; bash cluster/{script} recipe.yaml", **environment)


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="sd-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.mark.parametrize("script", STARTS_RAY)
def test_every_script_that_starts_ray_gives_it_a_private_folder_and_a_private_token(script: str, tmp_path: Path, short: Path) -> None:
    done = _starts_ray(script, tmp_path, short)
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    folder = Path(words[words.index("--temp-dir") + 1])
    if script != "slurm.sh":  # which makes one for its job
        assert (tmp_path / "token").stat().st_mode & 0o077 == 0
    assert folder.parent == short / f"sentdist-{os.getuid()}"
    assert folder.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("script", STARTS_RAY)
def test_no_script_starts_ray_in_a_planted_folder(script: str, tmp_path: Path, short: Path) -> None:
    (short / "theirs").mkdir()
    (short / f"sentdist-{os.getuid()}").symlink_to(short / "theirs")
    done = _starts_ray(script, tmp_path, short)
    assert done.returncode != 0
    assert "a symbolic link" in done.stderr
    assert "--temp-dir" not in done.stdout


@pytest.mark.parametrize("script", ["one_host.sh", "several_hosts.sh"])
def test_a_script_runs_no_module_of_the_folder_that_it_is_started_in(script: str, tmp_path: Path, short: Path) -> None:
    """Where others may write, such as /tmp, a `secrets.py` of theirs ran as the one who started a head, and chose its token."""
    planted = tmp_path / "planted"
    (planted / "sentdist").mkdir(parents=True)
    for name in ("secrets.py", "sentdist/__init__.py"):
        (planted / name).write_text("import pathlib; pathlib.Path(__file__).with_name('ran').touch()")
    (tmp_path / "ray").write_text("#!/bin/sh\n")
    (tmp_path / "ray").chmod(0o755)
    environment = STARTS_RAY[script] | {"HOME": str(tmp_path), "SENTDIST_TEMP": str(short), "PYTHONPATH": str(ROOT)}
    if script != "one_host.sh":  # which makes one
        (tmp_path / ".sentdist_ray_token").write_text("secret")
    done = bash(f"PATH={tmp_path}:$PATH; bash {ROOT}/cluster/{script}", cwd=planted, **environment)
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / ".sentdist_ray_token").read_text()) in (6, 64)
    assert not list(planted.rglob("ran"))


def test_no_proxy_learns_the_token_from_clients_of_a_head(tmp_path: Path, short: Path) -> None:
    """`ray job submit` shows it to the address that it is given, and asks a proxy about 127.0.0.1, too, unless it is set not to."""
    done = _starts_ray("one_host.sh", tmp_path, short)
    lines = "\n".join(line for line in done.stdout.splitlines() if line.startswith("  export "))
    for own, other in (("no_proxy", "NO_PROXY"), ("NO_PROXY", "no_proxy")):
        shell = bash(f"{lines}\necho $no_proxy", **{own: "corp.example", other: ""})
        assert shell.stdout.strip() == "127.0.0.1,localhost,corp.example", shell.stderr


def test_a_head_without_its_dashboard_does_not_stay(tmp_path: Path, short: Path) -> None:
    """Ray goes on where the port is taken, and clients would show the token to who has taken it."""
    words = _starts_ray("one_host.sh", tmp_path, short).stdout.splitlines()
    assert words[words.index("--include-dashboard") + 1] == "true"


def _use_tls(role: str, folder: Path) -> subprocess.CompletedProcess[str]:
    script = f'. cluster/security.sh; use_tls "10.0.0.6 fd00::6" {role}; openssl verify -CAfile "$RAY_TLS_CA_CERT" "$RAY_TLS_SERVER_CERT"; '
    script += 'openssl x509 -noout -ext subjectAltName -in "$RAY_TLS_SERVER_CERT"; echo "USE=$RAY_USE_TLS"'
    return bash(script, TLS="1", SENTDIST_TLS=str(folder))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_tls_makes_certificates_that_only_the_owner_can_read(tmp_path: Path) -> None:
    head, node = tmp_path / "head", tmp_path / "node"
    lacking = _use_tls("node", node)
    assert lacking.returncode != 0
    assert "scp HEAD:.sentdist_tls/ca.*" in lacking.stderr
    assert _use_tls("head", head).returncode == 0
    for name in ("ca.crt", "ca.key"):
        shutil.copy(head / name, node / name)
    authority = (head / "ca.crt").read_bytes()
    for folder, role in ((head, "head"), (node, "node")):
        done = _use_tls(role, folder)
        assert done.returncode == 0, done.stderr
        assert "USE=1" in done.stdout
        assert "IP Address:10.0.0.6, IP Address:FD00:0:0:0:0:0:0:6" in done.stdout
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o077 for path in folder.glob("*.key")} == {0}
    assert (head / "ca.crt").read_bytes() == authority  # a head that starts again keeps it


def test_given_certificates_are_taken_as_they_are(tmp_path: Path) -> None:
    given = {f"RAY_TLS_{name}": f"/given/{name}" for name in ("SERVER_CERT", "SERVER_KEY", "CA_CERT")}
    script = '. cluster/security.sh; use_tls 10.0.0.6 head; echo "$RAY_USE_TLS $RAY_TLS_SERVER_CERT $RAY_TLS_SERVER_KEY $RAY_TLS_CA_CERT"'
    done = bash(script, TLS="1", SENTDIST_TLS=str(tmp_path / "unused"), **given)
    assert done.stdout.split() == ["1", "/given/SERVER_CERT", "/given/SERVER_KEY", "/given/CA_CERT"]
    assert not (tmp_path / "unused").exists()
    assert bash('. cluster/security.sh; use_tls 10.0.0.6 head; echo "${RAY_USE_TLS:-off}"').stdout.strip() == "off"


@pytest.mark.parametrize(
    ("known", "found"),
    [("127.0.1.1 node1\n10.0.0.1 node1", "10.0.0.1"), ("10.0.0.2 node1", "10.0.0.2"), ("127.0.1.1 node1", "10.0.0.9"), ("", "10.0.0.9")],
)
def test_slurm_takes_an_address_that_other_hosts_reach(known: str, found: str, tmp_path: Path) -> None:
    """Slurm's name of a host need not be one that the host's own name service knows: `getent` then ends with 2."""
    for name, said in (("getent", known), ("hostname", "10.0.0.9 172.17.0.1")):
        (tmp_path / name).write_text(f"#!/bin/sh\nprintf '%s\\n' '{said}'\n" if said else "#!/bin/sh\nexit 2\n")
        (tmp_path / name).chmod(0o755)
    (line,) = [line for line in (ROOT / "cluster" / "slurm.sh").read_text().splitlines() if line.startswith('head_ip="$(getent')]
    (or_else,) = [line for line in (ROOT / "cluster" / "slurm.sh").read_text().splitlines() if line.startswith('head_ip="${HEAD_IP')]
    script = f'set -euo pipefail; export PATH={shlex.quote(str(tmp_path))}:"$PATH"; head=node1\n{line}\n{or_else}\necho "$head_ip"'
    assert bash(script).stdout.strip() == found


def test_no_other_script_starts_ray() -> None:
    scripts = [path for folder in ("infra", "cluster") for path in (ROOT / folder).glob("*.sh")]
    assert {path.name for path in scripts if re.search(r"ray (start|symmetric-run) --", path.read_text())} == {*STARTS_RAY}


def test_no_proxy_stands_between_tests_and_their_servers(tmp_path: Path) -> None:
    """In a shell with `http_proxy` every test failed that asks a server of its own."""
    (tmp_path / "infra").mkdir()
    for name in ("test.sh", "venv.sh", "constraints.txt"):
        shutil.copy(ROOT / "infra" / name, tmp_path / "infra")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    programs = tmp_path / "environment" / "bin"
    programs.mkdir(parents=True)
    for name, does in {"python": 'echo "$no_proxy $NO_PROXY"', "ruff": ":", "mypy": ":"}.items():
        (programs / name).write_text(f"#!/bin/sh\n{does}\n")
        (programs / name).chmod(0o755)
    given = {"SENTDIST_VENV": str(programs.parent), "http_proxy": "http://127.0.0.1:9", "no_proxy": "", "NO_PROXY": "corp.example"}
    done = bash("bash infra/test.sh tests/unit", cwd=tmp_path, **given)
    assert done.stdout.splitlines()[-1].split() == ["127.0.0.1,localhost,corp.example"] * 2, done.stderr


def test_stopping_where_nothing_was_started_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "infra").mkdir()
    shutil.copy(ROOT / "infra" / "stop.sh", tmp_path / "infra")
    done = bash("bash infra/stop.sh", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "Nothing was started here.\n")


def test_ctrl_c_ends_a_node_and_its_script() -> None:
    script = '. cluster/security.sh; leaves_in_time nowhere sh -c "echo up; exec sleep 60"'
    with subprocess.Popen(
        ["bash", "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=heeds_ctrl_c
    ) as shell:
        assert shell.stdout is not None and shell.stdout.readline() == "up\n"
        os.killpg(shell.pid, signal.SIGINT)
        assert shell.wait(timeout=20) != 0
        assert shell.stdout.read() == "", "its end is closed: nothing is left running"
