"""Check this machine, its store and its servers for `sentdist doctor`: one finding a line, with a remedy."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sentdist import machine
from sentdist.errors import SentdistError, StoreError
from sentdist.kernels import cpp_library
from sentdist.run.address import check, choose, local_nodes, token
from sentdist.services import servers
from sentdist.services.processes import Reply, basic_auth_header, get, ray_version
from sentdist.services.state import state_of
from sentdist.store.store import ArtifactStore
from sentdist.text import without_secrets
from sentdist.tracking.server import read_password

PACKAGES = ("torch", "ray", "deepspeed", "transformers", "sentence-transformers", "mlflow", "pyarrow")
TIMEOUT_S = 2.0
WITHOUT_CLUSTER = "commands with --local work (`sentdist sweep RECIPE --local`). `sentdist up` starts one."
DASHBOARD = "http://127.0.0.1:8265"
TRACKING = "http://127.0.0.1:5001"
REFUSED = (401, 403)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Result of one check. state: "bad" if something will not work; "note" if something optional is missing."""

    subject: str
    state: Literal["good", "note", "bad"]
    text: str


def examine(store: str, data: Path | None) -> Iterator[Finding]:
    """Check everything that a first run needs, cheapest first; start nothing."""
    yield Finding(subject="Python", state="good", text=f"{platform.python_version()} at {sys.executable}")
    for name in PACKAGES:
        yield Finding(subject=name, state="good", text=importlib.metadata.version(name))
    yield gpus()
    yield cpu()
    yield compiler()
    yield kernels()
    yield _store(store)
    yield _data(data)
    for is_sound, text in servers.examine(state_of(Path.cwd()), os.environ):
        yield Finding(subject="servers", state="good" if is_sound else "bad", text=text)
    yield _cluster(os.environ.get("RAY_ADDRESS"))
    yield dashboard(os.environ.get("RAY_API_SERVER_ADDRESS"))
    yield mlflow(os.environ.get("MLFLOW_TRACKING_URI"))


def compiler() -> Finding:
    """Check that a C++ compiler and Python's headers are installed."""
    compiler = next((path for name in (os.environ.get("CXX"), "c++", "g++", "clang++") if name and (path := shutil.which(name))), None)
    if compiler is None:
        text = "no C++ compiler; DeepSpeed builds its CPU collectives with one. Debian: apt-get install g++; macOS: xcode-select --install."
        return Finding(subject="compiler", state="bad", text=text)
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        return Finding(subject="compiler", state="bad", text=f"{compiler}, but Python.h is missing. Debian: apt-get install python3-dev.")
    return Finding(subject="compiler", state="good", text=compiler)


def kernels() -> Finding:
    """Check the CPU kernels; the first call compiles them."""
    try:
        return Finding(subject="kernels", state="good", text=f"compiled for this processor: {cpp_library.find_or_build()}")
    except cpp_library.NoKernelsError as reason:
        return Finding(subject="kernels", state="note", text=f"none: {reason}. Training on a CPU is slower without, most of all in bf16.")


def gpus() -> Finding:
    """List the GPUs that the driver sees, and check that the installed torch can use them."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return Finding(subject="GPUs", state="note", text="none, or no driver (nvidia-smi is not there); everything runs on CPUs.")
    asked = [program, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    rows = [line for line in answer.stdout.splitlines() if line.count(",") == 2]
    if answer.returncode or not rows:
        return Finding(subject="GPUs", state="bad", text=f"nvidia-smi finds none ({first_line_of(answer)}); check the driver.")
    found = ", ".join(f"{count} × {row}" for row, count in Counter(rows).items())
    state, text = _torch_on_gpus()
    return Finding(subject="GPUs", state="good" if state == "good" else "bad", text=f"{found}; {text}")


def first_line_of(answer: subprocess.CompletedProcess[str]) -> str:
    """Return the first line that a program printed, of errors if there are some."""
    return (answer.stderr.strip() or answer.stdout.strip()).partition("\n")[0]


def _torch_on_gpus() -> tuple[str, str]:
    """Ask a separate process, which sees all GPUs, hidden ones too, and compiles kernels; return "good" or "bad", and what it found."""
    program = """
import torch
from sentdist.stages.fit import why_unusable
if why := why_unusable():
    print("bad")
    print(f"torch cannot use them ({why})")
else:
    from sentdist.kernels.flat_attention import has_flash, why_kernels_unavailable
    slow = why_kernels_unavailable(torch.device("cuda"))
    flash = has_flash(torch.device("cuda"), torch.bfloat16, 64)
    print("good")
    print("FlashAttention for bf16" if flash else "no FlashAttention for bf16", end="")
    print(f"; no kernels for short sentences ({slow})" if slow else "")
