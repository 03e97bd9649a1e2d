"""Export encoders: folders for sentence-transformers, ONNX graphs, uploads to the Hugging Face Hub; average weights."""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sentdist.errors import DataError, EncoderError, hub_trouble
from sentdist.learning.encoder.declared import Checkpoint
from sentdist.learning.encoder.find_checkpoint import find_checkpoint
from sentdist.recipe.specs import EncoderUse
from sentdist.store.record import OWN_FILES

# Imported inside functions: huggingface_hub, which takes half a second, and torch, before which mistakes are reported.


def send_folder(folder: Path, name: str) -> str:
    """Upload a folder in one commit, create a private repository if needed, and return its address. Uses the token of `hf auth login`.

    Raises:
        EncoderError: no login, no permission, no network; the repository's files are unchanged.
    """
    from huggingface_hub import HfApi

    check_name(name)
    try:
        api = HfApi()
        address = api.create_repo(name, private=True, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, commit_message="An encoder and its card, by sentdist")
    except Exception as error:  # the HTTP libraries raise errors of many types
        trouble = hub_trouble(error, revision=None)
        raise EncoderError(where=f"hub: {name}", found=trouble.found, expected="a hub that accepts it", remedy=trouble.remedy) from error
    return str(address)


def check_name(name: str) -> None:
    """Raise DataError unless it is OWNER/NAME."""
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name):
        raise DataError(where="hub", found=f'"{name}"', expected="OWNER/NAME", remedy="Copy it from the address of its page.")


def check_output(path: Path, *, suffixes: tuple[str, ...], overwrite: bool) -> None:
    """Raise DataError for an unsupported suffix, a missing folder, or an existing file unless `overwrite`."""
    if path.suffix not in suffixes:
        raise DataError(where=str(path), found=f"suffix {path.suffix!r}", expected=" or ".join(suffixes), remedy="Change the suffix.")
    if not path.absolute().parent.is_dir():
        raise DataError(where=str(path), found="no such folder", expected="an existing folder", remedy="Make it.")
    if path.is_dir() or (path.exists() and not overwrite):
        raise DataError(
            where=str(path), found="a folder" if path.is_dir() else "an existing file", expected="a new file",
            remedy="Choose another name." if path.is_dir() else "Choose another name, or add --overwrite.",
        )  # fmt: skip


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder, which is renamed to `path` at the end of the context and removed after an error.

    Raises:
        DataError: `path` exists and is not an empty folder, or is the current one; its parent does not exist.
    """
    if path.exists() and not (path.is_dir() and not any(path.iterdir()) and not path.samefile(".")):  # the current one cannot be replaced
        raise DataError(where=str(path), found="an existing file or folder", expected="a new folder", remedy="Choose another name.")
    if not path.absolute().parent.is_dir():
        raise DataError(where=str(path), found="no parent folder", expected="an existing parent folder", remedy="Make it.")
    part = path.absolute().with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.part")
    part.mkdir()
    try:
        yield part
        part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def average_encoders(folders: Sequence[Path], to: Path) -> None:
    """Write the encoder with the mean weights of these folders (Wortsman et al. 2022, arXiv 2203.05482, "uniform soup").

    Other files are those of the first folder.

    Raises:
        DataError: `to` exists.
    """
    import torch
    from safetensors.torch import load_file, save_file

    with whole_folder(to) as part:
        shutil.copytree(folders[0], part, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*OWN_FILES))
        for file in sorted(part.rglob("*.safetensors")) if folders[1:] else ():
            each = [load_file(folder / file.relative_to(part)) for folder in folders]
            mean = {
                name: torch.stack([one[name].double() for one in each]).mean(dim=0).to(first.dtype) if first.is_floating_point() else first
                for name, first in each[0].items()
            }
            save_file(mean, file, metadata={"format": "pt"})


def export_sentence_transformers(use: EncoderUse, to: Path, *, card: str | None = None) -> None:
    """Write a folder for `SentenceTransformer(to)`, with a model card and the encoder's relations, if any.

    A folder of that kind is copied, in a layout that old versions read, too. A plain checkpoint, or one used with another pooling, gets
    that pooling and keeps its prompts. With a Normalize module, sentence-transformers returns our embeddings scaled to length 1. A length
    in `use` becomes the folder's.

    Args:
        use: the encoder.
        to: a new folder.
        card: text of its README.md; None: the folder's card, or for a plain checkpoint a new one.

    Raises:
        EncoderError: no such checkpoint. DataError: the folder exists.
    """
    from sentdist.inference.ready_encoder import LoadedEncoder
    from sentdist.learning.encoder.write_folder import keep_prompts, language_of, write_classic

    folder = find_checkpoint(use.checkpoint, revision=use.revision)
    with whole_folder(to) as part:
        if (folder / "modules.json").is_file() and use.pooling in (None, Checkpoint.open(folder).pooling):
            shutil.copytree(folder, part, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*OWN_FILES))
        else:
            encoder = LoadedEncoder.load(use).encoder
            name = folder.name if Path(use.checkpoint).is_dir() else use.checkpoint  # no local paths in a card
            encoder.to("cpu").save(part, base_model=name, language=language_of(folder))
        keep_prompts(folder, part, name=use.checkpoint)
        write_classic(part, use.max_length)
        if card is not None:
            (part / "README.md").write_text(card, encoding="utf-8")


def export_graph(use: EncoderUse, to: Path) -> float:
    """Write a folder with model.onnx and the tokenizer; return the largest relative difference of its embeddings, see `export_onnx`.

    Raises:
        EncoderError: as `export_onnx`. DataError: the folder exists.
    """
    from sentdist.inference.ready_encoder import LoadedEncoder
    from sentdist.learning.encoder.onnx import export_onnx

    with whole_folder(to) as part:
        loaded = LoadedEncoder.load(use)
        loaded.encoder.max_length = loaded.max_length
        return export_onnx(part, loaded.encoder.to("cpu"), checkpoint=loaded.folder)
