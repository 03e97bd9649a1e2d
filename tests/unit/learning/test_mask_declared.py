"""What a tokenizer's files say of a mask token is what transformers makes of them, and is known while a recipe is planned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from sentdist.errors import RecipeError
from sentdist.learning.encoder.declared import CLASSES_WITHOUT_MASK, lacks_mask_token
from sentdist.plan.recipe import recipe_from_values
from sentdist.plan.stage import Json
from sentdist.stages.planning.planned import planned_recipe
from tests.support.mask_tokens import maskable_encoder
from tests.support.tiny_data import tiny_values
from tests.support.tiny_encoders import released_t5, tiny_encoder

UNSAID = "unsaid"


def changed(folder: Path, **fields: object) -> None:
    """Set fields of the tokenizer's configuration, or leave them out."""
    path = folder / "tokenizer_config.json"
    values = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({name: value for name, value in values.items() if value != UNSAID}))


@pytest.mark.parametrize(
    ("named", "is_new", "further", "mask"),
    [
        ("BertTokenizer", False, None, UNSAID), ("BertTokenizer", True, None, None), (CLASSES_WITHOUT_MASK[0], True, None, UNSAID),
        (CLASSES_WITHOUT_MASK[0], False, None, "[UNK]"), (UNSAID, True, "[UNK]", UNSAID),
    ],
)  # fmt: skip
def test_it_is_known_to_lack_one_only_where_it_does(
    named: str, is_new: bool, further: str | None, mask: str | None, tmp_path: Path
) -> None:
    released_t5(tmp_path) if "T5" in named else tiny_encoder(tmp_path, "bert")
    mask = "<unk>" if "T5" in named and mask == "[UNK]" else mask
    changed(tmp_path, tokenizer_class=named, mask_token=mask, added_tokens_decoder={} if is_new else UNSAID)
    if further is not None:
        (tmp_path / "special_tokens_map.json").write_text(json.dumps({"mask_token": further}))
    has_one = AutoTokenizer.from_pretrained(tmp_path).mask_token is not None
    assert not (has_one and lacks_mask_token(tmp_path))
    assert has_one or lacks_mask_token(tmp_path), "all of these say it"


@pytest.mark.parametrize("is_term", [False, True])
def test_masked_language_modelling_without_a_mask_is_refused_by_the_plan(is_term: bool, tmp_path: Path) -> None:
    terms: Json = [{"weight": 1.0, "objective": {"name": "info_nce"}}, {"weight": 0.1, "objective": {"name": "mlm"}}]
    objective: Json = {"name": "sum", "terms": terms} if is_term else {"name": "mlm"}
    for number, make in enumerate((tiny_encoder, maskable_encoder)):
        folder = tmp_path / f"encoder{number}"
        make(folder, "bert")
        values = tiny_values(folder, corpus={"source": "generated/nli", "split": "train"}, methods={"trained": {"objective": objective}})
        recipe = recipe_from_values(values | {"selection": None, "evaluation": {"tasks": ["scenes-sts"]}, "baseline": None}, where="tiny")
        if make is maskable_encoder:
            assert planned_recipe(recipe, store=str(tmp_path / "store"))[0].trials
            continue
        with pytest.raises(RecipeError, match="mask token"):
            planned_recipe(recipe, store=str(tmp_path / "store"))
