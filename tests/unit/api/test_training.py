"""`sentdist.train`: one training on rows of one's own, from a file or in memory, with a verdict on rows that are held out."""

from __future__ import annotations

from pathlib import Path

import pytest

import sentdist
from sentdist.api.recipes import as_file
from sentdist.errors import DataError
from sentdist.plan.tune_recipe import search_values, training_values
from sentdist.stages.planning.planned import own_request
from sentdist.stages.planning.resolve import FileResolver

PAIRS = [(f"a {who} {what} in the {where}", f"the {who} in the {where} {what}") for who in ("man", "dog", "cat", "child", "woman")
         for what in ("eats", "sings", "reads", "plays") for where in ("house", "garden", "street", "park")]  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("SENTDIST_STORE", "SENTDIST_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_rows_in_memory_train_an_encoder_with_a_verdict(tiny_encoder_dir: Path) -> None:
    lines: list[str] = []
    found = sentdist.train(PAIRS, encoder=tiny_encoder_dir, max_length=20, print_line=lines.append)
    assert found.num_seeds == 1 and (found.folder / "modules.json").is_file()
    assert found.verdict.outcome in ("better", "worse", "not shown to be better") and found.verdict.line in repr(found)
    assert any("56 train, 0 dev, 24 test" in line for line in lines), lines
    assert sentdist.Encoder.load(found.folder).encode(["a dog"]).shape[0] == 1
    again: list[str] = []
    assert sentdist.train(PAIRS, encoder=tiny_encoder_dir, max_length=20, print_line=again.append).folder == found.folder
    assert not any("to build" in line for line in again), "what the store has is not built again"


def test_rows_are_one_table_however_they_are_held() -> None:
    import datasets
    import pandas

    rows = [{"anchor": first, "positive": second} for first, second in PAIRS]
    files = {as_file(PAIRS), as_file(rows), as_file(pandas.DataFrame(rows)), as_file(datasets.Dataset.from_list(rows))}
    assert len(files) == 1 and as_file("mine.csv") == "mine.csv"
    assert as_file([("a", "b", 0.5)]) != as_file([("a", "b", "c")]), "a number is a score"
    for wrong in ([], 7, [("a", "b"), ("a",)]):
        with pytest.raises(DataError) as refused:
            as_file(wrong)
        assert refused.value.where == "rows"


def test_final_trainings_are_tested_on_the_very_rows_that_the_search_leaves_out(tiny_encoder_dir: Path) -> None:
    from sentdist.plan.recipe import recipe_from_values

    request = own_request(as_file(PAIRS), command="tune", fields={}, encoders=[str(tiny_encoder_dir)], data=None, hours=1.0, max_length=20)
    rows = {}
    for name, values in (("search", search_values(request.asked)), ("final", training_values(request.asked))):
        corpus = recipe_from_values(values, where=name).corpus
        rows[name] = FileResolver(data_root=None).own(corpus, where=name)  # type: ignore[arg-type]
    assert rows["search"].num_test == rows["final"].num_test > 0
    assert rows["final"].num_dev == 0 and rows["final"].num_rows == rows["search"].num_rows + 12
