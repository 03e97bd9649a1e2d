"""A process on the head that looks into the cluster for the soak: `python -m tests.faults.inspector`, a JSON question a line on stdin."""

from __future__ import annotations

import json
import logging
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import ray
from ray.util.placement_group import placement_group_table

from sentdist.run.bank_owner import bank_owner, list_banks, owner_name
from sentdist.run.connection import connect


def census() -> dict[str, Any]:
    """What the cluster reserves and holds just now."""
    groups = [group for group in placement_group_table().values() if group["state"] != "REMOVED"]
    return {
        "num_nodes": sum(node["Alive"] for node in ray.nodes()),
        "num_cpus": ray.cluster_resources().get("CPU", 0.0),
        "free_cpus": ray.available_resources().get("CPU", 0.0),
        "groups": [str(group["name"] or group["placement_group_id"]) for group in groups],
        "actors": sorted(named["name"] for named in ray.util.list_named_actors(all_namespaces=True)),
    }


def drop_banks(store: str) -> int:
    """Drop all banks of a store from memory; how many."""
    held = sum(facts.owner == owner_name(store) for facts in list_banks())
    if held:
        ray.kill(bank_owner(store), no_restart=False)
    return held


def end_owner(store: str) -> bool:
    """End the owner of a store's banks, as nobody will ask for them again; whether there was one."""
    if owner_name(store) not in census()["actors"]:
        return False
    ray.kill(bank_owner(store))
    return True


def answers(address: str) -> bool:
    """Whether a server answers."""
    try:
        with urllib.request.urlopen(address, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


QUESTIONS: dict[str, Callable[..., Any]] = {"census": census, "drop_banks": drop_banks, "end_owner": end_owner, "answers": answers}

if __name__ == "__main__":
    logging.disable(logging.ERROR)
    replies = sys.stdout
    sys.stdout = sys.stderr  # what libraries print must not stand between the replies
    connect()
    for line in sys.stdin:
        question, *arguments = json.loads(line)
        try:
            reply = {"value": QUESTIONS[question](*arguments)}
        except Exception as error:  # the soak decides what a refusal means
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies, flush=True)
