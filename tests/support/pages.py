"""Parts of pages alone, as the templates of reports make them."""

from __future__ import annotations

from sentdist.report.templating import environment


def html_part(name: str, *given: object) -> str:
    """What a macro of parts.html.jinja makes of these values."""
    return _part("html", name, given)


def markdown_part(name: str, *given: object) -> str:
    """What a macro of parts.md.jinja makes of these values."""
    return _part("md", name, given)


def _part(kind: str, name: str, given: tuple[object, ...]) -> str:
    module = environment(kind).get_template(f"parts.{kind}.jinja").make_module({"contents": []})
    return str(getattr(module, name)(*given))
