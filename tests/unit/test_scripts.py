"""The functions of the shell scripts: private folders, which environment is used, what a shell learns, what is left behind.
Nothing is installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOBODY = 65534


def _bash(script: str, *, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    ours = ("SENTDIST_", "RAY_", "MLFLOW_", "VIRTUAL_ENV")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    inherited["PATH"] = f"{Path(sys.executable).parent}:{inherited['PATH']}"
    done = ["bash", "-euo", "pipefail", "-c", script]
    return subprocess.run(done, cwd=cwd, env=inherited | environment, capture_output=True, text=True, timeout=60, check=False)


def _private_folder(path: Path) -> subprocess.CompletedProcess[str]:
    return _bash(f". cluster/security.sh; private_folder '{path}'")


def test_a_private_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    for _ in ("made", "found again"):
        done = _private_folder(path)
        assert (done.returncode, done.stdout.strip()) == (0, str(path)), done.stderr
        assert path.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("planted", ["symlink", "file", "open to others", "in a folder of others", "somebody's"])
def test_what_somebody_else_may_have_planted_is_refused(planted: str, tmp_path: Path) -> None:
    path = tmp_path / "mine"
    told = {
        "symlink": "a symbolic link", "file": "a file", "open to others": "mode 755", "in a folder of others": "others may rename",
        "somebody's": f"one of the user with the number {NOBODY}",
    }[planted]  # fmt: skip
    match planted:
        case "symlink":
            (tmp_path / "theirs").mkdir(mode=0o700)
            path.symlink_to(tmp_path / "theirs")
        case "file":
            path.touch()
        case "open to others":
            path.mkdir()
            path.chmod(0o755)
        case "in a folder of others":
            tmp_path.chmod(0o777)  # without the sticky bit that /tmp has
        case "somebody's":
            if os.geteuid() != 0:
                pytest.skip("only root can give a folder away")
            path.mkdir(mode=0o700)
            os.chown(path, NOBODY, NOBODY)
    done = _private_folder(path)
    assert done.returncode != 0
    assert done.stdout == ""
    assert "Stopped: " in done.stderr
    assert told in done.stderr


def test_rays_folder_lies_in_a_private_one_and_is_short_enough_for_sockets(tmp_path: Path) -> None:
    done = _bash(". cluster/security.sh; ray_folder 4294967295")
    assert done.returncode == 0, done.stderr
    folder = Path(done.stdout)
    assert len(str(folder)) <= 38
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert folder.parent.stat().st_uid == os.geteuid()
    deep = tmp_path / ("d" * 40)
    deep.mkdir()
    done = _bash(". cluster/security.sh; ray_folder head", SENTDIST_TEMP=str(deep))
    assert done.returncode != 0
    assert "Set SENTDIST_TEMP to a shorter folder" in done.stderr


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
    return _bash(f"PATH={folder}:$PATH; bash cluster/{script} recipe.yaml", **environment)


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="sd-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.mark.parametrize("script", STARTS_RAY)
def test_every_script_that_starts_ray_gives_it_a_private_folder(script: str, tmp_path: Path, short: Path) -> None:
    done = _starts_ray(script, tmp_path, short)
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    folder = Path(words[words.index("--temp-dir") + 1])
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


def _use_tls(role: str, folder: Path) -> subprocess.CompletedProcess[str]:
    script = f'. cluster/security.sh; use_tls "10.0.0.6 fd00::6" {role}; openssl verify -CAfile "$RAY_TLS_CA_CERT" "$RAY_TLS_SERVER_CERT"; '
    script += 'openssl x509 -noout -ext subjectAltName -in "$RAY_TLS_SERVER_CERT"; echo "USE=$RAY_USE_TLS"'
    return _bash(script, TLS="1", SENTDIST_TLS=str(folder))


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
    done = _bash(script, TLS="1", SENTDIST_TLS=str(tmp_path / "unused"), **given)
    assert done.stdout.split() == ["1", "/given/SERVER_CERT", "/given/SERVER_KEY", "/given/CA_CERT"]
    assert not (tmp_path / "unused").exists()
    assert _bash('. cluster/security.sh; use_tls 10.0.0.6 head; echo "${RAY_USE_TLS:-off}"').stdout.strip() == "off"


def test_no_other_script_starts_ray() -> None:
    scripts = [path for folder in ("infra", "cluster") for path in (ROOT / folder).glob("*.sh")]
    assert {path.name for path in scripts if re.search(r"ray (start|symmetric-run) --", path.read_text())} == {*STARTS_RAY, "servers.sh"}


def _environment(path: Path, *, of: Path | None) -> Path:
    """What looks like a virtual environment; of: the checkout that is installed in it."""
    (path / "bin").mkdir(parents=True)
    (path / "bin" / "python").symlink_to(sys.executable)
    facts = path / "lib" / "python3.11" / "site-packages" / "sentdist-0.3.0.dist-info"
    facts.mkdir(parents=True)
    if of is not None:
        (facts / "direct_url.json").write_text(f'{{"dir_info": {{"editable": true}}, "url": "file://{of}"}}')
    return path


@pytest.mark.parametrize(
    ("active", "named", "used"),
    [("mine", None, "mine"), ("others", None, ".venv"), ("plain", None, ".venv"), (None, None, ".venv"), ("others", "plain", "plain")],
)
def test_only_an_environment_of_this_checkout_is_used_unasked(active: str | None, named: str | None, used: str, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "infra").mkdir(parents=True)
    for name in ("pyproject.toml", "infra/constraints.txt"):
        (checkout / name).write_text("pins")
    environments = {
        ".venv": _environment(checkout / ".venv", of=checkout),
        "mine": _environment(tmp_path / "mine", of=checkout),
        "others": _environment(tmp_path / "others", of=tmp_path / "another"),
        "plain": _environment(tmp_path / "plain", of=None),
    }
    given = {name: str(environments[key]) for name, key in {"VIRTUAL_ENV": active, "SENTDIST_VENV": named}.items() if key}
    stamps = "for one in .venv ../mine ../others ../plain; do cat pyproject.toml infra/constraints.txt | cksum >/dev/null; "
    stamps += 'printf "%s" "$PWD $(cat pyproject.toml infra/constraints.txt | cksum)" >"$one/.sentdist-installed"; done; '
    done = _bash(f'{stamps} . {ROOT}/infra/venv.sh; enter_venv "" "$PWD"; echo "VENV=$VIRTUAL_ENV"', cwd=checkout, **given)
    assert done.returncode == 0, done.stderr
    assert f"VENV={environments[used]}\n" in done.stdout
    assert ("is not this checkout's" in done.stdout) == (active not in (None, "mine") and named is None)


@pytest.mark.parametrize("never_written", [True, False])
def test_what_is_installed_is_compiled_where_python_may_not_keep_what_it_compiles(never_written: bool, tmp_path: Path) -> None:
    """Else every process compiled its libraries anew: a test run of 25 minutes took 55."""
    checkout = tmp_path / "checkout"
    (checkout / "infra").mkdir(parents=True)
    for name in ("pyproject.toml", "infra/constraints.txt"):
        (checkout / name).write_text("pins")
    environment = tmp_path / "environment"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").write_text('#!/bin/sh\necho "$@"\n')
    (environment / "bin" / "python").chmod(0o755)
    given = {"SENTDIST_VENV": str(environment), "PYTHONDONTWRITEBYTECODE": "1" if never_written else ""}
    done = _bash(f'. {ROOT}/infra/venv.sh; enter_venv "" "$PWD"', cwd=checkout, **given)
    assert done.returncode == 0, done.stderr
    assert (" --compile " if never_written else " --no-compile ") in (environment / "install.log").read_text()


def _prepared(checkout: Path, then: str, **environment: str) -> subprocess.CompletedProcess[str]:
    checkout.mkdir(exist_ok=True)
    (checkout / "cluster").mkdir(exist_ok=True)
    (checkout / "cluster" / "security.sh").write_bytes((ROOT / "cluster" / "security.sh").read_bytes())
    script = f"root={checkout}; VIRTUAL_ENV=/venv; . {ROOT}/infra/venv.sh; . {ROOT}/infra/servers.sh; prepare_state; {then}"
    return _bash(script, **environment)


def test_a_shell_learns_the_address_of_its_own_cluster(tmp_path: Path) -> None:
    done = _prepared(tmp_path / "a", "write_env", SENTDIST_RAY_PORT="6390")
    assert done.returncode == 0, done.stderr
    assert _bash(f'. {tmp_path}/a/.sentdist/env; echo "$RAY_ADDRESS"').stdout.strip() == "127.0.0.1:6390"


def test_the_store_of_another_checkout_is_left_alone(tmp_path: Path) -> None:
    _prepared(tmp_path / "a", "write_env")
    then = 'echo "STORE=$SENTDIST_STORE"'
    environment = dict(SENTDIST_ENV_OF=str(tmp_path / "a"), SENTDIST_STORE=str(tmp_path / "a" / ".sentdist" / "store"))
    assert f"STORE={tmp_path}/b/.sentdist/store\n" in _prepared(tmp_path / "b", then, **environment).stdout
    assert "STORE=/shared/store\n" in _prepared(tmp_path / "b", then, **environment | {"SENTDIST_STORE": "/shared/store"}).stdout


def test_what_the_servers_keep_is_for_their_owner(tmp_path: Path) -> None:
    (tmp_path / "a" / ".sentdist").mkdir(parents=True)
    (tmp_path / "a" / ".sentdist").chmod(0o755)  # as earlier releases left it
    done = _prepared(tmp_path / "a", "true")
    assert done.returncode == 0, done.stderr
    state = tmp_path / "a" / ".sentdist"
    assert state.stat().st_mode & 0o777 == 0o700
    assert (state / "ray_token").stat().st_mode & 0o777 == 0o600


FAKE_SERVERS = "in_background() { :; }; wait_for() { :; }; need_port() { :; }; "


def test_mlflow_gets_a_password_of_its_own_once(tmp_path: Path) -> None:
    state = tmp_path / "a" / ".sentdist"
    made = []
    for action in ("first start", "second start", "password lost"):
        if action == "password lost":
            (state / "mlflow_password").unlink()
        done = _prepared(tmp_path / "a", FAKE_SERVERS + "start_mlflow; mlflow_link '#/x'")
        assert done.returncode == 0, done.stderr
        password = (state / "mlflow_password").read_text()
        assert done.stdout.endswith(f"http://sentdist:{password}@127.0.0.1:5001/login#/x")
        assert (state / "mlflow_password").stat().st_mode & 0o777 == 0o600
        made.append((password, (state / "mlflow_users.db").exists()))
        (state / "mlflow_users.db").touch()  # as the server does
    assert made[0] == (made[1][0], False)
    assert made[1][1]
    assert made[2][0] != made[0][0]
    assert not made[2][1]  # the users of a data base keep their passwords: it must go with the file


def test_servers_of_an_earlier_release_are_not_taken_for_safe(tmp_path: Path) -> None:
    for start, told in (("start_mlflow", "wants no password"), ("start_ray", "where others can change them")):
        done = _prepared(tmp_path / "a", "is_ours() { true; }; answers() { true; }; " + start)
        assert done.returncode == 1
        assert told in done.stderr
        assert "bash infra/stop.sh" in done.stderr


def test_a_job_gets_paths_of_secrets_and_no_secrets(tmp_path: Path) -> None:
    then = FAKE_SERVERS + "start_mlflow >/dev/null; export MLFLOW_TRACKING_PASSWORD=$(cat $SENTDIST_MLFLOW_PASSWORD_FILE); job_environment"
    done = _prepared(tmp_path / "a", then)
    password_file = tmp_path / "a" / ".sentdist" / "mlflow_password"
    given = json.loads(done.stdout)["env_vars"]
    assert given["SENTDIST_MLFLOW_PASSWORD_FILE"] == str(password_file)
    assert given["MLFLOW_TRACKING_USERNAME"] == "sentdist"
    assert password_file.read_text() not in done.stdout


def test_waiting_for_a_log_that_is_not_there_yet_says_nothing(tmp_path: Path) -> None:
    then = """
        (sleep 0.5; echo "is up" >"$state/logs/x.log") &
        is_ours() { true; }
        answers() { true; }
        wait_for x http://127.0.0.1:9 30 "is up"
    """
    done = _prepared(tmp_path / "a", then)
    assert (done.returncode, done.stderr) == (0, "")


def test_stopping_is_quick_and_removes_rays_folder(tmp_path: Path) -> None:
    state, folder = tmp_path / ".sentdist", tmp_path / "ray-files"
    for path in (state, folder, tmp_path / "infra"):
        path.mkdir()
    (folder / "session").touch()
    (state / "ray_folder").write_text(str(folder))
    (tmp_path / "infra" / "stop.sh").write_bytes((ROOT / "infra" / "stop.sh").read_bytes())
    stubborn = "import os, signal, time; os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    servers = [subprocess.Popen([sys.executable, "-c", stubborn, name], stdout=subprocess.PIPE) for name in ("ray", "mlflow")]
    try:
        for name, server in zip(("ray", "mlflow"), servers, strict=True):
            assert server.stdout is not None
            server.stdout.readline()
            (state / f"{name}.pid").write_text(str(server.pid))
        done = _bash(f"COLUMNS=80 timeout 30 bash {tmp_path}/infra/stop.sh")  # `ps` would cut its lines there
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == ["ray stopped.", "mlflow stopped."]
        assert [server.wait(timeout=5) for server in servers] == [-9, -9]
    finally:
        for server in servers:
            server.kill()
            server.communicate()
    assert not folder.exists()


READS_ITS_OWN_LINE = """#!{python}
import pathlib, sys, time
print("12:00:00  [1/2]  train   first")
for _ in range(100):
    if "first" in pathlib.Path({log!r}).read_text():
        sys.exit(0)
    time.sleep(0.1)
sys.exit(1)
"""


def test_lines_of_a_job_are_shown_as_they_come(tmp_path: Path) -> None:
    """Python keeps some eighty lines before it writes them into a pipe: `ray` ends here when it finds its first one in the log."""
    state = tmp_path / "a" / ".sentdist"
    (state / "logs").mkdir(parents=True)
    (state / "logs" / "sweep.log").touch()
    ray = tmp_path / "bin" / "ray"
    ray.parent.mkdir()
    ray.write_text(READS_ITS_OWN_LINE.format(python=sys.executable, log=str(state / "logs" / "sweep.log")))
    ray.chmod(0o755)
    done = _prepared(tmp_path / "a", f"PATH={ray.parent}:$PATH; cd {ROOT}; submit_sweep recipe.yaml", PYTHONUNBUFFERED="")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "first" in done.stdout
