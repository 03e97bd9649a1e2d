"""A part of a page that is sentences, links, a table of texts and figures; a template says how it looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sentdist.report.style import Drawing


@dataclass(frozen=True, kw_only=True)
class Block:
    """A titled part of the page: sentences, links, a table, figures; in this order. links: name -> address."""

    title: str
    said: Sequence[str] = ()
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    drawings: Sequence[Drawing] = ()
    links: Mapping[str, str] = field(default_factory=dict)
