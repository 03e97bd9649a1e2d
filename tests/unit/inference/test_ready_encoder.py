"""An encoder made ready for use, on the device that there is."""

from __future__ import annotations

import os
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from sentdist.errors import DataError, EncoderError, ResourceError
from sentdist.inference import ready_encoder
from sentdist.inference.embedding_file import check_made_by, embedding_writer, open_embeddings
from sentdist.inference.nearest import SameEncoder
from sentdist.inference.ready_encoder import LoadedEncoder
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.plan.specs import EncoderUse
from sentdist.stages.planning.resolve import FileResolver
from tests.support.tiny_encoders import released_t5


def test_a_gpu_that_torch_has_no_kernels_for_is_left_alone(planted_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sentdist encode` said "on the CPU", and ended at the first kernel on the GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_90"])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla V100")
    loaded = LoadedEncoder.load(EncoderUse(checkpoint=str(planted_encoder_dir)))
    assert loaded.encoder.device.type == "cpu"
    assert loaded.embed(["a man sleeps"]).shape == (1, loaded.width)


def test_how_a_gpus_memory_is_kept_is_said_before_torch_is_asked(planted_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch reads it once."""
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "")  # put back after the test
    monkeypatch.delenv("PYTORCH_ALLOC_CONF")
    read = []

    def is_available() -> bool:
        read.append(os.environ.get("PYTORCH_ALLOC_CONF"))
        return False

    monkeypatch.setattr(torch.cuda, "is_available", is_available)
    LoadedEncoder.load(EncoderUse(checkpoint=str(planted_encoder_dir)))
    assert set(read) == {"expandable_segments:True"}


def test_a_gpu_that_is_full_is_reported_with_a_length_that_takes_less(planted_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may use it, too: nobody has reserved it."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**30, 8 * 2**30))
    loaded = LoadedEncoder.load(EncoderUse(checkpoint=str(planted_encoder_dir), max_length=20))
    found = r"a GPU of 8\.0 GiB, 1\.0 GiB free, full with sentences of up to 20 tokens, .*Set the longest to 10 tokens \(--max-length\)"
    monkeypatch.setattr(ready_encoder, "encode", Mock(side_effect=torch.OutOfMemoryError))
    with pytest.raises(ResourceError, match=found):
        loaded.embed(["a man sleeps"])
    monkeypatch.setattr(SentenceEncoder, "to", Mock(side_effect=torch.OutOfMemoryError))
    with pytest.raises(ResourceError, match=found):
        LoadedEncoder.load(EncoderUse(checkpoint=str(planted_encoder_dir), max_length=20))


def test_beside_workers_in_tf32_this_process_computes_in_float32(planted_encoder_dir: Path) -> None:
    """`encode --workers 2 --precision tf32` was refused: the encoder was loaded on the CPU, too, which has no tf32."""
    use = EncoderUse(checkpoint=str(planted_encoder_dir), precision="tf32")
    loaded = LoadedEncoder.beside_workers(use)
    assert loaded.use == SameEncoder.of(loaded).use == use and loaded.facts["precision"] == "tf32", "workers do as was asked"
    plain = LoadedEncoder.load(EncoderUse(checkpoint=str(planted_encoder_dir)), "cpu")
    np.testing.assert_array_equal(loaded.embed(["a man sleeps"]), plain.embed(["a man sleeps"]))
    with pytest.raises(ResourceError, match="precision=tf32"):
        LoadedEncoder.load(use, "cpu")


def test_processes_in_another_folder_find_the_encoder(planted_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster's workers looked for ./encoder in the folder in which the cluster was started."""
    monkeypatch.chdir(planted_encoder_dir.parent)
    loaded = LoadedEncoder.beside_workers(EncoderUse(checkpoint=f"./{planted_encoder_dir.name}"))
    assert SameEncoder.of(loaded).use.checkpoint == str(planted_encoder_dir)
    assert loaded.use.checkpoint == f"./{planted_encoder_dir.name}", "as the person says it"


def test_who_leaves_the_gpu_gives_its_memory_back(planted_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Mock()
    monkeypatch.setattr(ready_encoder, "give_back_gpu_memory", gone)
    loaded = LoadedEncoder.load(EncoderUse(checkpoint=str(planted_encoder_dir)), "cpu")
    moved = Mock(side_effect=lambda device: gone.assert_not_called())
    monkeypatch.setattr(loaded.encoder, "to", moved)
    loaded.leave_gpu()
    moved.assert_called_once_with("cpu")
    gone.assert_called_once_with()


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


@pytest.mark.parametrize("file", ["tokenizer.json", "sentence_bert_config.json", "1_Pooling/config.json", "2_Dense/model.safetensors"])
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
