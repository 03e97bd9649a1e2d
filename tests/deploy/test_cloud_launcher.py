"""`ray up cluster/cloud.yaml`: what Ray's launcher makes of the file, and the shell in which it runs its commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
LAUNCHED = ROOT / "cluster" / "cloud.yaml"


@pytest.fixture(scope="module")
def prepared() -> dict[str, Any]:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config: dict[str, Any] = prepare_config(yaml.safe_load(LAUNCHED.read_text()))
    validate_config(config)
    return config


def test_every_node_has_the_token_and_the_data(prepared: dict[str, Any]) -> None:
    assert {"~/.sentdist_ray_token", "/home/ray/data"} == set(prepared["file_mounts"])
    submit = next(line for line in LAUNCHED.read_text().splitlines() if "ray job submit" in line)
    assert "--data /home/ray/data" in submit
    starts = [*prepared["head_start_ray_commands"], *prepared["worker_start_ray_commands"]]
    assert all("RAY_AUTH_TOKEN_PATH=~/.sentdist_ray_token" in start for start in starts if "ray start" in start)


def test_the_head_may_start_machines(prepared: dict[str, Any]) -> None:
    """Ray gives a head the right to where the file names no profile: one that is named for S3 alone adds no node, ever."""
    from ray.autoscaler._private.aws.config import _configure_iam_role

    kept = _configure_iam_role(prepared)
    assert "IamInstanceProfile" not in kept.get("head_node", {}), "the launcher leaves the profile that is named as it is"
    profiles = {name: kind["node_config"]["IamInstanceProfile"]["Arn"] for name, kind in kept["available_node_types"].items()}
    assert profiles == {"head": "PROFILE_WITH_S3_AND_EC2", "gpu": "PROFILE_WITH_S3"}
