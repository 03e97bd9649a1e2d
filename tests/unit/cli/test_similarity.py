"""`sentdist similarity`: of two sentences, of files, by cosine and by an encoder's relations."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from sentdist.cli import app
from sentdist.learning.encoder.encode import encode
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.write_folder import EncoderCard
from sentdist.learning.relation_file import Relations, write_relations
from tests.support.tiny_encoders import SENTENCES, WIDTH

HEADS, TAILS = SENTENCES[:4], SENTENCES[4:]
RELATIONS = Relations(names=("entailment", "twin"), vectors=np.random.default_rng(0).normal(size=(2, WIDTH)).astype(np.float32))
# Scores are printed to six decimals.
CLOSE = {"atol": 2e-6, "rtol": 0.0}


def _call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


def _cosines(first_SD: np.ndarray, second_SD: np.ndarray) -> np.ndarray:
    return np.array([one @ other / np.linalg.norm(one) / np.linalg.norm(other) for one, other in zip(first_SD, second_SD, strict=True)])


@pytest.fixture(scope="module")
def embeddings(tiny_encoder_dir: Path) -> np.ndarray:
    return encode(SentenceEncoder.load(tiny_encoder_dir), SENTENCES).astype(np.float64)


@pytest.fixture(scope="module")
def related(tiny_encoder_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny encoder with two relations beside it."""
    folder = tmp_path_factory.mktemp("related") / "encoder"
    shutil.copytree(tiny_encoder_dir, folder)
    write_relations(folder, RELATIONS)
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pairs of mine")
    (folder / "pairs.csv").write_text("head,tail\n" + "".join(f"{one},{other}\n" for one, other in zip(HEADS, TAILS, strict=True)))
    for name, lines in {"heads": HEADS, "tails": TAILS, "fewer": TAILS[:3]}.items():
        (folder / f"{name}.txt").write_text("\n".join(lines))
    return {path.stem: path for path in folder.iterdir()}


def test_two_columns_two_files_and_a_table_of_scores_agree(
    tiny_encoder_dir: Path, embeddings: np.ndarray, files: dict[str, Path], tmp_path: Path
) -> None:
    expected = _cosines(embeddings[:4], embeddings[4:])
    alone = _call("similarity", tiny_encoder_dir, HEADS[0], TAILS[0])
    np.testing.assert_allclose(float(alone.output), expected[0], **CLOSE)
    named = ("--column", "head", "--column", "tail")
    for arguments in ((files["pairs"],), (files["heads"], files["tails"]), (files["pairs"], files["pairs"], *named)):
        answer = _call("similarity", tiny_encoder_dir, *arguments)
        assert answer.exit_code == 0, answer.output
        np.testing.assert_allclose(np.array(answer.output.split(), dtype=float), expected, **CLOSE)
    for out, read in ((tmp_path / "out.csv", pyarrow.csv.read_csv), (tmp_path / "out.parquet", pq.read_table)):
        out.write_text("kept")
        assert _call("similarity", tiny_encoder_dir, files["pairs"], "--out", out).exit_code == 2 and out.read_text() == "kept"
        assert _call("similarity", tiny_encoder_dir, files["pairs"], "--out", out, "--overwrite").exit_code == 0
        table = read(out)
        assert (table["sentence1"].to_pylist(), table["sentence2"].to_pylist()) == (list(HEADS), list(TAILS))
        np.testing.assert_allclose(table["score"].to_numpy(), expected, **CLOSE)


def test_relations_score_pairs_of_their_own_embeddings_alone(
    tiny_encoder_dir: Path, related: Path, embeddings: np.ndarray, files: dict[str, Path], tmp_path: Path
) -> None:
    answer = _call("similarity", related, SENTENCES[0], SENTENCES[1])
    rows = {line.split()[0]: line.split() for line in answer.output.splitlines() if line.strip()}
    one, other, twin = embeddings[:1], embeddings[1:2], RELATIONS.vectors[1]
    shown = [float(rows["twin"][1]), float(rows["twin"][2]), float(rows["none"][2])]
    np.testing.assert_allclose(shown, [_cosines(one + twin, other)[0], _cosines(other + twin, one)[0], _cosines(one, other)[0]], **CLOSE)
    for trained, used in (("cls_mlp_train_only", "cls"), ("mean", "cls")):
        folder = tmp_path / trained
        SentenceEncoder.load(tiny_encoder_dir, pooling=trained).save(
            folder, card=EncoderCard(base_model="tiny", base_revision=None, objective="rse")
        )
        write_relations(folder, replace(RELATIONS, pooling=trained))
        answer = _call("similarity", folder, files["pairs"], "--relation", "twin", "--pooling", used)
        assert answer.exit_code == 2 and f"pooling {used} for relations that were trained with {trained}" in answer.stderr
        answer = _call("similarity", folder, SENTENCES[0], SENTENCES[1], "--pooling", used)
        assert answer.exit_code == 0 and -1 <= float(answer.output) <= 1, "the cosine alone"


MISTAKES = [
    (("{encoder}", "{heads}", "{fewer}"), "only 3 rows in"), (("{encoder}", "{pairs}", "--column", "head", "--column", "tale"), 'Did you mean "tail"?'),
    (("{encoder}", "a man", "{heads}"), "'a man': found a sentence"), (("{encoder}", "a man plays"), "one sentence, 'a man plays'"),
    (("{encoder}", "a man", " "), "' '"), (("{encoder}", "{pairs}", "--relation", "twin"), "no relations beside it"),
    (("{related}", "{pairs}", "--relation", "twins"), 'Did you mean "twin"?'), (("{related}", "{pairs}", "--relation", "twin=0"), "no weight above 0"),
    (("{related}", "{pairs}", "--relation", "twin", "--directions", "both"), "one of max_both, one"),
    (("{encoder}", "{pairs}", "--out", "{heads}"), "suffix '.txt'"), (("{encoder}", "a man", "a dog", "--out", "scores.csv"), "Leave --out out"),
]  # fmt: skip


def test_a_mistake_is_reported_in_one_sentence(tiny_encoder_dir: Path, related: Path, files: dict[str, Path]) -> None:
    for arguments, words in MISTAKES:
        answer = _call("similarity", *(argument.format(encoder=tiny_encoder_dir, related=related, **files) for argument in arguments))
        assert answer.exit_code == 2 and words in answer.stderr and len(answer.stderr.splitlines()) == 1, answer.output
