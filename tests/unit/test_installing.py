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


FAKES = {
    "python": """#!/bin/sh
case "$*" in
    *"pip config list") printf '%s\\n' "$SETTINGS" ;;
    *"pip install"*" uv") trap 'exit 1' INT; echo "get $*" >>"$LOG"; [ -z "$PIP_TAKES" ] || { sleep "$PIP_TAKES" & wait; }; [ -n "$PIP_HAS_UV" ] && touch "$LOG.uv" ;;
    *"pip install"*) echo "pip $*" >>"$LOG"; exit "${PIP_ENDS:-0}" ;;
    *) exit 1 ;;
esac
""",
    "uv": """#!/bin/sh
case "$*" in
    --version) [ -e "$LOG.uv" ] ;;
    "cache dir") ;;
    *) echo "uv $*" >>"$LOG"; env >"$LOG.env"; exit "${UV_ENDS:-0}" ;;
esac
""",
}


def _to_be_installed(folder: Path, *, has_uv: bool, **given: str) -> tuple[Path, dict[str, str]]:
    """A checkout with an environment that has nothing but a Python and, perhaps, uv; what they write is in `log`."""
    checkout = folder / "checkout"
    for path in (checkout / "infra", checkout / ".venv" / "bin"):
        path.mkdir(parents=True)
    for name in ("pyproject.toml", "infra/constraints.txt"):
        (checkout / name).write_text("pins")
    for name, text in FAKES.items():
        (checkout / ".venv" / "bin" / name).write_text(text)
        (checkout / ".venv" / "bin" / name).chmod(0o755)
    if has_uv:
        (folder / "log.uv").touch()
    defaults = dict.fromkeys(("SETTINGS", "PIP_TAKES", "PIP_HAS_UV", "SSL_CERT_FILE", "PIP_EXTRA_INDEX_URL"), "")
    uvs = {name: "" for name in os.environ if name.startswith("UV_")}
    return checkout, uvs | defaults | {"LOG": str(folder / "log")} | given


INSTALLS = f'. {ROOT}/infra/venv.sh; wants_cpu_torch() {{ false; }}; enter_venv "" "$PWD"; echo went on'


@pytest.mark.parametrize(
    ("has_uv", "given", "asked", "ends"),
    [
        (True, {}, ["uv"], 0),
        (False, {"PIP_HAS_UV": "1"}, ["get", "uv"], 0),
        (False, {}, ["get", "pip"], 0),
        (True, {"UV_ENDS": "2"}, ["uv", "pip"], 0),
        (True, {"UV_ENDS": "2", "PIP_ENDS": "1"}, ["uv", "pip"], 1),
    ],
)
def test_uv_installs_the_pinned_versions_and_where_it_cannot_pip_does(
    has_uv: bool, given: dict[str, str], asked: list[str], ends: int, tmp_path: Path
) -> None:
    checkout, environment = _to_be_installed(tmp_path, has_uv=has_uv, **given)
    done = bash(INSTALLS, cwd=checkout, **environment)
    calls = (tmp_path / "log").read_text().splitlines()
    assert [call.split()[0] for call in calls] == asked
    assert all(f"-c {checkout}/infra/constraints.txt" in call for call in calls)
    assert all(call.endswith(f"-e {checkout}") for call in calls if not call.startswith("get "))
    assert ("pip" in done.stdout.lower()) == ("pip" in asked), "the second way is said"
    assert done.returncode == ends and ("went on" in done.stdout) == (ends == 0)
    assert (checkout / ".venv" / ".sentdist-installed").exists() == (ends == 0), "or the next call would take it for installed"


