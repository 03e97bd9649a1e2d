"""Values that change batches, dropout, precision, stops, starts, banks and targets: what the training does is what the recipe says."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sentdist.data.corpus import OpenedCorpus
from sentdist.data.tagging import FileTargets
from sentdist.errors import DataError, RecipeError
from sentdist.learning.bank import FileBank
from sentdist.learning.encoder import fused_layer
from sentdist.learning.encoder.pooling import Dropout
from sentdist.learning.encoder.tokens import TokenBatch
from sentdist.learning.engine import TorchEngine
from sentdist.learning.kernels import cpp_kernels
from sentdist.learning.kernels.interface import DropoutMask
from sentdist.learning.loop import StepReport
from sentdist.plan.stage import Json, topological
from sentdist.stages.context import folder_of
from sentdist.stages.local import build_here
from sentdist.stages.train import TrainSession
from tests.parity.wiring.fields import covers
from tests.parity.wiring.product import STILL, TRAINING, Place, opened, planned, run, stage_of, start_of
from tests.parity.wiring.reference import Student
from tests.parity.wiring.training_cases import BANK, TAGGER, O
from tests.support.kernel_reference import factors
from tests.support.mask_tokens import maskable_encoder
from tests.support.tasks_data import write_table
from tests.support.tiny_tagger import TAGS, tag

pytestmark = pytest.mark.parity


class Watched(TorchEngine):
    """An engine that writes down the words of every batch."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.batches: list[list[str]] = []

    def encode(self, tokens: TokenBatch) -> Tensor:
        bounds = tokens.boundaries.tolist()
        tokenizer = self.learner.encoder.tokenizer
        ids = [tokens.token_ids[first:last].tolist() for first, last in itertools.pairwise(bounds)]
        self.batches.append([tokenizer.decode(one, skip_special_tokens=True) for one in ids])
        return super().encode(tokens)


def watched(
    place: Place, changes: Mapping[str, Json], *, family: str = "triplets"
) -> tuple[list[list[str]], list[StepReport], TrainSession]:
    plan, context = planned(place, family, changes)
    stage = stage_of(plan)
    for needed in topological((stage,))[:-1]:
        build_here(needed, context)
    session = TrainSession(stage, context, make_engine=Watched, bank=None)
    steps = [event for event in session.events() if isinstance(event, StepReport)]
    assert isinstance(session.engine, Watched)
    return session.engine.batches, steps, session


@covers("Training.batch_size")
def test_a_batch_has_so_many_rows(place: Place) -> None:
    for size in (3, 4):
        batches, steps, session = watched(place, {"training.batch_size": size, "training.epochs": 1})
        assert len(steps) == 8 // size and all(len(batch) == 3 * size for batch in batches)
        assert all(step.num_sentences == 3 * size for step in steps)
        assert [step.lr for step in steps] == pytest.approx([TRAINING["learning_rate"], TRAINING["learning_rate"] / 2])  # rows left over
        assert session.finish(place.root / f"of-{size}")["num_steps_planned"] == len(steps)


@pytest.mark.parametrize(("objective", "columns"), [("supmpn", 5), ("auxiliary", 3)])
def test_all_positives_take_part_and_negatives_where_they_are_read(place: Place, objective: str, columns: int) -> None:
    """Two positives and two hard negatives an anchor, five rows."""
    targets: dict[str, Json] = {"targets": TAGGER} if objective == "auxiliary" else {}
    (batch,), _, _ = watched(place, {O: {"name": objective}, **targets, "training.epochs": 1}, family="groups")
    assert len(batch) == 5 * columns


@covers("Training.unique_sentences")
def test_no_sentence_twice_in_a_batch(place: Place) -> None:
    columns: Json = ["sent0", "sent1"]
    repeated: dict[str, Json] = {
        "corpus": {"source": "nli/triplets", "columns": columns, "add_reversed": True, "limit": 10},
        "training.batch_size": 10,
    }
    whole = {unique: watched(place, {**repeated, "training.epochs": 2, "training.unique_sentences": unique})[0] for unique in (True, False)}
    assert all(len(set(batch)) == len(batch) for batch in whole[True])
    assert any(len(set(batch)) < len(batch) for batch in whole[False])


