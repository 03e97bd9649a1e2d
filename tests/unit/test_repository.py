"""The repository as people expect one: pages whose links lead somewhere, licence and citation, and checks that call what a person calls."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import yaml

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
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            found = (page.parent / name).resolve() if name else page
            if not found.exists() or (anchor and anchor not in _anchors(found)):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken


def test_every_command_is_listed() -> None:
    from sentdist.cli.application import COMMANDS

    page = (ROOT / "rayjobs" / "recipes" / "commands.md").read_text(encoding="utf-8")
    assert not [command.__name__ for command in COMMANDS if f"`sentdist {command.__name__}" not in page]


def test_licence_and_citation_agree_with_the_package() -> None:
    licence = (ROOT / "LICENSE").read_text()
    assert "Apache License" in licence and "Version 2.0" in licence and len(licence.splitlines()) > 200
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["license"], str(citation["version"])) == (PROJECT["license"], PROJECT["version"])
    assert citation["cff-version"] == "1.2.0" and citation["title"] and citation["authors"] and citation["message"]
