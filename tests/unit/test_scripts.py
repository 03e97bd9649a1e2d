"""The functions of the shell scripts: private folders, which environment is used, what a job gets. Nothing is installed."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]


def _bash(script: str, *, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    ours = ("SENTDIST_", "RAY_", "MLFLOW_", "VIRTUAL_ENV")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    inherited["PATH"] = f"{Path(sys.executable).parent}:{inherited['PATH']}"
    done = ["bash", "-euo", "pipefail", "-c", script]
    return subprocess.run(done, cwd=cwd, env=inherited | environment, capture_output=True, text=True, timeout=60, check=False)


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
    done = _bash(f"PATH={tmp_path}:$PATH; bash {ROOT}/cluster/{script}", cwd=planted, **environment)
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / ".sentdist_ray_token").read_text()) in (6, 64)
    assert not list(planted.rglob("ran"))


def test_no_proxy_learns_the_token_from_clients_of_a_head(tmp_path: Path, short: Path) -> None:
    """`ray job submit` shows it to the address that it is given, and asks a proxy about 127.0.0.1, too, unless it is set not to."""
    done = _starts_ray("one_host.sh", tmp_path, short)
    lines = "\n".join(line for line in done.stdout.splitlines() if line.startswith("  export "))
    for own, other in (("no_proxy", "NO_PROXY"), ("NO_PROXY", "no_proxy")):
        shell = _bash(f"{lines}\necho $no_proxy", **{own: "corp.example", other: ""})
        assert shell.stdout.strip() == "127.0.0.1,localhost,corp.example", shell.stderr


def test_a_head_without_its_dashboard_does_not_stay(tmp_path: Path, short: Path) -> None:
    """Ray goes on where the port is taken, and clients would show the token to who has taken it."""
    words = _starts_ray("one_host.sh", tmp_path, short).stdout.splitlines()
    assert words[words.index("--include-dashboard") + 1] == "true"


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
    assert _bash(script).stdout.strip() == found


def test_a_python_in_a_folder_with_a_space_is_found(tmp_path: Path) -> None:
    (tmp_path / "my py").mkdir()
    (tmp_path / "my py" / "python").symlink_to(sys.executable)
    named = str(tmp_path / "my py" / "python")
    assert _bash(". infra/venv.sh; find_python", PYTHON=named).stdout.strip() == named


def test_no_other_script_starts_ray() -> None:
    scripts = [path for folder in ("infra", "cluster") for path in (ROOT / folder).glob("*.sh")]
    assert {path.name for path in scripts if re.search(r"ray (start|symmetric-run) --", path.read_text())} == {*STARTS_RAY}


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


A_PYTHON_WHOSE_PIP_IS_NOT_RENEWED = """#!/bin/sh
case "$*" in
    *"-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    *"--upgrade pip") trap 'exit 1' INT; echo "$@" >>"{log}"; sleep {seconds} & wait; exit 1 ;;
    *"-m pip install "*) echo "$@" ;;
esac
"""


def _to_be_installed(folder: Path, *, seconds: int) -> tuple[Path, dict[str, str]]:
    """A checkout without an environment, and what names a Python for it; seconds: until its pip gives up renewing itself."""
    checkout = folder / "checkout"
    (checkout / "infra").mkdir(parents=True)
    for name in ("pyproject.toml", "infra/constraints.txt"):
        (checkout / name).write_text("pins")
    python = folder / "python"
    python.write_text(A_PYTHON_WHOSE_PIP_IS_NOT_RENEWED.format(log=folder / "log", seconds=seconds))
    python.chmod(0o755)
    return checkout, {"PYTHON": str(python)}


def test_an_environment_gets_the_pinned_pip_or_is_made_with_the_one_there_is(tmp_path: Path) -> None:
    checkout, given = _to_be_installed(tmp_path, seconds=0)
    done = _bash(f'. {ROOT}/infra/venv.sh; enter_venv "" "$PWD"', cwd=checkout, **given)
    assert done.returncode == 0, done.stderr
    (renewed,) = (tmp_path / "log").read_text().splitlines()
    assert f"-c {checkout}/infra/constraints.txt" in renewed
    assert f"-e {checkout}" in (checkout / ".venv" / "install.log").read_text()


A_PYTHON = """#!/bin/bash
case "$*" in
    *find_spec*) exit {has_torch} ;;
    *"pip config list") echo "global.timeout='60'"; {settings} ;;
    *urlopen*) exit {is_away} ;;
    *"pip install"*) echo "$@" >>{log} ;;