def test_uv_gets_what_pips_settings_say_and_its_own_come_first(tmp_path: Path) -> None:
    settings = {":env:.find-links": "/a /b", "global.find-links": "/others", "global.constraint": "/pins.txt", "global.cert": "/cert.pem"}
    settings |= {"global.extra-index-url": "\\nfile:///one\\nfile:///two", "install.index-url": "https://mirror/simple"}
    listed = "\n".join(f"{name}='{value}'" for name, value in settings.items())
    checkout, environment = _to_be_installed(tmp_path, has_uv=True, SETTINGS=listed, UV_DEFAULT_INDEX="https://mine/simple")
    done = bash(INSTALLS + '; echo "left: ${UV_FIND_LINKS:-}"', cwd=checkout, **environment)
    assert done.stdout.endswith("left: \n"), done.stderr
    got = dict(line.split("=", 1) for line in (tmp_path / "log.env").read_text().splitlines() if "=" in line)
    assert (got["UV_DEFAULT_INDEX"], got["UV_FIND_LINKS"], got["UV_CONSTRAINT"]) == ("https://mine/simple", "/a,/b", "/pins.txt")
    assert (got["UV_INDEX"].split(), got["SSL_CERT_FILE"]) == (["file:///one", "file:///two"], "/cert.pem")


@pytest.mark.parametrize("is_away", [False, True])
def test_torch_without_cuda_is_asked_for_where_its_host_answers(is_away: bool, tmp_path: Path) -> None:
    checkout, environment = _to_be_installed(tmp_path, has_uv=True)
    script = INSTALLS.replace("{ false; }", f"{{ true; }}; answers() {{ {'false' if is_away else 'true'}; }}")
    done = bash(script, cwd=checkout, **environment)
    assert done.returncode == 0, done.stderr
    got = (tmp_path / "log.env").read_text().splitlines()
    assert ("UV_TORCH_BACKEND=cpu" in got) == ("PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu" in got) == (not is_away)
    assert ("No NVIDIA GPU here: " in done.stdout) == (not is_away)


A_PYTHON = """#!/bin/bash
case "$*" in
    *find_spec*) exit {has_torch} ;;
    *"pip config list") echo "global.timeout='60'"; {settings} ;;
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
) -> str:
    """Lines of bash for a machine of its own: these files, beside the programs that the functions need these too, and a `python`."""
    (folder / "bin").mkdir()
    for name in ("grep", "sed"):
        (folder / "bin" / name).symlink_to(str(shutil.which(name)))
    python = A_PYTHON.format(has_torch=0 if has_torch else 1, settings=settings or ":")
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


def test_what_pip_is_told_in_the_environment_counts_as_its_settings() -> None:
    script = '. infra/venv.sh; may_have_gpu() { false; }; python() { [ "$1" != -c ] && command python "$@"; }'
    script += "; uname() { echo Linux; }; wants_cpu_torch python && echo yes || echo no"
    assert bash(script, PIP_FIND_LINKS="/wheels").stdout.split() == ["no"]


def test_ctrl_c_while_uv_is_fetched_installs_nothing(tmp_path: Path) -> None:
    checkout, given = _to_be_installed(tmp_path, has_uv=False, PIP_TAKES="60")
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "SENTDIST_VENV")} | given
    with subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", INSTALLS],
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
    assert len((tmp_path / "log").read_text().splitlines()) == 1


@pytest.mark.parametrize("status", [0, 1])
def test_an_installation_counts_what_is_fetched_and_ends_as_its_command_does(status: int, tmp_path: Path) -> None:
    (tmp_path / "archive-v0" / "of another time").mkdir(parents=True)
    command = f"""set -e
        said() {{ until grep -q "$1" reported; do sleep 0.1; done; }}
        said 'choosing versions'; echo Resolved 3 packages in 2s; mkdir archive-v0/a archive-v0/b; said '2 of 3 packages'; exit {status}"""
    script = f'. {ROOT}/infra/venv.sh; : >reported; uv() {{ echo "$PWD"; }}; follow log bash -c "$COMMAND" >reported'
    done = bash(script, cwd=tmp_path, INSTALL_SAID_EVERY_S="1", COMMAND=command)
    assert done.returncode == status, done.stderr


def test_beside_the_checkout_the_package_is_found_and_not_the_checkout(tmp_path: Path) -> None:
    """A folder without `__init__.py` is a namespace package, which came before setuptools' finder for editable installs."""
    (tmp_path / "sentdist").mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([sys.executable, "-c", "import sentdist; sentdist.Encoder"], cwd=tmp_path, env=environment, check=True)