def test_negatives_that_are_not_read_keep_no_row_out_of_a_batch(place: Place) -> None:
    """All rows have one hard negative."""
    rows = [{"sent0": f"a man {n}", "sent1": f"the dog {n}", "hard_neg": "nobody"} for n in ("eats", "runs", "sleeps", "sings")]
    write_table(place.root / "triplets", "my/negative", rows)
    shared: dict[str, Json] = {"corpus": {"source": "my/negative"}, "training.batch_size": 4, "training.unique_sentences": True}
    batches, _, _ = watched(place, {**shared, "training.epochs": 1, f"{O}.hard_negatives": False})
    assert [len(batch) for batch in batches] == [8]
    with pytest.raises(DataError, match="without a sentence in common"):
        watched(place, {**shared, f"{O}.hard_negatives": True})


@covers("Train.seed", "Recipe.seeds", "Method.seed")
def test_a_seed_gives_another_order_another_head_and_other_dropout(place: Place) -> None:
    few: dict[str, Json] = {"training.batch_size": 4, "training.epochs": 1, "encoder.pooling": "cls_mlp", "methods.m.regularizers": {}}

    def of(**changes: Json) -> tuple[list[list[str]], list[float], Tensor]:
        batches, steps, session = watched(place, {**few, **changes})
        return batches, [step.loss for step in steps], session.engine.weights()["encoder.head.dense.weight"]

    first, again, other = of(seeds=[3]), of(seeds=[3]), of(seeds=[4])
    assert first[0] == again[0] and first[1] == again[1]
    assert first[0] != other[0] and first[1] != other[1] and not torch.equal(first[2], other[2])
    starts = []
    for seed in (3, 3, 4):
        session = opened(place, "triplets", {**few, "seeds": [seed]}).session
        starts.append((session.engine.weights()["encoder.head.dense.weight"], torch.rand(4)))  # what dropout would draw
    assert all(torch.equal(one, same) and not torch.equal(one, another) for one, same, another in zip(*starts, strict=True))
    fixed, _ = planned(place, "triplets", {**few, "seeds": [0, 1, 2], "methods.m.seed": 3})
    assert len(fixed.trials) == 1 and stage_of(fixed).seed == 3


def probabilities(place: Place, regularizers: Json, monkeypatch: pytest.MonkeyPatch) -> dict[str, Counter[float]]:
    """Of two steps: which share of values hidden dropout has set to zero, what attention and heads were dropped with."""
    found: dict[str, Counter[float]] = {name: Counter() for name in ("hidden", "attention", "heads")}
    made = opened(place, "triplets", {"methods.m.regularizers": regularizers, "training.epochs": 2})
    for module in made.session.engine.learner.modules():
        if isinstance(module, Dropout):
            module.register_forward_hook(
                lambda _, given, out: found["hidden"].update([round(float((out == 0).float().mean() - (given[0] == 0).float().mean()), 1)])
            )
    attention, add_norm, heads = cpp_kernels.attention, cpp_kernels.add_norm, fused_layer.head_scales

    def zeros(name: str, dropout_mask: DropoutMask | None) -> None:
        if dropout_mask is not None:
            found[name].update([round(float((factors(dropout_mask, (4096,)) == 0).double().mean()), 1)])

    def watched_attention(qkv: Any, layout: Any, dropout_mask: DropoutMask | None, **named: Any) -> Any:
        zeros("attention", dropout_mask)
        return attention(qkv, layout, dropout_mask, **named)

    def watched_norm(product: Tensor, bias: Tensor, dropout_mask: DropoutMask | None, *given: Any, **named: Any) -> Any:
        zeros("hidden", dropout_mask)
        return add_norm(product, bias, dropout_mask, *given, **named)

    def watched_heads(*given: Any, **named: Any) -> Tensor:
        scales = heads(*given, **named)
        found["heads"].update([round(float((scales == 0).float().mean()), 1)])
        return scales

    with monkeypatch.context() as patch:
        patch.setattr(cpp_kernels, "attention", watched_attention)
        patch.setattr(cpp_kernels, "add_norm", watched_norm)
        patch.setattr(fused_layer, "head_scales", watched_heads)
        run(made.session)
    return found


