"""How the scripts install: with which Python, into which environment, which torch. Nothing is installed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.bash import bash

ROOT = Path(__file__).parents[2]


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
        (False, {}, ["get", "pip"], 0),
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