"""
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    asked = [sys.executable, "-P", "-W", "ignore", "-c", program]
    answer = subprocess.run(asked, env=environment, capture_output=True, text=True, check=False)
    if answer.returncode:
        return "bad", (answer.stderr.strip() or "the test process ended").splitlines()[-1]
    state, text, *_ = [*answer.stdout.splitlines(), "", ""]
    return state, text


def cpu() -> Finding:
    """Name the processor; without bfloat16 multiplication it gains nothing from `precision: bf16`."""
    if machine.instructions() != machine.WITHOUT_BFLOAT16:
        return Finding(subject="processor", state="good", text=machine.name())
    text = (
        f"{machine.name()}: it does not multiply in bfloat16, so precision bf16 is no faster than fp32 on it, and far "
        "slower under ZeRO stage 3."
    )
    return Finding(subject="processor", state="note", text=text)


def _store(root: str) -> Finding:
    """Check that the store can be written; one that does not exist yet is not made."""
    if "://" not in root and not Path(root).expanduser().exists():
        return Finding(subject="store", state="good", text=f"{root}; made when it is first used")
    try:
        store = ArtifactStore(root)
        store.check_writable()
        return Finding(subject="store", state="good", text=f"{store.shown} can be written")
    except StoreError as error:
        return Finding(subject="store", state="bad", text=str(error))


def _data(root: Path | None) -> Finding:
    if root is None:
        text = "none; recipes on generated/… need none, others need --data DIR or SENTDIST_DATA."
        return Finding(subject="data", state="note", text=text)
    if not root.is_dir():
        return Finding(subject="data", state="bad", text=f"{root} is not a folder; correct --data or SENTDIST_DATA.")
    found = sorted(path.name for path in root.iterdir() if path.is_dir())
    return Finding(subject="data", state="good", text=f"{root} with {', '.join(found) or 'no subfolder'}")


def _cluster(named: str | None) -> Finding:
    """Check the cluster that `sentdist sweep` would use, in the same way."""
    try:
        nodes = local_nodes()
        if not named and all(node.is_private for node in nodes):
            return Finding(subject="Ray", state="note", text=f"no cluster of yours on this machine; {WITHOUT_CLUSTER}")
        chosen = choose(named, nodes)
        check(chosen)
    except SentdistError as error:
        return Finding(subject="Ray", state="bad", text=str(error))
    return Finding(subject="Ray", state="good", text=f"answers at {chosen.address}, {chosen.because}")


def dashboard(named: str | None) -> Finding:
    """Check Ray's dashboard at an address, or at Ray's default, which may be another user's and does not get our token."""
    secret = token() if named else None
    reply = get(
        f"{(named or DASHBOARD).rstrip('/')}/api/version", authorization=f"Bearer {secret}" if secret else None, timeout_s=TIMEOUT_S
    )
    consequence = "`ray job submit` needs it; `sentdist up` starts one"
    return _server("Ray's dashboard", "RAY_API_SERVER_ADDRESS", named, DASHBOARD, reply, ray_version(reply), consequence)


def mlflow(named: str | None) -> Finding:
    """Check the MLflow server at an address, or at the default, which may be another user's and does not get our password."""
    try:
        read_password()
    except SentdistError as error:
        return Finding(subject="MLflow", state="bad", text=str(error))
    user, password = os.environ.get("MLFLOW_TRACKING_USERNAME"), os.environ.get("MLFLOW_TRACKING_PASSWORD")
    reply = get(
        f"{(named or TRACKING).rstrip('/')}/version",
        authorization=basic_auth_header(user, password) if named and user and password else None,
        authority=os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH"),
        timeout_s=5 * TIMEOUT_S,  # a server that has just started is slow
    )
    version = reply.text.strip() if reply is not None and reply.status == 200 and reply.text[:1].isdigit() else None
    consequence = "runs are kept in the store; `sentdist report --rebuild-mlflow` adds them later"
    return _server("MLflow", "MLFLOW_TRACKING_URI", named, TRACKING, reply, version, consequence)


def _server(
    subject: str, variable: str, named: str | None, default: str, reply: Reply | None, version: str | None, consequence: str
) -> Finding:
    """The finding for a server's reply. version: None if the reply is not its."""
    shown = without_secrets(named or default)
    if version is not None:
        return Finding(subject=subject, state="good", text=f"{version} answers at {shown}")
    if reply is None:
        return Finding(subject=subject, state="note", text=f"nothing answers at {shown}; {consequence}.")
    if reply.status in REFUSED and not named:
        text = f"a server at {shown} requires a secret, which was not sent; if it is yours, name it: {variable}={shown}"
        return Finding(subject=subject, state="note", text=text)
    text = f"{shown} refuses the password or token, or is not {subject} (HTTP {reply.status}): `source .sentdist/env`, or another port."
    return Finding(subject=subject, state="bad", text=text)
