"""Parts of pages alone, as the templates of reports make them."""

from __future__ import annotations

from sentdist.report.templating import environment


def markdown_part(name: str, *given: object) -> str:
    """What a macro of parts.md.jinja makes of these values."""
    module = environment().get_template("parts.md.jinja").make_module()
    return str(getattr(module, name)(*given))
