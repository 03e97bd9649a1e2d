"""A record that another version wrote is said once in a report, and breaks nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.errors import StoreError
from sentdist.plan.stages import Scores, Train
from sentdist.report.encoder_card import encoder_card
from sentdist.report.sweep_report import report_sweep
from sentdist.report.sweep_rows import sweep_rows
from sentdist.store.record import Record
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import load_sweep
from sentdist.tracking.run_update import RunLayout
from tests.support.synthetic_sweeps import fill_store
from tests.support.tiny_data import tiny_plan, tiny_values, write_data


@pytest.mark.parametrize("kind", [Train, Scores])
def test_what_is_not_understood_is_said_and_the_rest_is_reported(
    kind: type[Train | Scores], tmp_path: Path, tiny_encoder_dir: Path
) -> None:
    values = tiny_values(tiny_encoder_dir, seeds=[0, 1])
    plan, context = tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")
    fill_store(context.store, plan, noise=lambda trial: 1.5, num_items={"stsb": 60})
    last = plan.trials[-1].scores
    changed = last if kind is Scores else last.encoder
    assert isinstance(changed, kind)
    file = tmp_path / "store" / changed.place / "record.json"
    record = Record.read(file.read_bytes())
    fields = record.stage["fields"]
    assert isinstance(fields, dict)
    file.write_bytes(record.model_copy(update={"stage": record.stage | {"fields": fields | {"of_tomorrow": 1}}}).sealed)

    store = ArtifactStore(tmp_path / "store")
    made = report_sweep(store, "tiny")
    assert made.markdown.count("Of another version") == 1 and changed.place in made.markdown
    sweep = load_sweep(store, "tiny")
    records = sweep.records(store)
    found = sweep_rows(sweep, store, records)
    assert [trial.key for trial in found.unfinished] == ([changed.key] if kind is Scores else [])
    layout = RunLayout.of_records(sweep, records)
    assert changed.key not in layout.stages and len(layout.stages) == len(records) - 1
    assert layout.parameters(plan.trials[-1].key)["seed"] == "1"
    artifact = store.at(changed.place)
    assert artifact is not None
    if kind is Train:
        with pytest.raises(StoreError, match="another version"):
            encoder_card(store, artifact, name="me/encoder", licence=None, language=(), has_unit_length=False)
