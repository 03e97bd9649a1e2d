"""Open the store and the data root, parse how an encoder is named, and choose its prompts. No torch, no Ray."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from sentdist.errors import DataError, EncoderError, StoreError, brief, did_you_mean, listed
from sentdist.learning.encoder.declared import CONFIG_OF_PROMPTS, REMEDY, Checkpoint
from sentdist.recipe.specs import PRECISIONS, AskedPrompts, EncoderUse

if TYPE_CHECKING:
    from sentdist.store.store import ArtifactStore


DEFAULT_STORE = ".sentdist/store"
IN_A_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # Ray sets it for what `ray job submit` starts


def store_root(store: str | Path | None) -> str:
    """Return the address of the store: that given, SENTDIST_STORE, or .sentdist/store here (in a Ray job below the home folder).

    Raises:
        StoreError: a file; in a job a relative path, since Ray deletes the working directory.
    """
    named = str(store or os.environ.get("SENTDIST_STORE") or "")
    if not named:
        return str(Path.home() / DEFAULT_STORE if IN_A_JOB in os.environ else Path(DEFAULT_STORE).absolute())
    if "://" not in named and Path(named).expanduser().is_file():
        raise StoreError(where=f"--store {named}", found="a file", expected="a folder, which is made if missing", remedy="Name a folder.")
    if IN_A_JOB in os.environ and "://" not in named and not Path(named).expanduser().is_absolute():
        raise StoreError(
            where=f"--store {named}", found="a folder in the job's working directory, which Ray deletes", expected="a permanent folder",
            remedy="Give an absolute path, or an address such as s3://bucket/store.",
        )  # fmt: skip
    return named


def data_root(data: str | Path | None) -> Path | None:
    """Return the data root: that given, or SENTDIST_DATA; an address becomes its local mirror, filled when files are named."""
    named = str(data or os.environ.get("SENTDIST_DATA") or "")
    if "://" not in named:
        return Path(named).expanduser() if named else None
    from sentdist.data.mirror import data_folder

    return data_folder(named)


def open_store(store: str | Path | None) -> ArtifactStore:
    """Open the store at the address that `store_root` returns."""
    from sentdist.store.store import ArtifactStore

    root = store_root(store)
    return ArtifactStore(root if "://" in root else str(Path(root).expanduser().absolute()))


PROMPTS = {"prompt": "sentence", "query_prompt": "query", "document_prompt": "document"}  # key -> field of AskedPrompts
ENCODER_KEYS = ("revision", "pooling", "max_length", "precision", "normalize", *PROMPTS)


def parse_encoder(value: str) -> EncoderUse:
    """Parse `ENCODER?key=value&…`, such as `minilm-l6?max_length=128&pooling=cls`.

    Values are percent-decoded, so that a prompt may hold `%26`.

    Raises:
        EncoderError: an unknown key, a repeated key or an invalid value.
    """
    name, mark, settings = value.partition("?")
    fields: dict[str, Any] = {}
    for pair in settings.split("&") if mark else ():
        key, equals, text = pair.partition("=")
        where, expected = f"encoder {value}: {key}", "a value"
        if key not in ENCODER_KEYS or key in fields:
            expected = f"each of {listed(ENCODER_KEYS)} once at most"
            raise EncoderError(where=where, found=key, expected=expected, remedy=did_you_mean(key, ENCODER_KEYS, "Correct it."))
        text = unquote(text)
        fields[key] = text if equals else None
        if key == "max_length":
            fields[key], expected = int(text) if text.isdecimal() and int(text) else None, "a whole number, 1 or more"
        elif key == "normalize":
            fields[key], expected = {"true": True, "false": False}.get(text.lower()), "true or false"
        elif key == "precision" and text not in PRECISIONS:
            fields[key], expected = None, f"one of {', '.join(PRECISIONS)}"
        if fields[key] is None or (fields[key] == "" and key not in PROMPTS):
            raise EncoderError(where=where, found=brief(text), expected=expected, remedy="Correct it.")
    prompts = {role: fields.pop(key) for key, role in PROMPTS.items() if key in fields}
    return EncoderUse(checkpoint=name, prompts=AskedPrompts(**prompts), **fields)


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


def encoder_use(value: str, store: str | Path | None) -> EncoderUse:
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
        folder, texts, default = checkpoint.folder, checkpoint.prompts, checkpoint.default_prompt
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
        return self._prompt("sentence", asked, self.asked.sentence, self.default, "default prompt", "prompt")

    def of_queries(self, asked: str | None = None) -> Prompt:
        """Return the prompt of queries, by default that of `SentenceTransformer.encode_query`; see `of_sentences`."""
        return self._prompt("query", asked, self.asked.query, OF_QUERIES, "prompt of queries", "query_prompt")

    def of_documents(self, asked: str | None = None) -> Prompt:
        """Return the prompt of documents, by default that of `SentenceTransformer.encode_document`; see `of_sentences`."""
        return self._prompt("document", asked, self.asked.document, OF_DOCUMENTS, "prompt of documents", "document_prompt")

    def _prompt(self, each: str, asked: str | None, opened_with: str | None, name: str | None, role: str, key: str) -> Prompt:
        named = [one for one, text in self.texts.items() if text]
        asked = opened_with if asked is None else asked
        if asked is None:
            text = self.texts.get(name or "", "")
            why = f"its {role}, {name}" if text else f"it has no {role}; its prompts are {listed(named)}: choose one by {key}"
        elif asked in self.texts:
            text, why = self.texts[asked], f"its prompt {asked}, as asked"
        elif A_NAME.fullmatch(asked):
            raise DataError(
                where=f"{self.encoder}: {key}", found=brief(asked),
                expected=f"the name of one of its prompts ({listed(list(self.texts)) or 'there are none'}), or a text",
                remedy=did_you_mean(asked, self.texts, "End a text of one word with a space or a colon: 'query: '."),
            )  # fmt: skip
        else:
            text, why = asked, "as asked"
        if not text and not named:
            return Prompt(text="", line="")
        return Prompt(text=text, line=f"{self.encoder}: {f'prompt {brief(text)}' if text else 'no prompt'} before each {each} ({why}).")
