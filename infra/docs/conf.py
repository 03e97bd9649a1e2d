"""Settings of Sphinx for these pages; `bash infra/docs.sh` builds them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))

import reference

project = "sentdist"
copyright = "The sentdist authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "sentdist"
html_show_sphinx = False
myst_heading_anchors = 3
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
add_module_names = False
napoleon_custom_sections = ["Shapes"]

reference.write_pages(Path(__file__).parent / "generated")


def setup(app: Sphinx) -> None:
    """Copy the Markdown files outside this folder that pages link to: myst would search them among the pages."""
    app.connect("source-read", _copy_linked_files)


def _copy_linked_files(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = re.sub(r"\[([^\]`]+)\]\(((?:\.\./)+[^)#]+\.md)\)", r"{download}`\1 <\2>`", source[0])
