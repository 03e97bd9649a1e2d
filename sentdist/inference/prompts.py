"""Prompts: what stands before each sentence that an encoder reads, as its folder names it for sentence-transformers or as it is asked for.

Without torch: a mistake is reported before an encoder is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sentdist.data.cells import is_utf8
from sentdist.errors import DataError, EncoderError, brief, listed, typed
from sentdist.learning.encoder.declared import CONFIG_OF_PROMPTS, REMEDY, named_prompts
from sentdist.spelling import did_you_mean

# A word alone is a name: as a text it would run into the first word of each sentence.
A_NAME = re.compile(r"[A-Za-z0-9_.-]+")
# The names that SentenceTransformer.encode_query and encode_document take; where a folder has none of that name, they take no prompt, not
# the default one. encode_document lists "passage" and "corpus", too, but finds its own "document" first (sentence-transformers 6.2).
OF_QUERIES, OF_DOCUMENTS = "query", "document"


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """text: what stands before each sentence; "": nothing. line: which it is and why, for people; "": nothing to say."""

    text: str
    line: str


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """The prompts of an encoder. encoder: what it is called in
    sentences. texts: name to text, as its folder has them. default: the name of the one that
    `SentenceTransformer.encode` takes by itself."""

    encoder: str
    folder: Path
    texts: Mapping[str, str]
    default: str | None

    @classmethod
    def of(cls, folder: Path, *, encoder: str) -> Prompts:
        """Those that a folder declares; none where it does not.

        Raises:
            EncoderError: prompts that are no texts, a default that is none of them.
        """
        texts, default = named_prompts(folder)
        if default is not None and default not in {OF_QUERIES, OF_DOCUMENTS, *texts}:
            raise EncoderError(
                where=f"{folder / CONFIG_OF_PROMPTS}: default_prompt_name",
                found=brief(default),
                expected=f"one of its prompts ({listed(list(texts)) or 'it has none'})",
                remedy=REMEDY,
            )
        return cls(encoder=encoder, folder=folder, texts=texts, default=default)

    def of_sentences(self, asked: str | None, *, option: str = "--prompt") -> Prompt:
        """The prompt of sentences of no kind, as `SentenceTransformer.encode` has it. asked: a name, a text, "" for none; None: the default
        prompt of the folder. option: what it was asked by.

        Raises:
            DataError: a name that there is not, a prompt that is no text.
        """
        return self._prompt("each sentence", asked, self.default, "default prompt", option)

    def of_queries(self, asked: str | None, *, option: str = "--query-prompt") -> Prompt:
        """As `of_sentences`, of queries: by itself that which `SentenceTransformer.encode_query` takes."""
        return self._prompt("each query", asked, OF_QUERIES, "prompt of queries", option)

    def of_documents(self, asked: str | None, *, option: str = "--document-prompt") -> Prompt:
        """As `of_sentences`, of documents: by itself that which `SentenceTransformer.encode_document` takes."""
        return self._prompt("each document", asked, OF_DOCUMENTS, "prompt of documents", option)

    def _prompt(self, before: str, asked: str | None, name: str | None, role: str, option: str) -> Prompt:
        if asked is None:
            text, why = self.texts.get(name or "", ""), f"its {role}, {name}"
            if not text:
                why = f"it has no {role}; its prompts are {listed(self._not_empty)}: see {option}"
        else:
            text, why = self._asked(asked, option)
        if text:
            return Prompt(text=text, line=f"{self.encoder}: {brief(text)} stands before {before} ({why}).")
        return Prompt(text="", line=f"{self.encoder}: no prompt before {before} ({why})." if self._not_empty else "")

    @property
    def _not_empty(self) -> list[str]:
        return [name for name, text in self.texts.items() if text]

    def _asked(self, asked: str, option: str) -> tuple[str, str]:
        """The text that is asked for, and why it is that one."""
        if not isinstance(asked, str) or not is_utf8(asked):
            found = "half of a surrogate pair" if isinstance(asked, str) else typed(asked)
            raise DataError(where=option, found=found, expected="the name of a prompt, or its text", remedy="Give a str.")
        if asked in self.texts:
            return self.texts[asked], f"its prompt {asked}, as asked"
        if A_NAME.fullmatch(asked):
            names = listed(list(self.texts))
            raise DataError(
                where=option,
                found=brief(asked),
                expected=f"the name of a prompt of it ({names or 'there is none'}), or a text",
                remedy=did_you_mean(asked, self.texts, "A text that is one word ends in a space or a colon: 'query: '."),
            )
        return asked, "as asked"
