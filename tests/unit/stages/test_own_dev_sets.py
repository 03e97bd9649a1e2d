"""A user's own files choose checkpoints: the score while training is that of the evaluation, and the report says what chose."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.plan.corpora.own import own_section
from sentdist.plan.task_names import own_test_tasks
from sentdist.report.encoder_card import encoder_card
from sentdist.report.sweep_report import report_sweep
from sentdist.stages.planning.resolve import FileResolver
from sentdist.stages.tasks.load import load_task
from sentdist.stages.tasks.sts import LoadedSts
from sentdist.stages.text_stages import build_overlaps
from sentdist.store.sweep import save_sweep, sweep_record
from tests.support.building import run_local
from tests.support.tasks_data import write_table
from tests.support.tiny_data import PLACES, SUBJECTS, VERBS, tiny_plan, tiny_values, write_data

METHODS = {"base": {}, "fine_tuned": {"objective": {"name": "info_nce", "temperature": 0.05}}}


def _write_own(root: Path) -> None:
    """Other rows on each side; half of the pairs of a side are no paraphrases, and two candidates of three are wrong."""
    for side, places in (("dev", PLACES[:2]), ("test", PLACES[2:4])):
        scenes = [(f"{subject} {verb} {place}", f"{verb} {place}") for subject in SUBJECTS for verb in VERBS for place in places]
        others = [text for _, text in scenes[7:] + scenes[:7]]
        triplets = [{"sent0": one, "sent1": two, "hard_neg": other} for (one, two), other in zip(scenes, others, strict=True)]
        pairs = [
            {"sentence1": one, "sentence2": other if number % 2 else two, "label": 1 - number % 2}
            for number, ((one, two), other) in enumerate(zip(scenes, others, strict=True))
        ]
        candidates = [
            {"query_id": str(number), "query": one, "document_id": name, "document": text, "relevance": int(name == "right")}
            for number, ((one, two), other) in enumerate(zip(scenes[:12], others[:12], strict=True))
            for name, text in (("wrong", other), ("right", two), ("far", PLACES[-1]))
        ]
        for kind, rows in (("triplets", triplets), ("pairs", pairs), ("reranking", candidates)):
            write_table(root, f"my/{kind}-{side}", rows)


@pytest.mark.parametrize("kind", ["pairs", "reranking", "triplets"])
def test_a_dev_file_that_holds_the_test_is_a_leak(kind: str, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    data = write_data(tmp_path / "data")
    _write_own(data)
    (data / f"my/{kind}-copy.parquet").write_bytes((data / f"my/{kind}-test.parquet").read_bytes())
    for dev, share in (("copy", 1.0), ("dev", 0.0)):
        selection = {"task": f"{kind}=my/{kind}-{dev}", "every_fraction": 1.0}
        values = tiny_values(
            tiny_encoder_dir, methods=METHODS, baseline="base", selection=selection, evaluation={"tasks": [f"{kind}=my/{kind}-test"]}
        )
        plan, context = tiny_plan({**values, "headline": "fine_tuned"}, data=data, store=tmp_path / dev)
        (overlap,) = build_overlaps(plan, context)  # of the dev set; the corpus is not built
        (counts,) = overlap.record.results["tasks"].values()  # type: ignore[union-attr]
        assert counts["items"] > 0 and counts["exact"] == share * counts["items"]  # type: ignore[index, call-overload]


@pytest.mark.parametrize("kind", ["pairs", "reranking", "triplets"])
def test_own_rows_choose_checkpoints_by_the_score_of_the_evaluation(kind: str, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    data = write_data(tmp_path / "data")
    _write_own(data)
    both = [f"{kind}=my/{kind}-{side}" for side in ("dev", "test")]
    selection = {"task": both[0], "every_fraction": 1.0}
    values = tiny_values(
        tiny_encoder_dir, methods=METHODS, baseline="base", selection=selection, evaluation={"tasks": both[1:]}, headline="fine_tuned"
    )
    plan, context = tiny_plan(values, data=data, store=tmp_path / "store")
    run_local(plan, context)
    save_sweep(context.store, sweep_record(plan))
    asked, _ = tiny_plan({**values, "name": "again", "evaluation": {"tasks": both}}, data=data, store=tmp_path / "store")
    run_local(asked, context)
    artifact = next(context.store.artifacts("train"))
    trained = artifact.record
    card = encoder_card(context.store, artifact, name="me/encoder", licence=None, language=(), has_unit_length=False)
    assert f"The weights were chosen by {kind}-my-{kind}-dev: what is scored on the same data flatters." in card
    results = next(
        one.record.results
        for one in context.store.artifacts("scores")
        if f"{kind}-my-{kind}-dev" in one.record.results and trained.key in one.record.inputs
    )
    assert trained.results["best_dev_score"] == pytest.approx(results[f"{kind}-my-{kind}-dev"], abs=1e-3)
    assert 0 < float(str(results[f"{kind}-my-{kind}-dev"])) < 100
    assert f"| fine_tuned | {kind}-my-{kind}-dev | " in report_sweep(context.store, "tiny").markdown


@pytest.mark.parametrize("shape", ["graded", "triplets"])
def test_what_a_file_calls_a_group_belongs_together_in_its_test(shape: str, tmp_path: Path) -> None:
    """Else its interval takes rows of one group for independent."""
    texts = [[f"{word} {n}" for word in ("text", "other", "third")] for n in range(400)]
    lines = [
        f"{first},{second},{third if shape == 'triplets' else n % 6},{f'topic {n % 20}' if n < 380 else ''}"
        for n, (first, second, third) in enumerate(texts)
    ]
    names = ("anchor,positive,negative" if shape == "triplets" else "sentence1,sentence2,score") + ",group"
    (tmp_path / "own.csv").write_text("\n".join([names, *lines]) + "\n")
    resolver = FileResolver(data_root=tmp_path)
    section = own_section({"kind": "own", "file": "own.csv", "held_out": {"near": None, "test": 0.3}}, where="corpus")
    task = own_test_tasks(section, resolver, where="corpus")[-1]
    loaded = load_task(task, str(tmp_path), resolver.folders)
    if isinstance(loaded, LoadedSts):
        assert loaded.pairs.score.tolist() == [int(sentence.split()[1]) % 6 for sentence in loaded.pairs.sentence1]
    found = loaded.texts()
    groups = found.groups().tolist()
    topic = [int(sentences[0].split()[1]) for sentences in found.sentences]
    reported = {(None if number >= 380 else number % 20, group) for number, group in zip(topic, groups, strict=True)}
    topics = [one for one, _ in reported if one is not None]
    assert len(topics) == len(set(topics)) > 1, "one group of the test for each topic"
    assert len(set(groups)) == len(reported), "rows without one belong to nothing"