@covers(
    "Regularizers.attention_dropout", "Regularizers.hidden_dropout", "Regularizers.drophead", "Method.regularizers", "Train.regularizers"
)
@pytest.mark.parametrize(
    ("regularizers", "hidden", "attention", "heads"),
    [
        ({}, 0.2, 0.25, None),  # what the checkpoint was made with
        ({"attention_dropout": 0.0, "hidden_dropout": 0.5}, 0.5, None, None),
        ({"attention_dropout": 0.6, "hidden_dropout": 0.0}, 0.0, 0.6, None),
        ({"attention_dropout": 0.0, "hidden_dropout": 0.0, "drophead": 0.4}, 0.0, None, 0.4),
    ],
)
def test_dropouts_drop_what_the_recipe_says(
    place: Place, monkeypatch: pytest.MonkeyPatch, regularizers: Json, hidden: float, attention: float | None, heads: float | None
) -> None:
    found = probabilities(place, regularizers, monkeypatch)

    def mean(name: str) -> float | None:
        total = sum(found[name].values())
        return sum(value * count for value, count in found[name].items()) / total if total else None

    assert mean("hidden") == pytest.approx(hidden, abs=0.08)
    assert mean("attention") == (None if attention is None else pytest.approx(attention, abs=0.08))
    assert mean("heads") == (None if heads is None else pytest.approx(heads, abs=0.15))


@covers("Training.precision")
@pytest.mark.parametrize("objective", ["info_nce", "mlm"])  # the other one encodes by itself
def test_bf16_computes_layers_in_bfloat16(place: Place, monkeypatch: pytest.MonkeyPatch, objective: str) -> None:
    seen: dict[str, set[torch.dtype]] = {"fp32": set(), "bf16": set()}
    for precision, types in seen.items():
        made = opened(place, "triplets", {"training.precision": precision, "training.epochs": 1, f"{O}.name": objective})
        gelu = cpp_kernels.gelu

        def watched(product: Tensor, bias: Tensor, types: set[torch.dtype] = types, gelu: Any = gelu) -> Tensor:
            types.add(product.dtype)
            made: Tensor = gelu(product, bias)
            return made

        with monkeypatch.context() as patch:
            patch.setattr(cpp_kernels, "gelu", watched)
            run(made.session)
    assert seen == {"fp32": {torch.float32}, "bf16": {torch.bfloat16}}


def stopped_at(losses: list[float], *, patience: int, interval: int) -> int:
    """RCL's rule by hand: mean losses of intervals, stop when so many in a row bring no new lowest."""
    lowest, waited = float("inf"), 0
    for end in range(interval, len(losses) + 1, interval):
        mean = sum(losses[end - interval : end]) / interval
        waited = 0 if mean < lowest else waited + 1
        lowest = min(lowest, mean)
        if waited == patience:
            return end
    return len(losses)


@covers("Stopping.reading", "Stopping.patience", "Stopping.interval_fraction", "Method.stopping", "Train.stopping")
def test_training_stops_by_the_rule(place: Place) -> None:
    jumpy: dict[str, Json] = {"training.batch_size": 2, "training.epochs": 10, "training.learning_rate": 0.03, f"{O}.temperature": 0.05}
    losses = list(run(opened(place, "triplets", jumpy).session).losses)
    assert len(losses) == 40
    expected = {}
    for reading, patience, fraction, interval in (
        ("step", 3, None, 1),
        ("step", 6, None, 1),
        ("interval", 2, 0.4, 2),  # 1.6 steps
        ("interval", 2, 1.0, 4),
    ):
        stopping: dict[str, Json] = {"reading": reading, "patience": patience} | (
            {} if fraction is None else {"interval_fraction": fraction}
        )
        steps = len(run(opened(place, "triplets", {**jumpy, "methods.m.stopping": stopping}).session).losses)
        expected[reading, patience, fraction] = stopped_at(losses, patience=patience, interval=interval)
        assert steps == expected[reading, patience, fraction], stopping
    assert len(set(expected.values())) == len(expected) and max(expected.values()) < 40


