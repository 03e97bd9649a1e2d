"""One work that something here rests on, as people and BibTeX write it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

EntryType = Literal["article", "inproceedings", "misc"]


@dataclass(frozen=True, kw_only=True)
class Citation:
    """One work; `role` is what it was used for here, `where` its journal or proceedings, `url` a lasting address.
    gave: patterns (fnmatch) of the names of data sources and checkpoints that are its, in lower case."""

    key: str
    kind: EntryType
    authors: tuple[str, ...]
    title: str
    where: str
    year: int
    url: str
    role: str
    gave: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        """The first author's last name and the year."""
        others = " et al." if len(self.authors) > 2 else f" & {self.authors[1].split()[-1]}" if len(self.authors) == 2 else ""
        return f"{self.authors[0].split()[-1]}{others} {self.year}"

    def plain(self) -> str:
        """One line for people."""
        names = self.authors if len(self.authors) <= 3 else (self.authors[0], "others")
        joined = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
        return f"{joined} ({self.year}). {self.title}. {self.where}. {self.url}"

    def bibtex(self) -> str:
        """One BibTeX entry."""
        field = {"article": "journal", "inproceedings": "booktitle", "misc": "howpublished"}[self.kind]
        # Double braces keep the capitals of names such as SimCSE.
        lines = (
            f"  author = {{{' and '.join(self.authors)}}}",
            f"  title = {{{{{self.title}}}}}",
            f"  {field} = {{{self.where}}}",
            f"  year = {{{self.year}}}",
            f"  url = {{{self.url}}}",
        )
        return f"@{self.kind}{{{self.key},\n" + ",\n".join(lines) + "\n}"