esac
"""


def _machine(
    folder: Path,
    *,
    files: str = "",
    programs: str = "",
    system: str = "Linux",
    has_torch: bool = False,
    settings: str = "",
    is_away: bool = False,
) -> str:
    """Lines of bash for a machine of its own: these files, beside the programs that the functions need these too, and a `python`."""
    (folder / "bin").mkdir()
    for name in ("grep", "timeout", "sleep", "tail", "tr", "wc", "cut", "sed"):
        (folder / "bin" / name).symlink_to(str(shutil.which(name)))
    told = A_PYTHON.format(has_torch=0 if has_torch else 1, settings=settings or ":", is_away=int(is_away), log=folder / "log")
    scripts = {"uname": f"#!/bin/bash\necho {system}\n", "python": told.replace("/bin/bash", str(shutil.which("bash")))}
    for name, text in (scripts | dict.fromkeys(programs.split(), "#!/bin/bash\n")).items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    for name in files.split():
        (folder / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "root" / name).write_text("0x10de\n")
    return f". infra/venv.sh; PATH={folder}/bin; root={folder}/root; python={folder}/bin/python\n"


@pytest.mark.parametrize(
    ("machine", "wants"),
    [
        ({}, True),
        ({"files": "dev/null sys/bus/pci/devices/0/class"}, True),
        ({"system": "Darwin"}, False),
        ({"files": "dev/nvidia0"}, False),
        ({"files": "dev/nvidiactl"}, False),
        ({"files": "dev/dxg"}, False),
        ({"files": "sys/bus/pci/devices/0000:01:00.0/vendor"}, False),
        ({"programs": "nvidia-smi"}, False),
        ({"programs": "srun"}, False),
        ({"has_torch": True}, False),
        ({"settings": "echo \"global.extra-index-url='https://mirror/simple'\""}, False),
        ({"settings": "echo \":env:.index-url='https://mirror/simple'\""}, False),
        ({"settings": "echo \"install.find-links='/wheels'\""}, False),
        ({"settings": "echo \"global.constraint='/pins.txt'\""}, False),
        ({"settings": "echo \":env:.no-index='1'\""}, False),
        ({"settings": "exit 1"}, False),
    ],
)
def test_torch_comes_without_cuda_where_no_gpu_can_be_and_nobody_told_pip_otherwise(
    machine: dict[str, Any], wants: bool, tmp_path: Path
) -> None:
    done = _bash(_machine(tmp_path, **machine) + 'if wants_cpu_torch "$python" "$root"; then echo yes; else echo no; fi')
    assert done.stdout.split() == ["yes" if wants else "no"], done.stderr


@pytest.mark.parametrize("is_away", [False, True])
def test_a_host_that_does_not_answer_is_left_alone(is_away: bool, tmp_path: Path) -> None:
    script = 'add_cpu_torch "$python" infra/constraints.txt "$root-log" --no-compile; echo went on'
    done = _bash(_machine(tmp_path, is_away=is_away) + script)
    assert done.returncode == 0, done.stderr
    asked = (tmp_path / "log").read_text() if (tmp_path / "log").exists() else ""
    assert done.stdout.splitlines()[-1] == "went on" and done.stdout.startswith("No NVIDIA GPU here: ") == (not is_away)
    assert ("--no-deps" in asked and "--index-url https://download.pytorch.org/whl/cpu" in asked) == (not is_away), "for torch alone"


def test_what_pip_is_told_in_the_environment_counts_as_its_settings() -> None:
    script = '. infra/venv.sh; may_have_gpu() { false; }; python() { [ "$1" != -c ] && command python "$@"; }'
    script += "; uname() { echo Linux; }; wants_cpu_torch python && echo yes || echo no"
    assert _bash(script, PIP_FIND_LINKS="/wheels").stdout.split() == ["no"]


def _heeds_ctrl_c() -> None:
    """Where the tests run behind an `&`, they were set not to, and so is what they start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_ctrl_c_while_pip_is_renewed_installs_nothing(tmp_path: Path) -> None:
    checkout, given = _to_be_installed(tmp_path, seconds=60)
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "SENTDIST_VENV")} | given
    script = f'. {ROOT}/infra/venv.sh; enter_venv "" "$PWD"; echo went on'
    with subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=checkout,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_heeds_ctrl_c,
    ) as shell:
        wait_for((tmp_path / "log").exists, what="pip")
        os.killpg(shell.pid, signal.SIGINT)
        assert "went on" not in shell.communicate(timeout=20)[0] and shell.returncode == 130
    assert not (checkout / ".venv" / "install.log").exists()


READS_ITS_OWN_LINE = """#!{python}
import pathlib, sys, time
print("12:00:00  [1/2]  train   first")
for _ in range(100):
    if "first" in pathlib.Path({log!r}).read_text():
        sys.exit(0)
    time.sleep(0.1)
sys.exit(1)
"""


