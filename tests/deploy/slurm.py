"""A real Slurm over hosts of one machine: munged, slurmctld, and a slurmd on each host, with one CPU and what it takes for a GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.cluster.hosts import INTERFACE, Hosts, hosts, why_not
from tests.support.waiting import wait_for

DAEMONS = ("munged", "slurmctld", "slurmd")
# Each host has its own processes: `ray symmetric-run` refuses where it sees a Ray. Bash, the first, takes in those that nobody waits for.
OWN_PROCESSES = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", '"$@" & wait', "host")
# cgroup/v1 is only named: nothing is confined here, and an `ip netns exec` sees no cgroups.
CONFIGURATION = """
ClusterName=test
SlurmctldHost=localhost({head})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
KillWait=5
GresTypes=gpu
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_no_slurm() -> str | None:
    """The reason for which this machine cannot have a Slurm; None if it can."""
    missing = [name for name in (*DAEMONS, "sbatch") if shutil.which(name, path=_path()) is None]
    if missing:
        return f"{', '.join(missing)} not found (Debian: apt-get install --no-install-recommends slurmd slurmctld slurm-client munge)"
    return why_not()


class Slurm:
    """What a user does on its first host."""

    def __init__(self, made: Hosts) -> None:
        self._hosts = made

    def submit(self, *command: str, num_nodes: int, log: Path) -> str:
        """`sbatch`; the job's number."""
        return self._run("sbatch", "--parsable", f"--nodes={num_nodes}", f"--output={log}", *command).strip()

    def signal(self, job: str, name: str) -> None:
        """What Slurm itself sends to a batch script some time before its end (`--signal=B:NAME@…`)."""
        self._run("scancel", "--batch", f"--signal={name}", job)

    def facts(self, job: str) -> dict[str, str]:
        """JobState, ExitCode, Restarts and so on."""
        return dict(part.split("=", 1) for part in self._run("scontrol", "show", "job", job).split() if "=" in part)

    def begin(self, job: str) -> None:
        """Slurm lets a job that is queued again wait for two minutes; a test does not."""
        self._run("scontrol", "update", f"JobId={job}", "StartTime=now")

    def _run(self, *command: str) -> str:
        done = self._hosts.run(0, *command)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        return done.stdout


@contextmanager
def slurm(num_hosts: int, home: Path) -> Iterator[Slurm]:
    """Hosts that Slurm gives out; jobs run with that home, which all hosts share."""
    environment = {"HOME": str(home), "GLOO_SOCKET_IFNAME": INTERFACE, "SENTDIST_TEMP": "/tmp/ray", "PATH": _path()}
    with hosts(**environment) as made, ExitStack() as running:
        folder = made.folder / "slurm"
        addresses = [made.wire(number) for number in range(num_hosts)]
        for name in ("state", "munge", *addresses):
            (folder / name).mkdir(parents=True)
        nodes = "\n".join(f"NodeName={address} NodeAddr={address} CPUs=1 Gres=gpu:1 State=UNKNOWN" for address in addresses)
        (folder / "slurm.conf").write_text(CONFIGURATION.format(head=addresses[0], folder=folder, nodes=nodes))
        (folder / "gres.conf").write_text("Name=gpu File=/dev/null\n")
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)
        made.given("SLURM_CONF", str(folder / "slurm.conf"))
        munge = [f"--{name}={folder}/munge/{name}" for name in ("socket", "pid-file", "log-file", "seed-file")]

        def daemon(host: int, *command: str) -> None:
            with (folder / f"{len(list(folder.glob('*.out')))}.out").open("w") as out:
                process = made.start(host, *command, stdout=out, stderr=out)
            running.callback(_ended, process)

        daemon(0, "munged", "--foreground", "--force", f"--key-file={folder}/munge.key", *munge)
        wait_for((folder / "munge/socket").exists, what="munge")
        daemon(0, "slurmctld", "-D")
        for number, address in enumerate(addresses):
            daemon(number, *OWN_PROCESSES, "slurmd", "-D", "-N", address)
        wait_for(lambda: made.run(0, "sinfo", "-h", "-N", "-o", "%T").stdout.split() == ["idle"] * num_hosts, what="idle hosts", seconds=60)
        yield Slurm(made)


def _ended(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(timeout=30)


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"