@covers("Method.start", "Train.start", "EncoderSpec.checkpoint", "EncoderSpec.initialization", "Train.encoder", "Recipe.encoder")
def test_training_starts_from_what_is_named(place: Place) -> None:
    first: Json = {"objective": {"name": "info_nce"}, "regularizers": STILL, "training": {"learning_rate": 0.05}, "reported": False}
    name = "embeddings.word_embeddings.weight"

    def words(**changes: Json) -> Tensor:
        made = opened(place, "triplets", {key.replace("_at_", "."): value for key, value in changes.items()})
        return made.session.engine.weights()[f"encoder.model.{name}"]

    pretrained, other = (dict(Student(folder).model.named_parameters())[name].detach().float() for folder in (place.encoder, place.deeper))
    assert torch.equal(words(), pretrained)
    assert torch.equal(words(encoder_at_checkpoint=str(place.deeper)), other) and not torch.equal(pretrained, other)
    random = words(encoder_at_initialization="random")
    assert random.shape == pretrained.shape and float((random - pretrained).abs().mean()) > 0.1 and 0.01 < float(random.std()) < 0.03
    made = opened(place, "triplets", {"methods.first": first, "methods.m.start": "first"})
    assert made.stage.start is not None
    trained = dict(Student(folder_of(made.stage.start, made.context)).model.named_parameters())[name].detach().float()
    assert torch.equal(made.session.engine.weights()[f"encoder.model.{name}"], trained) and not torch.equal(trained, pretrained)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        (
            {O: {"name": "sum", "terms": [{"objective": {"name": "info_nce"}, "projected": True}, {"objective": {"name": "triplet"}}]}},
            "terms.0.head.dense.weight",
        ),
        ({"encoder.pooling": "cls_mlp"}, "pooling.dense.weight"),
    ],
)
def test_a_dense_layer_starts_as_wide_as_the_checkpoint_says(place: Place, tmp_path: Path, changes: dict[str, Json], name: str) -> None:
    checkpoint = str(maskable_encoder(tmp_path, initializer_range=0.3))
    start = start_of(opened(place, "triplets", {**changes, "encoder.checkpoint": checkpoint}).session)[name]
    assert float(start.std()) == pytest.approx(0.3, rel=0.1)  # 1024 draws: the error of a standard deviation is 2 %


@pytest.mark.parametrize("own", [{"layers": 1}, {"initialization": "random"}])
def test_what_a_start_settles_cannot_be_set_again(place: Place, own: dict[str, Json]) -> None:
    first: Json = {"objective": {"name": "info_nce"}, "regularizers": STILL, "reported": False}
    with pytest.raises(RecipeError, match=f"{next(iter(own))}.*has no effect"):
        planned(place, "triplets", {"methods.first": first, "methods.m.start": "first", "methods.m.encoder": own})


@covers("Regression.keep_head", "RSE.keep_relations")
def test_heads_are_kept_when_asked(place: Place) -> None:
    for family, field, objective, name in (
        ("graded", "keep_head", {"name": "regression", "slope": 2.0, "threshold": 0.25}, "head.linear.weight"),
        ("relations", "keep_relations", {"name": "rse"}, "table.vectors.weight"),
    ):
        first: Json = {"objective": objective, "regularizers": STILL, "reported": False}
        for keeps in (True, False):
            made = opened(place, family, {"methods.first": first, "methods.m.start": "first", O: {**objective, field: keeps}})
            before = opened(place, family, {"methods.m": first | {"reported": True}})
            run(before.session)
            assert torch.equal(start_of(made.session)[name], start_of(before.session)[name]) is keeps


@covers(
    "Method.bank", "Method.phis", "Method.bank_dtype", "Train.banks", "Bank.encoder", "Bank.corpus", "Bank.dtype", "Bank.max_length",
    "Bank.precision",
)  # fmt: skip
def test_banks_hold_what_the_entropy_encoders_say(place: Place) -> None:
    base = {**BANK, O: {"name": "rcl"}}
    tables = {}
    for name, changes in {
        "float32": {}, "float16": {"methods.m.bank_dtype": "float16"}, "short": {"methods.m.training": {"max_length": 4}},
        "bf16": {"methods.m.training": {"precision": "bf16"}},
    }.items():  # fmt: skip
        made = opened(place, "triplets", {**base, **changes})
        assert [bank.encoder.objective.phi for bank in made.stage.banks] == [0.3, 0.6]
        corpus = OpenedCorpus.open(folder_of(made.stage.corpus, made.context))
        sentences = corpus.sentences(np.arange(corpus.num_sentences))
        stored = FileBank([folder_of(bank, made.context) for bank in made.stage.banks]).rows(np.arange(len(sentences)))
        assert stored.dtype == (torch.float16 if name == "float16" else torch.float32)
        found = stored.float()
        students = [Student(folder_of(bank.encoder, made.context), max_length=4 if name == "short" else 20) for bank in made.stage.banks]
        said = torch.stack([student.encode(sentences).detach() for student in students])
        said = said.half().float() if name == "float16" else said.float()
        torch.testing.assert_close(found, said, rtol=0.05 if name == "bf16" else 1e-3, atol=0.05 if name == "bf16" else 1e-4)
        tables[name] = found
    exact = {name: float((table - table.half().float()).abs().max()) == 0.0 for name, table in tables.items()}
    assert exact == {"float32": False, "float16": True, "short": False, "bf16": False}
    assert float((tables["short"] - tables["float32"]).abs().max()) > 0.1 and float((tables["bf16"] - tables["float32"]).abs().max()) > 1e-3
    phis = opened(place, "triplets", {**base, "methods.m.phis": [0.6]}).stage.banks
    assert len(phis) == 1


