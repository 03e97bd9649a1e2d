"""What stands in cluster/kuberay: fields that KubeRay's resources really have, names that fit together, how far a cluster may grow."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sentdist.run.resources import nodes_to_come

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "cluster" / "kuberay"
FIELDS = json.loads(Path(__file__).with_name("kuberay_fields.json").read_text())
TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "boolean": (bool,), "object": (dict,), "number": (int, float), "integer|string": (int, str),
}  # fmt: skip
# Of other kinds only the pods are checked, and that nothing stands beside these.
PLAIN = {
    "Service": {"selector", "ports"}, "Deployment": {"replicas", "strategy", "selector", "template"},
    "PersistentVolumeClaim": {"accessModes", "resources"}, "PodMonitor": {"selector", "podMetricsEndpoints"}, "ServiceAccount": set(),
}  # fmt: skip


def _documents() -> list[dict[str, Any]]:
    files = [path for path in sorted(FOLDER.rglob("*.yaml")) if path.name != "kustomization.yaml"]
    return [one for path in files for one in yaml.safe_load_all(path.read_text())]


DOCUMENTS = _documents()


def _named(kind: str, name: str) -> dict[str, Any]:
    return next(one for one in DOCUMENTS if (one["kind"], one["metadata"]["name"]) == (kind, name))


def _with_redis() -> dict[str, Any]:
    """The cluster as kustomize makes it: a patch that adds fields."""
    cluster: dict[str, Any] = json.loads(json.dumps(_named("RayCluster", "sentdist")))
    for patch in yaml.safe_load((FOLDER / "with_redis" / "kustomization.yaml").read_text())["patches"]:
        assert (patch["target"]["kind"], patch["target"]["name"]) == ("RayCluster", "sentdist")
        for change in yaml.safe_load(patch["patch"]):
            assert change["op"] == "add"
            *above, last = change["path"].strip("/").split("/")
            place = cluster
            for step in above:
                place = place[step]
            place[last] = change["value"]
    return cluster


def _unknown(value: Any, fields: Any, place: str) -> Iterator[str]:
    """Places where a value does not fit its fields."""
    if isinstance(fields, str) and fields.startswith("#"):
        fields = FIELDS["shared"][fields]
    if isinstance(fields, str):
        fits = (
            value in fields.removeprefix("one of ").split()
            if fields.startswith("one of ")
            else isinstance(value, TYPES.get(fields, (object,)))
        )
        if not fits or (isinstance(value, bool) and fields not in ("boolean", "any")):
            yield f"{place}: {value!r} is no {fields}"
    elif isinstance(fields, list):
        if not isinstance(value, list):
            yield f"{place}: no list"
            return
        for number, one in enumerate(value):
            yield from _unknown(one, fields[0], f"{place}[{number}]")
    elif not isinstance(value, dict):
        yield f"{place}: no mapping"
    else:
        known = {name.rstrip("!"): inner for name, inner in fields.items()}
        yield from (f"{place}.{name} is missing" for name in fields if name.endswith("!") and name[:-1] not in value)
        for name, one in value.items():
            inner = known.get(name, known.get("*"))
            yield from [f"{place}.{name} is unknown"] if inner is None else _unknown(one, inner, f"{place}.{name}")


@pytest.mark.parametrize("document", [*DOCUMENTS, _with_redis()], ids=lambda one: f"{one['kind']} {one['metadata']['name']}")
def test_every_field_is_one_that_kubernetes_and_kuberay_know(document: dict[str, Any]) -> None:
    kind, spec = document["kind"], document.get("spec", {})
    if kind in ("RayCluster", "RayJob"):
        assert not list(_unknown(spec, FIELDS[kind], kind))
        return
    assert set(spec) <= PLAIN[kind]
    if "template" in spec:
        assert not list(_unknown(spec["template"], FIELDS["Pod"], kind))
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]


def test_what_is_referred_to_exists_or_is_made_by_a_command_that_stands_there() -> None:
    text = "".join(path.read_text() for path in FOLDER.rglob("*.yaml"))
    claims = {one["metadata"]["name"] for one in DOCUMENTS if one["kind"] == "PersistentVolumeClaim"}
    made = set(re.findall(r"create secret generic ([\w-]+)", text))

    def references(value: Any) -> Iterator[tuple[str, str]]:
        if isinstance(value, dict):
            for name, one in value.items():
                if name in ("secretRef", "secretKeyRef"):
                    yield "secret", one["name"]
                elif name in ("claimName", "secretName"):
                    yield name, one
                yield from references(one)
        elif isinstance(value, list):
            for one in value:
                yield from references(one)

    for kind, name in references([*DOCUMENTS, _with_redis()]):
        assert name in (claims if kind == "claimName" else made), (kind, name)
    for path in FOLDER.rglob("kustomization.yaml"):
        for name in yaml.safe_load(path.read_text())["resources"]:
            assert (path.parent / name).exists()


MAKES_A_SECRET = re.compile(r"(?:^#   (?:openssl|for) .*\|\n?)?(?:^#)?.*kubectl create secret generic .*", re.MULTILINE)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_secrets_are_made_without_a_word_of_them_in_a_command_line(tmp_path: Path) -> None:
    """By the very commands that stand there: every user of the machine could read the token while `kubectl` ran."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/sh\nprintf "%s " "$@" >>words\n[ "$5" = --from-env-file=.env ] || cat >"$4"\n')
    kubectl.chmod(0o755)
    commands = [one for path in sorted(FOLDER.rglob("*.yaml")) for one in MAKES_A_SECRET.findall(path.read_text())]
    for command in commands:
        lines = "\n".join(line.strip("# ") for line in command.splitlines())
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", lines], cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
        assert done.returncode == 0, lines
    words = (tmp_path / "words").read_text()
    assert not re.search(r"from-literal|[0-9a-f]{32}", words)
    token, redis = ((tmp_path / f"sentdist-{name}").read_text() for name in ("ray-token", "redis"))
    made = dict(line.split("=") for line in (tmp_path / "sentdist-mlflow").read_text().splitlines())
    assert all(re.fullmatch(r"[0-9a-f]{64}", secret) for secret in (token, redis, *made.values()))
    (container,) = _named("Deployment", "mlflow")["spec"]["template"]["spec"]["containers"]
    compose = (ROOT / "infra" / "mlflow" / "compose.yaml").read_text()
    assert set(made) == set(re.findall(r"\$\{(\w+):\?", compose)) and container["envFrom"] == [{"secretRef": {"name": "sentdist-mlflow"}}]


def test_a_sweep_counts_what_kuberay_may_add() -> None:
    cluster = _named("RayCluster", "sentdist")
    (container,) = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    (said,) = [one["value"] for one in container["env"] if one["name"] == "SENTDIST_GROWS_TO"]
    (workers,) = cluster["spec"]["workerGroupSpecs"]
    limits = workers["template"]["spec"]["containers"][0]["resources"]["limits"]
    to_come = nodes_to_come((), said)
    assert len(to_come) == workers["maxReplicas"]
    assert {(node.cpus, node.gpus) for node in to_come} == {(float(limits["cpu"]), float(limits["nvidia.com/gpu"]))}
