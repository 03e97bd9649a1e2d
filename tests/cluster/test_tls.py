"""TLS=1 on two hosts that the scripts of cluster/ start: they work together,
and whoever lacks a certificate of theirs is refused with the right token."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from sentdist.execution.cluster.address import local_nodes
from tests.cluster.hosts import DASHBOARD_PORT, DISK, RAY_PORT, Hosts, hosts, why_not

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(600)]  # 80 s on two cores that have other work, too

ON_BOTH = """
import numpy, ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
from sentdist.execution.cluster.connection import connect

connect()

@ray.remote(num_cpus=1)
def total(array):
    return float(array.sum()), ray.util.get_node_ip_address()

array = ray.put(numpy.ones(1_000_000))  # large enough to go through the object store
on = [On(node["NodeID"], soft=False) for node in ray.nodes()]
print("SEEN", sorted(ray.get([total.options(scheduling_strategy=one).remote(array) for one in on])))
"""
ASK = "import sys; from sentdist.execution.cluster.address import ask; print('ANSWER', ask(sys.argv[1]))"


def _certificate(folder: str) -> dict[str, str]:
    """What a client sets to show the only certificate for a host in that folder."""
    names = {"SERVER_CERT": "$(hostname).crt", "SERVER_KEY": "$(hostname).key", "CA_CERT": "ca.crt"}
    return {f"RAY_TLS_{name}": f"{folder}/{file}" for name, file in names.items()}


@pytest.fixture(scope="module")
def encrypted() -> Iterator[Hosts]:
    if reason := why_not():
        pytest.skip(reason)
    with hosts() as made:
        made.start_script(0, "one_host.sh", TLS="1")
        there = made.disk(1) / ".sentdist_tls"
        there.mkdir(parents=True)
        there.chmod(0o700)
        for name in (".sentdist_tls/ca.crt", ".sentdist_tls/ca.key", ".sentdist_ray_token"):  # as scp would
            shutil.copy(made.disk(0) / name, made.disk(1) / name)
        made.start_script(1, "several_hosts.sh", TLS="1")
        yield made


def _python(encrypted: Hosts, host: int, code: str, *arguments: str, folder: str | None) -> str:
    """Run Python on a host that shows the certificate of that folder; its output."""
    shown = (
        "".join(f'export {name}="{value}"; ' for name, value in _certificate(folder).items()) + "export RAY_USE_TLS=1; " if folder else ""
    )
    done = encrypted.run(host, "sh", "-c", f'{shown} exec "$@"', "sh", "python", "-c", code, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr + encrypted.logs()
    return done.stdout


def test_a_job_runs_on_both_hosts(encrypted: Hosts) -> None:
    (encrypted.disk(0) / "job").mkdir()
    (encrypted.disk(0) / "job" / "job.py").write_text(ON_BOTH)
    submit = ["ray", "job", "submit", f"--address=http://127.0.0.1:{DASHBOARD_PORT}", "--working-dir", f"{DISK}/job"]
    done = encrypted.run(0, *submit, "--", "python", "job.py", timeout_s=300)
    assert done.returncode == 0, done.stdout + done.stderr + encrypted.logs()
    assert f"SEEN [(1000000.0, '{encrypted.address(0)}'), (1000000.0, '{encrypted.address(1)}')]" in done.stdout


@pytest.mark.parametrize(("certificate", "answer"), [("theirs", "good"), ("none", "foreign"), ("of another authority", "foreign")])
def test_only_a_certificate_of_the_clusters_authority_is_let_in(certificate: str, answer: str, encrypted: Hosts) -> None:
    folder = None
    if certificate != "none":
        folder = f"{DISK}/.sentdist_tls"
    if certificate == "of another authority":
        folder = f"{DISK}/another"
        make = f"export TLS=1 SENTDIST_TLS={folder}; . cluster/security.sh; use_tls {encrypted.address(1)} head"
        made = encrypted.run(1, "bash", "-c", make)
        assert made.returncode == 0, made.stderr
        shutil.copy(encrypted.disk(1) / ".sentdist_tls" / "ca.crt", encrypted.disk(1) / "another" / "ca.crt")  # it trusts the cluster
    assert f"ANSWER {answer}" in _python(encrypted, 1, ASK, f"{encrypted.address(0)}:{RAY_PORT}", folder=folder)


NODES = "from sentdist.execution.cluster.address import local_nodes; print('NODES', *(node.address for node in local_nodes()))"


def test_a_command_sees_the_nodes_of_its_own_network_only(encrypted: Hosts) -> None:
    head = f"{encrypted.address(0)}:{RAY_PORT}"
    assert _python(encrypted, 1, NODES, folder=None).splitlines()[-1] == f"NODES {head}"  # one node, though two run on this machine
    assert head not in [node.address for node in local_nodes()]