@pytest.mark.parametrize("status", [0, 1])
def test_an_installation_says_what_it_does_and_ends_as_pip_does(status: int, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("Obtaining file:///checkout\n")
    found = "Collecting torch==2.13.0 (from sentdist)\n  Downloading https://host/torch-2.13.0-cp311.whl (190.3 MB)"
    pip = f"""said() {{ until grep -q "$1" reported; do sleep 0.1; done; }}
        (said 'far: 0'; echo '{found}' >>log; said 'far: 1'; echo 'Installing collected packages: torch, ray, mlflow' >>log; said unpacking; exit {status}) &"""
    done = _bash(f'. {ROOT}/infra/venv.sh; : >reported\n{pip}\nfollow_pip "$!" log >reported', cwd=tmp_path, INSTALL_TOLD_EVERY_S="1")
    assert done.returncode == status, done.stderr
    first, *middle, last = [line.split(" s: ")[1] for line in (tmp_path / "reported").read_text().splitlines()]
    assert first == "packages found so far: 0"
    assert "packages found so far: 1; Downloading torch-2.13.0-cp311.whl (190.3 MB)" in middle
    assert last == "unpacking 3 packages"


def test_lines_of_a_job_are_shown_as_they_come(tmp_path: Path) -> None:
    """Python keeps some eighty lines before it writes them into a pipe: `ray` ends here when it finds its first one in the log."""
    logs = tmp_path / ".sentdist" / "logs"
    logs.mkdir(parents=True)
    (logs / "sweep.log").touch()
    (tmp_path / "infra").symlink_to(ROOT / "infra")
    ray = tmp_path / "bin" / "ray"
    ray.parent.mkdir()
    ray.write_text(READS_ITS_OWN_LINE.format(python=sys.executable, log=str(logs / "sweep.log")))
    ray.chmod(0o755)
    done = _bash(f"PATH={ray.parent}:$PATH; . infra/submit.sh; submit_sweep recipe.yaml", cwd=tmp_path, PYTHONUNBUFFERED="")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "first" in done.stdout


def test_a_job_gets_paths_of_secrets_and_no_secrets() -> None:
    given = {"MLFLOW_TRACKING_USERNAME": "sentdist", "SENTDIST_MLFLOW_PASSWORD_FILE": "/a/file", "MLFLOW_TRACKING_PASSWORD": "secret"}
    done = _bash(". infra/submit.sh; job_environment", **given)
    assert json.loads(done.stdout)["env_vars"].items() >= {name: given[name] for name in [*given][:2]}.items()
    assert "secret" not in done.stdout


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
    done = _bash("bash infra/test.sh tests/unit", cwd=tmp_path, **given)
    assert done.stdout.splitlines()[-1].split() == ["127.0.0.1,localhost,corp.example"] * 2, done.stderr


SAYS_HOW_IT_IS_CALLED = """#!/bin/sh
printf '%s\\n' "$@" >"$HOME/words"
while [ "$1" != --runtime-env ]; do shift; done
cat "$2" >"$HOME/environment"
"""


def _submitted(folder: Path, arguments: str, **environment: str) -> tuple[list[str], dict[str, str]]:
    """The words of `ray job submit`, and the environment that the job gets."""
    (folder / ".sentdist" / "logs").mkdir(parents=True)
    (folder / "infra").symlink_to(ROOT / "infra")
    (folder / "ray").write_text(SAYS_HOW_IT_IS_CALLED)
    (folder / "ray").chmod(0o755)
    given = environment | {"HOME": str(folder)}
    done = _bash(f"PATH={folder}:$PATH; . infra/submit.sh; submit_sweep recipe.yaml {arguments}", cwd=folder, **given)
    assert done.returncode == 0, done.stderr
    return (folder / "words").read_text().splitlines(), json.loads((folder / "environment").read_text())["env_vars"]


def test_no_address_of_a_job_stands_in_a_command_line(tmp_path: Path) -> None:
    """Every user of the machine reads those, and an address may hold the key of a bucket."""
    address = "s3://KEY:SECRET@bucket/päth"
    words, environment = _submitted(tmp_path, "", SENTDIST_STORE=address, SENTDIST_DATA=address)
    assert (environment["SENTDIST_STORE"], environment["SENTDIST_DATA"]) == (address, address)
    assert not [word for word in words if "SECRET" in word]


def test_paths_of_a_job_lead_where_they_lead_from_here(tmp_path: Path) -> None:
    """It runs in a copy of the checkout: data were found while planning and not by the job, which refused the store."""
    arguments = "--data ../data --store=a/store --set a=--data --data s3://bucket/data --store '~/store'"
    words, environment = _submitted(tmp_path, arguments, SENTDIST_DATA="../shared/my data")
    expected = f"--data {tmp_path}/../data --store={tmp_path}/a/store --set a=--data --data s3://bucket/data --store ~/store"
    assert " ".join(words).endswith(f"python -m rayjobs.sweep recipe.yaml {expected}")
    assert environment["SENTDIST_DATA"] == f"{tmp_path}/../shared/my data"


def test_stopping_where_nothing_was_started_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "infra").mkdir()
    shutil.copy(ROOT / "infra" / "stop.sh", tmp_path / "infra")
    done = _bash("bash infra/stop.sh", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "Nothing was started here.\n")


def test_ctrl_c_ends_a_node_and_its_script() -> None:
    script = '. cluster/security.sh; leaves_in_time nowhere sh -c "echo up; exec sleep 60"'
    with subprocess.Popen(
        ["bash", "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=_heeds_ctrl_c
    ) as shell:
        assert shell.stdout is not None and shell.stdout.readline() == "up\n"
        os.killpg(shell.pid, signal.SIGINT)
        assert shell.wait(timeout=20) != 0
        assert shell.stdout.read() == "", "its end is closed: nothing is left running"
