"""What the images promise: nobody is root, no secret is copied or shown, and wheels are whole."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from docker.utils.build import exclude_paths

ROOT = Path(__file__).parents[2]
INFRA = ROOT / "infra"
COMPOSE = yaml.safe_load((INFRA / "mlflow" / "compose.yaml").read_text())
DOCKERFILES = [INFRA / "Dockerfile", INFRA / "mlflow" / "Dockerfile"]


def test_no_password_stands_in_a_command_line() -> None:
    for name, service in COMPOSE["services"].items():
        assert "PASSWORD" not in str(service.get("command", "")), name
        assert "SECRET" not in str(service.get("command", "")), name


SECRETS = (".sentdist/ray_token", ".sentdist/mlflow_password", ".venv/bin/python", ".git/config", ".env", "infra/mlflow/.env")
LEFT_OUT = (
    *SECRETS,
    "data/private.csv",
    "sentdist/plan/__pycache__/stage.pyc",
    "tests/unit/test_images.py",
    "notes.txt",
    "infra/LOG.md.swp/.env",
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


def test_filled_in_passwords_are_packed_into_no_job_and_no_commit() -> None:
    """Ray packs what git does not ignore."""
    ignored = subprocess.run(["git", "check-ignore", "-q", "infra/mlflow/.env"], cwd=ROOT, check=False)
    assert ignored.returncode == 0
