"""Open the store and encoders by their names, and choose prompts. No torch, no Ray."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.data.cells import is_utf8
from sentdist.errors import DataError, EncoderError, StoreError, brief, did_you_mean, listed, typed
from sentdist.inference.encoder_value import parse_encoder
from sentdist.learning.encoder.declared import CONFIG_OF_PROMPTS, REMEDY, Checkpoint
from sentdist.recipe.specs import AskedPrompts, EncoderUse

if TYPE_CHECKING:
    from sentdist.store.store import ArtifactStore


DEFAULT_STORE = ".sentdist/store"
IN_A_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # Ray sets it for what `ray job submit` starts


def store_root(store: str | None) -> str:
    """Return the address of the store: by default .sentdist/store here, in a Ray job below the home folder.

    Raises:
        StoreError: a file; in a job a relative path, since Ray deletes the working directory.
    """
    default = Path.home() / DEFAULT_STORE if IN_A_JOB in os.environ else Path(DEFAULT_STORE)
    if store and "://" not in store and _is_file(store):
        raise StoreError(where=f"--store {store}", found="a file", expected="a folder, which is made if missing", remedy="Name a folder.")
    if store and IN_A_JOB in os.environ and "://" not in store and not Path(store).expanduser().is_absolute():
        raise StoreError(
            where=f"--store {store}", found="a folder in the job's working directory, which Ray deletes", expected="a permanent folder",
            remedy="Give an absolute path, or an address such as s3://bucket/store.",
        )  # fmt: skip
    return store or str(default.absolute())


def _is_file(store: str) -> bool:
    from sentdist.store.access import reading

    path = Path(store).expanduser()
    with reading(str(path), awaited=True):  # the first access to a file server, which may be unavailable
        return path.is_file()


def open_store(store: str | None) -> ArtifactStore:
    """Open the store at this address, or the default one."""
    from sentdist.store.store import ArtifactStore

    root = store_root(store)
    return ArtifactStore(root if "://" in root else str(Path(root).expanduser().absolute()))


def encoder_folder(encoder: str, store: ArtifactStore) -> str:
    """Return the encoder folder of a training named by key or label; other names are returned unchanged."""
    if Path(encoder).exists():
        return encoder
    is_hex = all(letter in "0123456789abcdef" for letter in encoder)
    if (is_hex and len(encoder) >= 6) or encoder.startswith("train/"):
        return str(store.folder(store.find(encoder)))
    if _is_training(encoder, store, is_hex=is_hex):  # its scores have that label, too
        return str(store.folder(store.find(encoder, kind="train")))
    return encoder


def _is_training(encoder: str, store: ArtifactStore, *, is_hex: bool) -> bool:
    """Whether a training has this label (or its beginning up to a hyphen) or key prefix; a short prefix may also name a checkpoint."""
    if "/" in encoder:
        return False
    return any(
        encoder in found.record.shown_names
        or f"{found.record.label}-".startswith(f"{encoder}-")
        or (is_hex and found.key.startswith(encoder))
        for found in store.artifacts("train")
    )


def encoder_use(value: str, store: str | None) -> EncoderUse:
    """Return the use of an encoder named as `parse_encoder` reads it, or by a training's key; does not load it.

    Raises:
        EncoderError: as `parse_encoder`. StoreError: a key of no or several artifacts.
    """
    use = parse_encoder(value)
    return replace(use, checkpoint=encoder_folder(use.checkpoint, open_store(store)))


# A single word is a name: as a text it would merge with the first word of each sentence.
A_NAME = re.compile(r"[A-Za-z0-9_.-]+")
# Prompt names of SentenceTransformer.encode_query and encode_document; without such a prompt they use none, not the default one.
# encode_document also lists "passage" and "corpus", but finds "document" first (sentence-transformers 6.2).
OF_QUERIES, OF_DOCUMENTS = "query", "document"


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """The prompt before each sentence."""

    text: str  # "": none
    line: str  # which prompt and why, to be printed; "": nothing to print


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """The prompts of an encoder."""

    encoder: str  # its name in messages
    folder: Path
    texts: Mapping[str, str]  # name -> text
    default: str | None  # name of the prompt that `SentenceTransformer.encode` uses by default
    asked: AskedPrompts  # with the encoder's name

    @classmethod
    def of(cls, checkpoint: Checkpoint, use: EncoderUse) -> Prompts:
        """Return the prompts that a folder declares, and those requested by the use.

        Raises:
            EncoderError: prompts that are not texts, or a default that is none of them.
        """
        folder, texts, default = checkpoint.folder, dict(checkpoint.prompts), checkpoint.default_prompt
        if default is not None and default not in {OF_QUERIES, OF_DOCUMENTS, *texts}:
            raise EncoderError(
                where=f"{folder / CONFIG_OF_PROMPTS}: default_prompt_name", found=brief(default),
                expected=f"one of its prompts ({listed(list(texts)) or 'it has none'})", remedy=REMEDY,
            )  # fmt: skip
        return cls(encoder=f"encoder {use.checkpoint}", folder=folder, texts=texts, default=default, asked=use.prompts)

    def of_sentences(self, asked: str | None = None) -> Prompt:
        """Return the prompt of plain sentences, as `SentenceTransformer.encode` does.

        Args:
            asked: a name, a text, or "" for none; None: that requested with the encoder, else the folder's default prompt.

        Raises:
            DataError: an unknown name, or a prompt that is not a text.
        """
        return self._prompt("sentence", _first(asked, self.asked.sentence), self.default, "default prompt", "prompt")

    def of_queries(self, asked: str | None = None) -> Prompt:
        """Return the prompt of queries, by default that of `SentenceTransformer.encode_query`; see `of_sentences`."""
        return self._prompt("query", _first(asked, self.asked.query), OF_QUERIES, "prompt of queries", "query_prompt")

    def of_documents(self, asked: str | None = None) -> Prompt:
        """Return the prompt of documents, by default that of `SentenceTransformer.encode_document`; see `of_sentences`."""
        return self._prompt("document", _first(asked, self.asked.document), OF_DOCUMENTS, "prompt of documents", "document_prompt")

    def _prompt(self, each: str, asked: str | None, name: str | None, role: str, key: str) -> Prompt:
        if asked is None:
            text, why = self.texts.get(name or "", ""), f"its {role}, {name}"
            if not text:
                why = f"it has no {role}; its prompts are {listed(self._not_empty)}: choose one by {key}"
        else:
            text, why = self._asked(asked, key)
        if text:
            return Prompt(text=text, line=f"{self.encoder}: prompt {brief(text)} before each {each} ({why}).")
        return Prompt(text="", line=f"{self.encoder}: no prompt before each {each} ({why})." if self._not_empty else "")

    @property
    def _not_empty(self) -> list[str]:
        return [name for name, text in self.texts.items() if text]

    def _asked(self, asked: str, key: str) -> tuple[str, str]:
        """The requested text, and the reason for it."""
        if not isinstance(asked, str) or not is_utf8(asked):
            found = "a lone surrogate" if isinstance(asked, str) else typed(asked)
            raise DataError(where=f"{self.encoder}: {key}", found=found, expected="the name of a prompt, or its text", remedy="Give a str.")
        if asked in self.texts:
            return self.texts[asked], f"its prompt {asked}, as asked"
        if A_NAME.fullmatch(asked):
            names = listed(list(self.texts))
            raise DataError(
                where=f"{self.encoder}: {key}", found=brief(asked),
                expected=f"the name of one of its prompts ({names or 'there are none'}), or a text",
                remedy=did_you_mean(asked, self.texts, "End a text of one word with a space or a colon: 'query: '."),
            )  # fmt: skip
        return asked, "as asked"


def _first(*values: str | None) -> str | None:
    return next((value for value in values if value is not None), None)