@covers("Targets.corpus", "Targets.tagger", "Targets.num_words", "Train.targets", "Recipe.targets")
def test_targets_are_shares_of_tags_and_frequent_words(place: Place) -> None:
    auxiliary: Json = {"name": "sum", "terms": [{"objective": {"name": "info_nce"}}, {"objective": {"name": "auxiliary"}}]}
    for num_words in (5, 12):
        made = opened(place, "triplets", {O: auxiliary, "targets": {**TAGGER, "num_words": num_words}})
        assert made.stage.targets is not None
        found = FileTargets(folder_of(made.stage.targets, made.context))
        corpus = OpenedCorpus.open(folder_of(made.stage.corpus, made.context))
        sentences = corpus.sentences(np.arange(corpus.num_sentences))
        rows = found.rows(np.arange(len(sentences)))
        tagged = tag(sentences)
        for number, words in enumerate(tagged):
            counted = Counter(name for _, name in words)
            assert rows.pos[number] == pytest.approx([counted[name] / len(words) for name in found.tags])
        assert set(found.tags) == {name for words in tagged for _, name in words} and found.num_words == num_words
        often = Counter(word for words in tagged for word, _ in words if word in found.vocabulary)
        others = [word for words in tagged for word, _ in words if word not in found.vocabulary and word not in TAGS]
        assert min(often.values()) >= max(Counter(others).values(), default=0)


@covers("MaskedLM.mask_fraction")
def test_so_many_words_are_hidden_and_guessed(place: Place) -> None:
    from sentdist.objectives.learned.mlm import MaskedLMLoss

    for fraction in (0.15, 0.6):
        made = opened(place, "triplets", {O: {"name": "mlm", "mask_fraction": fraction}, "training.epochs": 1})
        (loss,) = (module for module in made.session.engine.learner.modules() if isinstance(module, MaskedLMLoss))
        seen: list[tuple[Tensor, Tensor, Tensor]] = []
        hide = loss._hide

        def watched_hide(ids: Tensor, *, hide: Any = hide, seen: Any = seen, **named: Any) -> tuple[Tensor, Tensor]:
            hidden, chosen = hide(ids, **named)
            seen.append((ids, hidden, chosen))
            return hidden, chosen

        loss._hide = watched_hide
        before = {name: tensor.double() for name, tensor in made.session.engine.weights().items()}
        (found,) = run(made.session).losses
        ((ids, hidden, chosen),) = seen
        words = (ids > 2).sum()  # padding, [CLS] and [SEP] come first
        assert float(chosen.sum() / words) == pytest.approx(fraction, abs=0.12)
        assert found == pytest.approx(_guessed(place, ids, hidden, chosen, before), rel=1e-4)


def _guessed(place: Place, ids: Tensor, hidden: Tensor, chosen: Tensor, weights: dict[str, Tensor]) -> float:
    """Mean −ln p of the hidden words: BERT's head by hand."""
    model = Student(place.encoder).model
    starts = [*(ids == 1).nonzero().flatten().tolist(), len(ids)]
    states = []
    for first, last in itertools.pairwise(starts):
        states.append(model(input_ids=hidden[None, first:last]).last_hidden_state[0])
    at = torch.cat(states)[chosen]
    inner = torch.nn.functional.gelu(at @ weights["heads.head.dense.weight"].T + weights["heads.head.dense.bias"])
    inner = torch.nn.functional.layer_norm(
        inner, inner.shape[-1:], weights["heads.head.norm.weight"], weights["heads.head.norm.bias"], 1e-12
    )
    logits = inner @ weights["encoder.model.embeddings.word_embeddings.weight"].T + weights["heads.head.decoder.bias"]
    return float(-torch.log_softmax(logits.detach(), 1).gather(1, ids[chosen][:, None]).mean())
