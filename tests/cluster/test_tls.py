"""TLS=1 on two hosts that the scripts of cluster/ start: they work together, and whoever lacks a certificate of theirs is refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.cluster.hosts import DASHBOARD_PORT, DISK, RAY_PORT, Hosts, hosts, why_not

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(600)]  # 80 s on two cores that have other work, too
ON_BOTH = """
import numpy, ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
from sentdist.run.connection import connect

connect()

@ray.remote(num_cpus=1)
def total(array):
    return float(array.sum()), ray.util.get_node_ip_address()

array = ray.put(numpy.ones(1_000_000))  # large enough to go through the object store
on = [On(node["NodeID"], soft=False) for node in ray.nodes()]
print("SEEN", sorted(ray.get([total.options(scheduling_strategy=one).remote(array) for one in on])))
"""
ASK = "import sys; from sentdist.run.address import ask; print('ANSWER', ask(sys.argv[1]))"


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


def test_a_job_runs_on_both_hosts(encrypted: Hosts) -> None:
    (encrypted.disk(0) / "job").mkdir()
    (encrypted.disk(0) / "job" / "job.py").write_text(ON_BOTH)
    submit = ["ray", "job", "submit", f"--address=http://127.0.0.1:{DASHBOARD_PORT}", "--working-dir", f"{DISK}/job"]
    done = encrypted.run(0, *submit, "--", "python", "job.py", timeout_s=300)
    assert done.returncode == 0, done.stdout + done.stderr + encrypted.logs()
    assert f"SEEN [(1000000.0, '{encrypted.address(0)}'), (1000000.0, '{encrypted.address(1)}')]" in done.stdout


def test_only_a_certificate_of_the_clusters_authority_is_let_in(encrypted: Hosts) -> None:
    make = f"export TLS=1 SENTDIST_TLS={DISK}/another; . cluster/security.sh; use_tls {encrypted.address(1)} head"
    made = encrypted.run(1, "bash", "-c", make)
    assert made.returncode == 0, made.stderr
    shutil.copy(encrypted.disk(1) / ".sentdist_tls" / "ca.crt", encrypted.disk(1) / "another" / "ca.crt")  # it trusts the cluster
    files = {"SERVER_CERT": "$(hostname).crt", "SERVER_KEY": "$(hostname).key", "CA_CERT": "ca.crt"}
    for folder, answer in ((f"{DISK}/.sentdist_tls", "good"), (None, "foreign"), (f"{DISK}/another", "foreign")):
        shown = " ".join(f'RAY_TLS_{name}="{folder}/{file}"' for name, file in files.items())
        variables = f"export RAY_USE_TLS=1 {shown};" if folder else ""
        asked = ("python", "-c", ASK, f"{encrypted.address(0)}:{RAY_PORT}")
        done = encrypted.run(1, "sh", "-c", f'{variables} exec "$@"', "sh", *asked)
        assert done.returncode == 0 and f"ANSWER {answer}" in done.stdout, done.stdout + done.stderr + encrypted.logs()
