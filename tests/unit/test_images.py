"""What the images and the team's MLflow server promise: users survive a new container, nobody is root, no secret is copied or shown."""

from __future__ import annotations

import configparser
import re
from pathlib import Path, PurePosixPath

import pytest
import yaml

INFRA = Path(__file__).parents[2] / "infra"
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


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_no_secret_of_a_checkout_is_copied_into_an_image(path: Path) -> None:
    ignored = path.with_name("Dockerfile.dockerignore").read_text().splitlines()
    assert "*" in ignored or {".sentdist", "**/.env"} <= set(ignored)


def test_the_teams_server_has_what_passwords_need() -> None:
    assert '"mlflow[auth]"' in (INFRA / "mlflow" / "Dockerfile").read_text()
    pins = (INFRA / "constraints.txt").read_text()
    for name in ("Flask-WTF", "psycopg2-binary", "boto3", "mlflow"):
        assert re.search(rf"^{name}==", pins, re.MULTILINE), name
