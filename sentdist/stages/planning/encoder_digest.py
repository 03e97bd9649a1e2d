"""What an encoder's folder holds, by its content: two of one digest give the same embeddings. Without torch: planning asks, too."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sentdist.errors import EncoderError
from sentdist.learning.encoder.declared import OF_SENTENCES, modules
from sentdist.reading import reading

SAVE = "Give a folder written by save_pretrained."
LONGEST_HEADER = 100_000_000  # bytes, of a safetensors file; the format's own limit
WEIGHTS = (".safetensors", ".bin")
# Of tokenizers, beside *.model of sentencepiece; and what sentence-transformers reads behind the transformer.
FURTHER = (
    "added_tokens.json", "bpe.codes", "merges.txt", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "vocab.json",
    "vocab.txt", "modules.json", *OF_SENTENCES,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EncoderDigest:
    """Each "sha256:" and 16 hex digits. model: of configuration and weights. further: of the tokenizer, the longest sentence, and the
    modules behind the transformer with their weights. whole: of both."""

    model: str
    further: str

    @property
    def whole(self) -> str:
        return _shown(hashlib.sha256(f"{self.model} {self.further}".encode()))


def digest_of_encoder(folder: Path, where: str) -> EncoderDigest:
    """What pins an encoder given by path: all files that its embeddings depend on. EncoderError where there are no weights."""
    weights = [path for path in sorted(folder.iterdir()) if path.suffix in WEIGHTS] if folder.is_dir() else []
    if not weights or not os.path.lexists(folder / "config.json"):
        found = "no such folder" if not folder.is_dir() else "no config.json" if weights else "no weights (*.safetensors)"
        raise EncoderError(
            where=f"{where}: {folder}",
            found=found,
            expected="a saved Hugging Face encoder",
            remedy=SAVE,
        )
    model = _digest([folder / "config.json", *weights], folder, where)
    return EncoderDigest(model=model, further=_digest(_further_files(folder), folder, where))


def _further_files(folder: Path) -> list[Path]:
    beside = [path for path in folder.iterdir() if path.name in FURTHER or path.suffix == ".model"]
    own = {folder / module["path"] for module in modules(folder)} - {folder}
    behind = [path for place in own if place.is_dir() for path in place.iterdir() if path.name == "config.json" or path.suffix in WEIGHTS]
    return sorted([*beside, *behind])


def _digest(paths: Sequence[Path], folder: Path, where: str) -> str:
    digest = hashlib.sha256()
    for path in paths:
        expected = "weights that are whole" if path.suffix in WEIGHTS else "the configuration of an encoder, or a file of its tokenizer"
        with reading(path, expected=expected, remedy=SAVE, kind=EncoderError, where=where), path.open("rb") as file:
            if path.suffix == ".safetensors":
                _check_length(file, path.stat().st_size)
            digest.update(f"{path.relative_to(folder)}:{path.stat().st_size}:".encode())
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return _shown(digest)


def _shown(digest: hashlib._Hash) -> str:
    return f"sha256:{digest.hexdigest()[:16]}"


def _check_length(file: IO[bytes], size: int) -> None:
    """ValueError for a safetensors file that is cut off or has no header; leaves the file at its beginning.

    Its first 8 bytes are the length of a header in JSON, which says where each tensor ends behind it.
    So a mistake is found before a worker is asked for.
    """
    length = int.from_bytes(file.read(8), "little")
    if not 0 < length <= min(size - 8, LONGEST_HEADER):
        raise ValueError(f"a header of {length:,} bytes in a file of {size:,}")
    tensors = {name: tensor for name, tensor in json.loads(file.read(length)).items() if name != "__metadata__"}
    needed = 8 + length + max((int(tensor["data_offsets"][1]) for tensor in tensors.values()), default=0)
    if size != needed:
        raise ValueError(f"{size:,} bytes, where its header says {needed:,}")
    file.seek(0)
