"""How the scripts install: with which Python, into which environment, which torch. Nothing is installed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.bash import bash, heeds_ctrl_c
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]


def test_a_python_in_a_folder_with_a_space_is_found(tmp_path: Path) -> None:
    (tmp_path / "my py").mkdir()
    (tmp_path / "my py" / "python").symlink_to(sys.executable)
    named = str(tmp_path / "my py" / "python")
    assert bash(". infra/venv.sh; find_python", PYTHON=named).stdout.strip() == named


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
    done = bash(f'{stamps} . {ROOT}/infra/venv.sh; enter_venv "" "$PWD"; echo "VENV=$VIRTUAL_ENV"', cwd=checkout, **given)
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
    done = bash(f'. {ROOT}/infra/venv.sh; enter_venv "" "$PWD"', cwd=checkout, **given)
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
    done = bash(f'. {ROOT}/infra/venv.sh; enter_venv "" "$PWD"', cwd=checkout, **given)
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
    python = A_PYTHON.format(has_torch=0 if has_torch else 1, settings=settings or ":", is_away=int(is_away), log=folder / "log")
    scripts = {"uname": f"#!/bin/bash\necho {system}\n", "python": python.replace("/bin/bash", str(shutil.which("bash")))}
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
    done = bash(_machine(tmp_path, **machine) + 'if wants_cpu_torch "$python" "$root"; then echo yes; else echo no; fi')
    assert done.stdout.split() == ["yes" if wants else "no"], done.stderr


@pytest.mark.parametrize("is_away", [False, True])
def test_a_host_that_does_not_answer_is_left_alone(is_away: bool, tmp_path: Path) -> None:
    script = 'add_cpu_torch "$python" infra/constraints.txt "$root-log" --no-compile; echo went on'
    done = bash(_machine(tmp_path, is_away=is_away) + script)
    assert done.returncode == 0, done.stderr
    asked = (tmp_path / "log").read_text() if (tmp_path / "log").exists() else ""
    assert done.stdout.splitlines()[-1] == "went on" and done.stdout.startswith("No NVIDIA GPU here: ") == (not is_away)
    assert ("--no-deps" in asked and "--index-url https://download.pytorch.org/whl/cpu" in asked) == (not is_away), "for torch alone"


def test_what_pip_is_told_in_the_environment_counts_as_its_settings() -> None:
    script = '. infra/venv.sh; may_have_gpu() { false; }; python() { [ "$1" != -c ] && command python "$@"; }'
    script += "; uname() { echo Linux; }; wants_cpu_torch python && echo yes || echo no"
    assert bash(script, PIP_FIND_LINKS="/wheels").stdout.split() == ["no"]


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
        preexec_fn=heeds_ctrl_c,
    ) as shell:
        wait_for((tmp_path / "log").exists, what="pip")
        os.killpg(shell.pid, signal.SIGINT)
        assert "went on" not in shell.communicate(timeout=20)[0] and shell.returncode == 130
    assert not (checkout / ".venv" / "install.log").exists()


@pytest.mark.parametrize("status", [0, 1])
def test_an_installation_says_what_it_does_and_ends_as_pip_does(status: int, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("Obtaining file:///checkout\n")
    found = "Collecting torch==2.13.0 (from sentdist)\n  Downloading https://host/torch-2.13.0-cp311.whl (190.3 MB)"
    pip = f"""said() {{ until grep -q "$1" reported; do sleep 0.1; done; }}
        (said 'far: 0'; echo '{found}' >>log; said 'far: 1'; echo 'Installing collected packages: torch, ray, mlflow' >>log; said unpacking; exit {status}) &"""
    done = bash(f'. {ROOT}/infra/venv.sh; : >reported\n{pip}\nfollow_pip "$!" log >reported', cwd=tmp_path, INSTALL_SAID_EVERY_S="1")
    assert done.returncode == status, done.stderr
    first, *middle, last = [line.split(" s: ")[1] for line in (tmp_path / "reported").read_text().splitlines()]
    assert first == "packages found so far: 0"
    assert "packages found so far: 1; Downloading torch-2.13.0-cp311.whl (190.3 MB)" in middle
    assert last == "unpacking 3 packages"
