"""Load a registered encoder in MLflow, with a check that its input is sentences.

This file is copied into the model and imports nothing of sentdist, which need not be installed where the model is served.
"""

from __future__ import annotations

from typing import Any

from mlflow.exceptions import MlflowException
from mlflow.models import utils
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from mlflow.sentence_transformers import _load_pyfunc as load_flavor

KEEPS_FIRST = "_enforce_unnamed_col_schema"
SEND = 'Send {"inputs": ["...", ...]}.'


class CheckedSentences:
    """MLflow's model of a sentence-transformers folder, with checked input."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    def get_raw_model(self) -> Any:
        """The SentenceTransformer."""
        return self._wrapped.get_raw_model()

    def predict(self, sentences: Any, params: dict[str, Any] | None = None) -> Any:
        """Return (S, D) embeddings.

        Args:
            sentences: As MLflow passes them: a table with one column, or a list.

        Raises:
            MlflowException: an item is not text, or has no visible character; a server answers with status 400.
        """
        column = sentences.iloc[:, 0].tolist() if hasattr(sentences, "iloc") and sentences.ndim == 2 else list(sentences)
        given = column[0] if len(column) == 1 and isinstance(column[0], list) else column  # predict({"text": [...]})
        for number, sentence in enumerate(given, start=1):
            if not isinstance(sentence, str) or not sentence.strip():
                raise MlflowException(_refusal(number, sentence), error_code=INVALID_PARAMETER_VALUE)
        return self._wrapped.predict(given, params)


def _refusal(number: int, sentence: object) -> str:
    is_missing = sentence is None or sentence != sentence  # a null in JSON is NaN in a table
    found = "null" if is_missing else "no visible character" if isinstance(sentence, str) else f"{sentence!r}, which is not text"
    return f"sentence {number}: found {found}; expected text with at least one visible character. {SEND}"


def _refuse_further_columns() -> None:
    """Make MLflow refuse input with more columns than the signature, such as [["a", "b"]]; it silently keeps the first.

    This replaces a private function of MLflow; a model requires the exact version that wrote it.
    """
    keeps_first = getattr(utils, KEEPS_FIRST, None)
    if keeps_first is None or hasattr(keeps_first, "sentdist"):
        return

    def checked(table: Any, schema: Any) -> Any:
        if [type(one).__name__ for one in schema.input_types()] == ["AnyType"] and table.shape[1] > 1:
            refusal = f"found several columns, or lists within the list; expected sentences, each a text. {SEND}"
            raise MlflowException(refusal, error_code=INVALID_PARAMETER_VALUE)
        return keeps_first(table, schema)

    checked.sentdist = True  # type: ignore[attr-defined]
    setattr(utils, KEEPS_FIRST, checked)


def _load_pyfunc(path: str, model_config: dict[str, Any] | None = None) -> CheckedSentences:
    """Load the model; MLflow calls this by name."""
    _refuse_further_columns()
    return CheckedSentences(load_flavor(path, model_config))
