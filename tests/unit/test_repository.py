"""The repository as people expect one: pages whose links lead somewhere, licence and citation, and checks that call what a person calls."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from sentdist.families import DECODERS, FLAT_FAMILIES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SHELVES = sorted(folder for folder in (ROOT / "infra" / "benchmarks").iterdir() if folder.is_dir())


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


def test_the_first_page_is_short_and_has_what_a_visitor_looks_for() -> None:
    assert len(README.encode()) < 9_000
    assert not [number for number, line in enumerate(README.splitlines(), 1) if len(line) > 160]
    contents = re.findall(r"\]\(#([\w-]+)\)", README.partition("\n## ")[0])
    headings = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^## (.+)$", README, re.MULTILINE)]
    assert contents == headings
    assert re.search(r"^!\[.+\]\(infra/.+\)$", README, re.MULTILINE), "a picture"


def test_the_drawing_has_every_package() -> None:
    drawing = re.search(r"^```\n(.*?)^```", README.partition("\n## The idea\n")[2], re.MULTILINE | re.DOTALL)
    packages = {path.parent.name for path in (ROOT / "sentdist").glob("*/__init__.py")}
    assert drawing and packages <= set(re.findall(r"\w+", drawing[1]))


def test_unit_tests_have_a_folder_for_every_package_and_for_nothing_else() -> None:
    packages = {path.parent.name for path in (ROOT / "sentdist").glob("*/__init__.py")}
    assert {path.parent.name for path in (ROOT / "tests" / "unit").glob("*/test_*.py")} == packages | {"rayjobs"}


def test_every_folder_of_the_top_has_a_page() -> None:
    for folder in ("cluster", "infra", "rayjobs/recipes", "tests"):
        assert (ROOT / folder / "README.md").exists()
        assert f"({folder}/README.md)" in README


@pytest.mark.parametrize("folder", ["cluster", "infra", "rayjobs/recipes", "tests"])
def test_a_page_is_read_in_one_sitting_and_leads_to_those_beside_it(folder: str) -> None:
    first = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    others = [page for page in (ROOT / folder).glob("*.md") if page.name != "README.md"]
    assert not [page.name for page in others if f"]({page.name}" not in first]
    lists = {"CHANGELOG.md"}  # which grows
    assert not [page.name for page in (ROOT / folder).glob("*.md") if len(page.read_bytes()) > 10_000 and page.name not in lists]


def test_every_recipe_is_listed() -> None:
    page = (ROOT / "rayjobs" / "recipes" / "README.md").read_text(encoding="utf-8")
    recipes = sorted((ROOT / "rayjobs" / "recipes").rglob("*.yaml"))
    assert not [path.name for path in recipes if path.parent.name != "options" and f"{path.name}`" not in page]


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


def test_hosted_checks_and_hooks_call_what_a_person_calls() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/checks.yml").read_text())
    assert "github.event_name" in workflow["concurrency"]["group"], "a push would end the tests of the night"
    steps = workflow["jobs"]["checks"]["steps"]
    assert any(step.get("run", "").startswith(".ci/run") for step in steps)
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert [hook["entry"] for hook in hooks] == ["ruff format", "ruff check", "mypy"]
    for form in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        assert yaml.safe_load(form.read_text())


def test_the_changelog_has_dates_and_known_headings() -> None:
    text = (ROOT / "infra" / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert versions[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}", version) for version in versions[1:])
    assert versions[1].startswith(f"[{PROJECT['version']}]")
    known = {"Added", "Changed", "Changed results", "Deprecated", "Removed", "Fixed", "Security"}
    for section in text.split("\n## ")[1:]:
        headings = re.findall(r"^### (.+)$", section, re.MULTILINE)
        assert set(headings) <= known and len(headings) == len(set(headings))
        assert section.partition("\n")[2].lstrip().startswith("### "), "every entry stands under a heading"


def test_scores_of_a_recipe_stand_in_the_report_that_it_names() -> None:
    """Of two sweeps that were run again the recipes named the scores of before."""
    checked = 0
    for path in sorted((ROOT / "rayjobs" / "recipes").rglob("*.yaml")):
        score = re.search(r"^#   score(.*\n(?:#     .*\n)*)", path.read_text(encoding="utf-8"), re.MULTILINE)
        shelf = score and re.search(r"infra/benchmarks/(\w+)", score[1])
        if score and shelf:
            report = (ROOT / shelf[0] / "report.md").read_text(encoding="utf-8")
            checked += len(scores := re.findall(r"\d\d\.\d\d", score[1]))
            assert not [one for one in scores if one not in report], path.name
    assert checked > 40


@pytest.mark.parametrize("shelf", SHELVES, ids=lambda path: path.name)
def test_a_sweep_keeps_its_page_and_says_how_it_is_made_again(shelf: Path) -> None:
    names = {path.name for path in shelf.iterdir() if path.suffix not in (".html", ".png")}
    assert {"run.md", "report.md", "table1.csv"} <= names
    figures = names - {"run.md", "report.md", "table1.csv"}
    assert 1 <= len(figures) <= 2 and all(name.endswith(".svg") for name in figures)
    run = (shelf / "run.md").read_text(encoding="utf-8")
    assert f"`sentdist report {shelf.name} --out DIR`" in run
    assert re.search(r"^- command: `", run, re.MULTILINE)


def test_the_page_on_encoders_names_the_families_that_run_without_padding() -> None:
    page = (ROOT / "rayjobs" / "recipes" / "data.md").read_text(encoding="utf-8")
    first, _, rest = page.partition("Without padding, all sentences")[2].partition("and the decoders")
    decoders = rest.partition("with their windows")[0]
    encoders = first.partition("`model_type`")[2]
    found = [set(re.findall(r"`([^`]+)`", part)) for part in (encoders, decoders)]
    assert found == [set(FLAT_FAMILIES) - set(DECODERS), set(DECODERS)]
