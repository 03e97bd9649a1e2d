"""What the images and the team's MLflow server promise: users survive a new container, nobody is root, no secret is copied or shown."""

from __future__ import annotations

import configparser
import re
import subprocess
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml
from docker.utils.build import exclude_paths

ROOT = Path(__file__).parents[2]
INFRA = ROOT / "infra"
COMPOSE = yaml.safe_load((INFRA / "mlflow" / "compose.yaml").read_text())
DOCKERFILES = [INFRA / "Dockerfile", INFRA / "mlflow" / "Dockerfile"]


def test_users_of_the_teams_server_lie_on_a_volume() -> None:
    settings = configparser.ConfigParser()
    settings.read(INFRA / "mlflow" / "basic_auth.ini")
    database = settings["mlflow"]["database_uri"].removeprefix("sqlite:///")
    volumes = dict(volume.split(":") for volume in COMPOSE["services"]["mlflow"]["volumes"])
    covered = {folder: name for name, folder in volumes.items()}
    folder = str(PurePosixPath(database).parent)
    assert covered[folder] in COMPOSE["volumes"]
    text = (INFRA / "mlflow" / "Dockerfile").read_text()
    assert re.search(rf"install -d -o mlflow -m 700 .*{folder}\b", text)  # its owner may write there
    assert "MLFLOW_AUTH_CONFIG_PATH=/etc/mlflow/basic_auth.ini" in text
    assert "COPY infra/mlflow/basic_auth.ini /etc/mlflow/basic_auth.ini" in text


def _pod() -> dict[str, Any]:
    """That of the team's server on Kubernetes."""
    (pod,) = [
        one["spec"]["template"]["spec"]
        for one in yaml.safe_load_all((ROOT / "cluster" / "kuberay" / "mlflow.yaml").read_text())
        if (one["kind"], one["metadata"]["name"]) == ("Deployment", "mlflow")
    ]
    return dict(pod)


def test_the_teams_server_is_not_process_1() -> None:
    """The system keeps from process 1 every signal that it has no handler for, and MLflow has none for SIGTERM."""
    assert COMPOSE["services"]["mlflow"].get("init") is True
    assert _pod().get("shareProcessNamespace") is True


def _team_servers() -> list[dict[str, str]]:
    """What the team's server finds in its environment: by compose, on Kubernetes."""
    pod = _pod()
    return [COMPOSE["services"]["mlflow"]["environment"], {one["name"]: one.get("value", "") for one in pod["containers"][0]["env"]}]


def test_the_teams_server_runs_no_jobs_of_mlflows() -> None:
    """Eight processes that nothing here uses: with them an idle server had 2.2 GiB, more than its pod may have, and without them 0.9."""
    assert [one.get("MLFLOW_SERVER_ENABLE_JOB_EXECUTION") for one in _team_servers()] == ["false", "false"]


def test_no_password_stands_in_a_command_line() -> None:
    for name, service in COMPOSE["services"].items():
        assert "PASSWORD" not in str(service.get("command", "")), name
        assert "SECRET" not in str(service.get("command", "")), name


def test_every_password_must_be_set() -> None:
    text = (INFRA / "mlflow" / "compose.yaml").read_text()
    for name in ("POSTGRES_PASSWORD", "MLFLOW_AUTH_ADMIN_PASSWORD", "MLFLOW_FLASK_SERVER_SECRET_KEY"):
        assert f"${{{name}:?" in text
        assert re.search(rf"^{name}=$", (INFRA / "mlflow" / "env.example").read_text(), re.MULTILINE)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_images_have_pins_and_no_root(path: Path) -> None:
    text = path.read_text()
    installs = [line for line in text.splitlines() if "pip install" in line]
    assert installs
    assert all(re.search(r" -c \S*constraints\.txt ", line) for line in installs)
    users = re.findall(r"^USER (\w+)", text, re.MULTILINE)
    assert users
    assert users[-1] != "root"


SECRETS = (".sentdist/ray_token", ".sentdist/mlflow_password", ".venv/bin/python", ".git/config", ".env", "infra/mlflow/.env")
LEFT_OUT = (
    *SECRETS,
    "data/private.csv",
    "sentdist/plan/__pycache__/stage.pyc",
    "tests/unit/test_images.py",
    "notes.txt",
    "infra/log/README.md.swp/.env",
)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_no_secret_of_a_checkout_gets_into_an_image(path: Path, tmp_path: Path) -> None:
    own = path.with_name("Dockerfile.dockerignore")  # wins over that of the root, where there is one
    patterns = (own if own.exists() else ROOT / ".dockerignore").read_text().splitlines()
    needed = (
        ("infra/constraints.txt", "infra/mlflow/basic_auth.ini")
        if own.exists()
        else ("pyproject.toml", "infra/constraints.txt", "sentdist/cli/__init__.py", "sentdist/report/templates/page.html.jinja")
    )
    for name in (*LEFT_OUT, *needed):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    sent = exclude_paths(str(tmp_path), [line for line in patterns if line and not line.startswith("#")])
    assert not sent & set(LEFT_OUT)
    assert set(needed) <= sent


def test_every_file_of_a_package_gets_into_a_wheel() -> None:
    given = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    for package, patterns in given.items():
        packed = {path for pattern in patterns for path in (ROOT / package).glob(pattern)}
        others = {path for path in (ROOT / package).rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc", ".md", ".json")}
        assert others and others <= packed, sorted(others - packed)[:3]
        assert all(list((ROOT / package).glob(pattern)) for pattern in patterns), "a pattern that fits nothing"


def test_the_nodes_image_has_no_tests_and_one_version() -> None:
    text = (INFRA / "Dockerfile").read_text()
    assert "[test]" not in text
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    files = [INFRA / "Dockerfile", *(ROOT / "cluster").rglob("*.yaml")]
    named = {found for file in files for found in re.findall(r"REGISTRY/sentdist:([\w.]+)", file.read_text())}
    assert named == {version}


def test_the_teams_server_has_what_passwords_need() -> None:
    assert '"mlflow[auth]"' in (INFRA / "mlflow" / "Dockerfile").read_text()
    pins = (INFRA / "constraints.txt").read_text()
    for name in ("Flask-WTF", "psycopg2-binary", "boto3", "mlflow"):
        assert re.search(rf"^{name}==", pins, re.MULTILINE), name


def test_filled_in_passwords_are_packed_into_no_job_and_no_commit() -> None:
    """Ray packs what git does not ignore."""
    ignored = subprocess.run(["git", "check-ignore", "-q", "infra/mlflow/.env"], cwd=ROOT, check=False)
    assert ignored.returncode == 0


def test_what_shows_the_load_of_gpus_is_installed_where_there_may_be_some() -> None:
    """MLflow asks nvidia-ml-py, and says nothing where it is missing."""
    (library,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["gpu"]
    assert re.search(rf"^{library.partition('>=')[0]}==", (INFRA / "constraints.txt").read_text(), re.MULTILINE)
    assert "-e '.[gpu]'" in (INFRA / "Dockerfile").read_text()
    assert 'nvidia-smi >/dev/null 2>&1; then extras="[gpu]"' in (INFRA / "quickstart.sh").read_text()


def test_a_container_sees_the_gpus_that_it_is_given() -> None:
    """NVIDIA's runtime takes both from the environment of the image: none without the first, no CUDA without the second."""
    text = (INFRA / "Dockerfile").read_text()
    assert "NVIDIA_VISIBLE_DEVICES=all" in text and "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in text
