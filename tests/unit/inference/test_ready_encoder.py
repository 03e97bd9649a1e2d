"""An encoder made ready for use, on the device that there is."""

from __future__ import annotations

import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from sentdist.errors import DataError, EncoderError
from sentdist.inference.embedding_file import check_made_by, embedding_writer, open_embeddings
from sentdist.inference.ready_encoder import LoadedEncoder
from sentdist.inference.same_encoder import SameEncoder
from sentdist.plan.specs import EncoderUse
from sentdist.stages.planning.resolve import FileResolver
from tests.support.tiny_encoders import released_t5


def test_processes_in_another_folder_find_the_encoder(planted_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster's workers looked for ./encoder in the folder in which the cluster was started."""
    monkeypatch.chdir(planted_encoder_dir.parent)
    loaded = LoadedEncoder.beside_workers(EncoderUse(checkpoint=f"./{planted_encoder_dir.name}"))
    assert SameEncoder.of(loaded).use.checkpoint == str(planted_encoder_dir)
    assert loaded.use.checkpoint == f"./{planted_encoder_dir.name}", "as the person says it"


def test_a_worker_takes_no_other_encoder_of_that_name(tiny_encoder_dir: Path, planted_encoder_dir: Path, tmp_path: Path) -> None:
    """Of another host's folder, or of one that was written anew, embeddings went into the same file without a word."""
    folder = tmp_path / "encoder"
    shutil.copytree(tiny_encoder_dir, folder)
    asked = pickle.loads(pickle.dumps(SameEncoder.of(LoadedEncoder.beside_workers(EncoderUse(checkpoint=str(folder))))))
    assert asked.load("cpu").digest.whole == asked.digest
    shutil.rmtree(folder)
    shutil.copytree(planted_encoder_dir, folder)
    with pytest.raises(EncoderError, match="other weights"):
        asked.load("cpu")


@pytest.mark.parametrize("file", ["tokenizer.json", "2_Dense/model.safetensors"])
def test_what_stands_beside_the_weights_makes_another_encoder(file: str, tmp_path: Path) -> None:
    """With another tokenizer, length or pooling, scores and embeddings of the folder as it had been were taken for its own."""
    folder = released_t5(tmp_path / "encoder")
    before = LoadedEncoder.load(EncoderUse(checkpoint=str(folder)), "cpu")
    pinned = FileResolver().encoder(str(folder), revision=None, where="encoder.checkpoint")
    old = tmp_path / "old.npy"
    with embedding_writer(old, width=before.width, dtype="float32", facts=before.facts, with_ids=False) as writer:
        writer.write(before.embed(["a man sleeps"]), None)
    if file.endswith(".json"):
        with (folder / file).open("a") as changed:
            changed.write("\n")
    else:
        save_file({name: -weight for name, weight in load_file(folder / file).items()}, folder / file)
    after = LoadedEncoder.load(EncoderUse(checkpoint=str(folder)), "cpu")
    assert FileResolver().encoder(str(folder), revision=None, where="encoder.checkpoint").revision != pinned.revision
    with pytest.raises(EncoderError, match="another configuration, tokenizer or pooling"):
        SameEncoder.of(before).load("cpu")
    with pytest.raises(DataError, match="embeddings made with tokenizer_and_modules"):
        check_made_by(old, open_embeddings(old), width=after.width, facts=after.facts)


def test_a_worker_takes_the_commit_of_a_hub_encoder_that_is_here(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    """The main branch may have gone on since, and hosts keep what they fetched."""
    folder = tmp_path / "models--owner--name" / "snapshots" / ("0" * 39 + "1")
    shutil.copytree(tiny_encoder_dir, folder)
    loaded = replace(LoadedEncoder.load(EncoderUse(checkpoint=str(folder)), "cpu"), use=EncoderUse(checkpoint="owner/name"))
    assert SameEncoder.of(loaded).use == EncoderUse(checkpoint="owner/name", revision=folder.name)
    named = SameEncoder.of(LoadedEncoder.load(EncoderUse(checkpoint=str(folder)), "cpu"))
    assert (named.use.checkpoint, named.use.revision) == (str(folder), None)
