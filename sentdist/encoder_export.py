"""An encoder as a folder for others, with the card that its store can write of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentdist.errors import StoreError
from sentdist.plan.specs import EncoderUse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentdist.plan.specs import EncoderSpec
    from sentdist.store.store import Artifact, ArtifactStore


def export_encoder(use: EncoderUse, to: Path, store: ArtifactStore, *, card: str | None = None) -> None:
    """`export_sentence_transformers`; of a training of the store, used as it was trained, with the card that `push` sends. One of another
    version of sentdist, of which that cannot be written, keeps the card of its folder.

    card: another text of its README.md.

    Raises:
        EncoderError: no such checkpoint. DataError: the folder is there already. StoreError: the store cannot be read.
    """
    from sentdist.inference.export_formats import export_sentence_transformers

    trained = _training_of(use.checkpoint, store) if use.pooling is None and card is None else None
    card = card if trained is None else _card_if_known(trained, store, name=to.name)
    export_sentence_transformers(as_trained(use, store), to, card=card)


def as_trained(use: EncoderUse, store: ArtifactStore) -> EncoderUse:
    """The use, of a training of the store with sentences as long as it was trained with; a length that the use names stays."""
    trained = _training_of(use.checkpoint, store) if use.max_length is None else None
    return use if trained is None else replace(use, max_length=_fields(trained)["training"]["max_length"])


def card_of(
    trained: Artifact,
    store: ArtifactStore,
    *,
    name: str,
    licence: str | None = None,
    language: Sequence[str] | None = None,
    scored_as: EncoderSpec | None = None,
    num_seeds: int = 1,
) -> str:
    """`encoder_card` of a training, or of the average of `num_seeds`; language: None for what the card of the base model says; licence:
    None for that of a packaged one.

    Raises:
        StoreError: as `encoder_card`.
    """
    from sentdist.learning.encoder.card import language_of
    from sentdist.learning.encoder.declared import ends_in_normalize
    from sentdist.learning.encoder.packaged import PACKAGED_ENCODERS
    from sentdist.report.encoder_card import encoder_card

    folder = Path(store.folder(trained))
    said = language_of(folder) if language is None else language
    packaged = PACKAGED_ENCODERS.get(_fields(trained)["encoder"]["checkpoint"])
    base, licence = (None, licence) if packaged is None else (packaged.hub_id, licence or packaged.licence)
    return encoder_card(
        store, trained, name=name, licence=licence, language=said, has_unit_length=ends_in_normalize(folder), base=base,
        scored_as=scored_as, num_seeds=num_seeds,
    )  # fmt: skip


def _card_if_known(trained: Artifact, store: ArtifactStore, *, name: str) -> str | None:
    try:
        return card_of(trained, store, name=name)
    except StoreError:
        return None


def _fields(trained: Artifact) -> Any:
    return trained.record.stage["fields"]


def _training_of(checkpoint: str, store: ArtifactStore) -> Artifact | None:
    """The training whose folder this is; None for any other checkpoint."""
    found = store.at(f"train/{Path(checkpoint).name}")
    return found if found is not None and Path(store.folder(found)) == Path(checkpoint).absolute() else None
