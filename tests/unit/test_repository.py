"""The repository as people expect one: links that lead somewhere, licence, versions, images without secrets."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from docker.utils.build import exclude_paths

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _pages() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def _anchors(page: Path) -> set[str]:
    """The fragments that a page's headings give on GitHub."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_between_pages_leads_somewhere() -> None:
    broken = []
    for page in _pages():
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:|generated/", target):  # those pages are made by infra/docs.sh, which checks their links
                continue
            name, _, anchor = target.partition("#")
            found = (page.parent / name).resolve() if name else page
            if not found.exists() or (anchor and anchor not in _anchors(found)):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken


def test_licence_and_citation_agree_with_the_package() -> None:
    licence = (ROOT / "LICENSE").read_text()
    assert "Apache License" in licence and "Version 2.0" in licence and len(licence.splitlines()) > 200
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["license"], str(citation["version"])) == (PROJECT["license"], PROJECT["version"])
    assert citation["cff-version"] == "1.2.0" and citation["title"] and citation["authors"] and citation["message"]


INFRA = ROOT / "infra"
DOCKERFILES = [INFRA / "Dockerfile", INFRA / "mlflow" / "Dockerfile"]


SECRETS = (".sentdist/ray_token", ".sentdist/mlflow_password", ".venv/bin/python", ".git/config", ".env", "infra/mlflow/.env")
LEFT_OUT = (
    *SECRETS,
    "data/private.csv",
    "sentdist/recipe/__pycache__/stage.pyc",
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
