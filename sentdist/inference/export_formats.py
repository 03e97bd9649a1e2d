"""Write encoders as folders for sentence-transformers, or as ONNX graphs with their tokenizer."""

from __future__ import annotations

import shutil
from pathlib import Path

from sentdist.inference.export import whole_folder
from sentdist.inference.ready_encoder import LoadedEncoder
from sentdist.learning.encoder.declared import Checkpoint
from sentdist.learning.encoder.find_checkpoint import find_checkpoint
from sentdist.learning.encoder.write_folder import keep_prompts, language_of, write_classic
from sentdist.recipe.specs import EncoderUse
from sentdist.store.record import OWN_FILES


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
    from sentdist.learning.encoder.onnx import export_onnx

    with whole_folder(to) as part:
        loaded = LoadedEncoder.load(use)
        loaded.encoder.max_length = loaded.max_length
        return export_onnx(part, loaded.encoder.to("cpu"), checkpoint=loaded.folder)
