"""A registered encoder, as MLflow serves it, answers sentences and refuses what is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

from sentdist.learning.encoder.encode import encode
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.write_folder import EncoderCard
from sentdist.tracking.registry import write_model

SENTENCES = ["a dog runs", "music"]
# mlflow's flavor asks for what is deprecated elsewhere; nothing of ours
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


@pytest.fixture(scope="module")
def model_folder(tiny_encoder_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("registered")
    SentenceEncoder.load(tiny_encoder_dir).save(place / "encoder", card=EncoderCard(base_model="tiny", objective="none"))
    write_model(place, place / "encoder", run_id="0" * 32, model_id="m-0")
    return place / "model"


def _loaded(folder: Path) -> Any:
    import mlflow.pyfunc  # warns of its own classes, as it is imported

    return mlflow.pyfunc.load_model(str(folder))


def _post(model: Any, body: object) -> Any:
    """As MLflow's server answers a request."""
    from mlflow.pyfunc.scoring_server import invocations

    schema = model.metadata.get_input_schema()
    return json.loads(invocations(json.dumps(body), "application/json", model, schema).response)["predictions"]


def test_sentences_are_answered_however_they_are_given(model_folder: Path, tiny_encoder_dir: Path) -> None:
    model = _loaded(model_folder)
    expected = encode(SentenceEncoder.load(tiny_encoder_dir), SENTENCES)
    for given in (SENTENCES, pd.DataFrame({"text": SENTENCES}), pd.Series(SENTENCES), np.array(SENTENCES), {"text": SENTENCES}):
        np.testing.assert_allclose(model.predict(given), expected, atol=1e-5)
    table = {"columns": ["text"], "data": [[one] for one in SENTENCES]}
    for body in ({"inputs": SENTENCES}, {"instances": SENTENCES}, {"dataframe_split": table}):
        np.testing.assert_allclose(_post(model, body), expected, atol=1e-5)


def test_what_is_no_sentence_is_refused_by_its_place(model_folder: Path) -> None:
    """MLflow made texts of them, "None" of null, and embedded those."""
    model = _loaded(model_folder)
    for given, found in (
        (["a dog", None], "sentence 2: found null; expected text"), ([1], "sentence 1: found 1, which is not text"),
        (["a dog", True], "sentence 2: found True, which is not text"), (["a dog", " \t"], "sentence 2: found no visible character"),
    ):  # fmt: skip
        with pytest.raises(MlflowException, match=found):
            model.predict(given)
        with pytest.raises(MlflowException, match=found) as raised:
            _post(model, {"inputs": given})
        assert raised.value.get_http_status_code() == 400


def test_pairs_are_refused(model_folder: Path) -> None:
    """MLflow kept the first of each, which of a table may be its ids."""
    model = _loaded(model_folder)
    for body in (
        {"inputs": [["a dog", "music"], "a cat"]}, {"instances": [{"text": "a dog", "other": "music"}]},
        {"dataframe_split": {"columns": ["id", "text"], "data": [["7", "a dog"]]}},
    ):  # fmt: skip
        with pytest.raises(MlflowException, match="found several columns, or lists within the list") as raised:
            _post(model, body)
        assert raised.value.get_http_status_code() == 400
    for given in ([["a dog", "music"]], pd.DataFrame({"a": ["a dog"], "b": ["music"]}), {"a": ["x"], "b": ["y"]}):
        with pytest.raises(MlflowException, match=r"several columns|found .*, which is not text"):
            model.predict(given)


def test_the_model_needs_nothing_of_this_package(model_folder: Path) -> None:
    """It is served where MLflow and sentence-transformers alone are installed."""
    (code,) = (model_folder / "code").glob("*.py")
    assert not [line for line in code.read_text().splitlines() if line.startswith(("import sentdist", "from sentdist"))]
