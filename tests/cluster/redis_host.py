"""A real Redis on a host of its own, which keeps the tables of Ray's head as `cluster/kuberay/with_redis` has them kept."""

from __future__ import annotations

import secrets
import shutil
from dataclasses import dataclass

from tests.cluster.hosts import Hosts
from tests.support.waiting import wait_for

HOST = 9  # its number among the hosts
PORT = 6379
PATIENT_S = 600  # KubeRay gives worker pods so long to find the head again, and the head Ray's own 60 s


@dataclass(frozen=True, kw_only=True)
class Redis:
    """Where it answers (host:port), and with which password."""

    address: str
    password: str

    @property
    def options(self) -> tuple[str, ...]:
        """Of `ray start --head`, as KubeRay gives them."""
        return ("--redis-password", self.password)

    @property
    def environment(self) -> dict[str, str]:
        """Of the head, as KubeRay sets it; there the name space is the cluster's UID."""
        return {"RAY_REDIS_ADDRESS": self.address, "RAY_external_storage_namespace": "one-cluster"}


def why_no_redis() -> str | None:
    """The reason for which this machine cannot have one; None if it can."""
    found = shutil.which("redis-server") and shutil.which("redis-cli")
    return None if found else "Redis is not there (Debian: apt-get install --no-install-recommends redis-server)"


def start_redis(hosts: Hosts) -> Redis:
    """With the settings of redis.yaml; it ends with the hosts."""
    redis = Redis(address=f"{hosts.wire(HOST)}:{PORT}", password=secrets.token_hex(16))
    settings = hosts.folder / "redis.conf"
    settings.write_text(f"requirepass {redis.password}\nappendonly yes\ndir {hosts.disk(HOST)}\n")
    hosts.start_server(HOST, "redis-server", str(settings))
    wait_for(lambda: _asked(hosts, redis, "ping") == "PONG", what="Redis")
    return redis


def _asked(hosts: Hosts, redis: Redis, *question: str) -> str:
    host = redis.address.partition(":")[0]
    done = hosts.run(HOST, "env", f"REDISCLI_AUTH={redis.password}", "redis-cli", "-h", host, *question)
    return done.stdout.strip()
