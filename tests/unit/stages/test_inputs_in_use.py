"""An input that is changed while a stage reads it: whatever was made from it is not published, and the sweep ends as an undisturbed one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sentdist.errors import ArtifactLost
from sentdist.learning.loop import StepReport
from sentdist.plan.specs import EncoderSpec
from sentdist.plan.stage import Stage
from sentdist.plan.stages import Train
from sentdist.stages.context import check_inputs, folder_of, inputs_watched
from sentdist.stages.local import build_all, build_here
from sentdist.stages.rungs import publish_training
from sentdist.stages.scores.embed_sentences import kept_or_encoded
from sentdist.stages.train_setup import Ranks
from sentdist.store.record import Artifact
from sentdist.store.store import ASIDE, ArtifactStore
from tests.support.building import run_local
from tests.support.tiny_data import tiny_plan, tiny_values, write_data


def _change(path: Path, *, bit: int = 1) -> None:
    """In place, so that memory into which the file is mapped changes with it; the lowest bit leaves most ids valid."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2 // 8 * 8)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ bit]))


def _replace(path: Path) -> None:
    other = path.with_name("other")
    shutil.copyfile(path, other)
    other.replace(path)


def _move_away(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


CHANGES: dict[str, Callable[[Path], None]] = {
    "changed": _change,
    "changed beyond what is valid": lambda path: _change(path, bit=128),
    "replaced": _replace,
    "moved away": _move_away,
}
MADE_UP = {"rayjobs/benchmarks/peers.py", "rayjobs/benchmarks/searches.py"}  # artifacts of benchmarks, made from no stage
RESULTS = (".safetensors", ".npy", ".parquet", ".arrow", "scores.json")  # what holds no seconds
FILES = {"corpus": "corpus/*/rows.arrow", "tokens": "tokens/*/ids.npy", "bank": "bank/*/shards/*"}


@dataclass(frozen=True)
class Undisturbed:
    """A store before the first training on banks, and what the results of the whole plan are then, by place and file."""

    begun: Path
    digests: dict[str, dict[str, str]]


def _reads_banks(stage: Stage) -> bool:
    return isinstance(stage, Train) and bool(stage.banks)


@pytest.mark.in_turns
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", FILES)
def test_a_training_on_an_input_that_changes_under_it_is_not_published(
    kind: str, change: str, undisturbed: Undisturbed, tmp_path: Path, tiny_encoder_dir: Path
) -> None:
    shutil.copytree(undisturbed.begun, tmp_path / "store")
    plan, context = tiny_plan(tiny_values(tiny_encoder_dir), data=write_data(tmp_path / "data"), store=tmp_path / "store")
    changed: list[Path] = []

    def listen(stage: Stage, _: object, event: object) -> None:
        if _reads_banks(stage) and isinstance(event, StepReport) and event.step == 2 and not changed:
            changed.extend(sorted((tmp_path / "store").glob(FILES[kind]))[:1])
            CHANGES[change](changed[0])

    run_local(plan, context, listen=listen)
    assert changed
    assert _digests(context.store, plan.stages) == undisturbed.digests
    assert len(list((tmp_path / "store" / ASIDE).iterdir())) == 1


@pytest.fixture(scope="module")
def undisturbed(tiny_encoder_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("undisturbed")
    plan, context = tiny_plan(tiny_values(tiny_encoder_dir), data=write_data(folder / "data"), store=folder / "store")
    build_all([*takewhile(lambda stage: not _reads_banks(stage), plan.stages)], context)
    shutil.copytree(folder / "store", folder / "begun")
    run_local(plan, context)
    torch.set_num_threads(before)
    return Undisturbed(folder / "begun", _digests(context.store, plan.stages))


def _digests(store: ArtifactStore, stages: tuple[Stage, ...]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for stage in stages:
        artifact = store.get(stage)
        assert isinstance(artifact, Artifact)
        digests = artifact.record.digests
        found[stage.place] = {name: digests[name] for name in digests if name.endswith(RESULTS)}
    return found


def test_a_file_that_was_replaced_and_found_whole_again_is_not_the_one_that_is_read(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """As when another process builds a damaged corpus again, and this one opens it a second time."""
    plan, context = tiny_plan(tiny_values(tiny_encoder_dir), data=write_data(tmp_path / "data"), store=tmp_path / "store")
    corpus = next(stage for stage in plan.stages if stage.kind == "corpus")
    build_here(corpus, context)
    with pytest.raises(ArtifactLost, match="replaced while it was read"), inputs_watched():
        _replace(folder_of(corpus, context) / "rows.arrow")
        folder_of(corpus, context)
        check_inputs()


def test_a_loss_that_another_host_has_seen_keeps_the_first_one_from_publishing(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """Each host has a copy of its own of what an object store holds."""
    plan, context = tiny_plan(tiny_values(tiny_encoder_dir), data=write_data(tmp_path / "data"), store=tmp_path / "store")
    stage = next(stage for stage in plan.stages if isinstance(stage, Train))
    resumed: Any = SimpleNamespace(seconds=0.0, step=0, session=SimpleNamespace(finish=lambda folder: {}, seconds_since=lambda began: 1.0))
    loss = ArtifactLost(where="its copy", found="changed", expected="", remedy="")
    reported = Ranks(rank=0, world_size=2, exchange=lambda said: [said, loss], gather=lambda said: [said, None])
    with pytest.raises(ArtifactLost, match="its copy"):
        publish_training(resumed, stage, context, reported, started=0.0)
    assert context.store.get(stage) is None
    quiet = replace(reported, exchange=lambda said: [said, None])
    assert publish_training(resumed, stage, context, quiet, started=0.0) == context.store.get(stage) is not None


def test_embeddings_that_were_kept_are_inputs(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    plan, context = tiny_plan(tiny_values(tiny_encoder_dir), data=write_data(tmp_path / "data"), store=tmp_path / "store")
    scores, of = plan.trials[0].scores, EncoderSpec(checkpoint="minilm-l6", revision="r")
    embed = partial(kept_or_encoded, scores, of, ["a", "b"], context, lambda sentences: np.ones((len(sentences), 4), np.float32))
    embed()
    (kept,) = (tmp_path / "store").glob("encoded/*/embeddings.npy")
    with pytest.raises(ArtifactLost, match=r"embeddings\.npy: changed"), inputs_watched():
        embed()
        _change(kept)
        check_inputs()


def test_what_no_stage_reads_is_not_looked_at(tmp_path: Path) -> None:
    with inputs_watched():
        check_inputs()
    with pytest.raises(KeyError, match="its own"), inputs_watched():
        raise KeyError("its own")


def test_nothing_is_published_but_through_the_look_at_the_inputs() -> None:
    root = Path(__file__).parents[3]
    sources = [path for room in ("sentdist", "rayjobs") for path in (root / room).rglob("*.py")]
    found = {path.relative_to(root).as_posix() for path in sources if "store.commit(" in path.read_text()}
    assert found == {"sentdist/stages/context.py", *MADE_UP}
