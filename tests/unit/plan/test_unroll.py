"""Unrolling: which stages a recipe comes to, what trials share, and what is refused before any work."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from sentdist.errors import RecipeError
from sentdist.objectives.entropy import Entropy
from sentdist.objectives.rcl import RCL
from sentdist.plan.recipe import recipe_from_values
from sentdist.plan.recipe_tasks import pinned_task
from sentdist.plan.resolver import Pin
from sentdist.plan.specs import Task
from sentdist.plan.stage import Json
from sentdist.plan.stages import Bank, Train
from sentdist.plan.unroll import Plan, unroll
from tests.support.planning import FixedResolver, plan_of, small_recipe, with_method
from tests.support.planning import small_values as small

PAPER_SETS: list[Json] = [[round(0.01 * n, 2) for n in range(1, last + 1)] for last in range(1, 6)]


def _kinds(plan: Plan) -> Counter[str]:
    return Counter(stage.kind for stage in plan.stages)


def _entropy_trainings(plan: Plan) -> list[Train]:
    return [stage for stage in plan.stages if isinstance(stage, Train) and isinstance(stage.objective, Entropy)]


def _refusal(**changes: Json) -> str:
    with pytest.raises(RecipeError) as caught:
        plan_of(small_recipe(**changes))
    return str(caught.value)


def test_the_paper_s_grid_builds_ten_entropy_encoders_for_thirty_mentions() -> None:
    methods = {name: method for name, method in _methods().items() if name in ("entropy", "rcl")}
    plan = plan_of(small_recipe(methods=methods, sweep={"training.batch_size": [32, 64], "methods.rcl.phis": PAPER_SETS}))
    entropy = _entropy_trainings(plan)
    assert len(plan.trials) == 10
    assert len(entropy) == 10
    assert sum(plan.mentions[stage.key] for stage in entropy) == 30
    assert _kinds(plan) == {"corpus": 1, "train": 20, "bank": 10, "scores": 10}


def test_another_seed_adds_only_what_it_changes() -> None:
    one, two = plan_of(small_recipe()), plan_of(small_recipe(seeds=[0, 1]))
    before, after = ({stage.key for stage in plan.stages} for plan in (one, two))
    assert before < after
    assert _kinds(two) - _kinds(one) == {"train": 4, "bank": 2, "scores": 2}


def test_a_method_with_a_seed_of_its_own_is_one_training_for_all_seeds() -> None:
    first: Json = {"objective": {"name": "info_nce"}, "seed": 7}
    second: Json = {"objective": {"name": "info_nce", "temperature": 0.5}, "start": "first"}
    plan = plan_of(recipe_from_values(with_method(first=first, second=second) | {"seeds": [0, 1, 2]}, where="x.yaml"))
    assert [trial.seed for trial in plan.trials if trial.method == "first"] == [7]
    assert [trial.seed for trial in plan.trials if trial.method == "second"] == [0, 1, 2]
    starts = {stage.start.key for stage in plan.stages if isinstance(stage, Train) and stage.start is not None}
    assert starts == {trial.scores.inputs[0].key for trial in plan.trials if trial.method == "first"}
    assert "base.seed: has no effect on the untouched checkpoint" in _refusal(methods={"base": {"seed": 0}})


def test_the_untouched_checkpoint_is_one_trial_for_all_seeds_and_grid_points() -> None:
    plan = plan_of(small_recipe(seeds=[0, 1, 2], sweep={"training.batch_size": [32, 64]}))
    base = [trial for trial in plan.trials if trial.method == "base"]
    assert [(trial.seed, trial.params) for trial in base] == [(None, ())]


def test_two_grid_fields_with_one_last_word_are_distinguished() -> None:
    """A row said `temperature` twice, and nobody knew whose was which."""
    grid: dict[str, Json] = {f"methods.{name}.objective.temperature": [0.05, 0.1] for name in ("entropy", "rcl")}
    cells = [trial.cell for trial in plan_of(small_recipe(sweep=grid)).trials]
    assert "rcl (entropy.objective.temperature=0.05, rcl.objective.temperature=0.1)" in cells and len(set(cells)) == len(cells)


def test_a_grid_value_is_named_only_where_it_matters() -> None:
    plan = plan_of(small_recipe(sweep={"methods.rcl.phis": [[0.01], [0.01, 0.02]]}))
    cells = [trial.cell for trial in plan.trials]
    assert cells == ["base", "fine_tuned", "rcl (phis={0.01})", "rcl (phis={0.01, 0.02})"]


def test_the_order_of_a_phi_set_does_not_matter() -> None:
    values = [with_method(rcl={"objective": {"name": "rcl"}, "bank": "entropy", "phis": phis}) for phis in ([0.02, -0.01], [-0.01, 0.02])]
    first, second = (plan_of(small_recipe(**value)) for value in values)
    assert {trial.key for trial in first.trials} == {trial.key for trial in second.trials}
    assert sorted(stage.objective.phi for stage in _entropy_trainings(first) if isinstance(stage.objective, Entropy)) == [-0.01, 0.02]


def test_runtime_changes_no_key() -> None:
    runtimes: list[Json] = [{}, {"workers": 2, "zero_stage": 3, "log_every": 1, "rows_per_shard": 100}, {"workers": 2, "engine": "torch"}]
    first, second, third = (plan_of(small_recipe(runtime=runtime)) for runtime in runtimes)
    assert [stage.key for stage in first.stages] == [stage.key for stage in second.stages] == [stage.key for stage in third.stages]


def test_a_default_that_is_written_out_is_the_default() -> None:
    explicit: Json = {"objective": {"name": "rcl", "temperature": 0.05, "regulator_temperature": 0.05}, "bank": "entropy", "phis": [0.01]}
    implicit: Json = {"objective": {"name": "rcl", "temperature": 0.05}, "bank": "entropy", "phis": [0.01]}
    keys = [{trial.key for trial in plan_of(small_recipe(**with_method(rcl=method))).trials} for method in (explicit, implicit)]
    assert keys[0] == keys[1]


@pytest.mark.parametrize(
    ("corpus", "shown"),
    [
        ({"source": "nli/triplets", "document_field": "question"}, r"corpus\.document_field: found a field without effect on rows"),
        ({"source": "retrieval/stackfaq", "split": None, "columns": ["question", "answer"]}, r"corpus\.columns: found a field without eff"),
    ],
)
def test_a_field_of_the_other_kind_of_source_is_refused(corpus: Json, shown: str) -> None:
    """It changed the key and nothing else, or nothing at all."""
    values = small(corpus=corpus, selection=None) | ({"folds": {"num": 5}} if "retrieval" in str(corpus) else {})
    with pytest.raises(RecipeError, match=shown):
        plan_of(recipe_from_values(values, where="here"))


def test_a_seed_that_draws_nothing_and_a_type_of_no_bank_are_refused() -> None:
    """They changed the key alone, or nothing at all."""
    with pytest.raises(RecipeError, match=r"corpora\.other\.limit_seed: found no limit"):
        plan_of(small_recipe(corpora={"other": {"source": "nli/triplets", "limit_seed": 4}}))
    with pytest.raises(RecipeError, match=r"methods\.fine_tuned\.bank_dtype: found no bank"):
        plan_of(small_recipe(**with_method(fine_tuned={"objective": {"name": "info_nce"}, "bank_dtype": "float32"})))


def test_two_columns_mean_no_hard_negatives() -> None:
    plan = plan_of(small_recipe(corpus={"source": "nli/triplets", "columns": ["sent0", "sent1"]}))
    assert {stage.objective.hard_negatives for stage in plan.stages if isinstance(stage, Train)} == {False}


def test_a_final_training_may_start_elsewhere_than_its_entropy_encoders() -> None:
    """RCL's FAQ protocol: initial → entropy encoders → final from the pretrained one."""
    methods: Json = {
        "initial": {"objective": {"name": "info_nce"}, "reported": False},
        "entropy": {"objective": {"name": "entropy", "phi": 0.01}, "start": "initial", "reported": False},
        "rcl": {"objective": {"name": "rcl"}, "bank": "entropy", "phis": [0.01, 0.02]},
    }
    plan = plan_of(small_recipe(methods=methods))
    (final,) = [stage for stage in plan.stages if isinstance(stage, Train) and isinstance(stage.objective, RCL)]
    starts = [bank.encoder.start for bank in final.banks]
    assert final.start is None
    assert len({start.key for start in starts if start is not None}) == 1
    assert _kinds(plan) == {"corpus": 1, "train": 4, "bank": 2, "scores": 1}


def test_a_bank_embeds_the_corpus_of_its_method_as_that_reads_it() -> None:
    rcl: Json = {"objective": {"name": "rcl"}, "bank": "entropy", "corpus": "few", "training": {"max_length": 20, "precision": "bf16"}}
    values = with_method(rcl=rcl) | {"corpora": {"few": {"source": "nli/triplets", "limit": 5000}}}
    plan = plan_of(recipe_from_values(values, where="x.yaml"))
    found = [
        (bank.corpus.label, bank.max_length, bank.precision, bank.encoder.corpus.label) for bank in plan.stages if isinstance(bank, Bank)
    ]
    assert found == [("nli-triplets-5000", 20, "bf16", "nli-triplets")]


def test_a_bank_without_phis_is_one_encoder() -> None:
    plan = plan_of(small_recipe(**with_method(rcl={"objective": {"name": "rcl"}, "bank": "fine_tuned"})))
    assert _kinds(plan)["bank"] == 1


def test_folds_give_each_fold_its_corpus_dev_and_test() -> None:
    plan = plan_of(
        small_recipe(
            corpus={"source": "retrieval/stackfaq", "split": None},
            folds={"num": 5},
            selection={"task": "stackfaq"},
            evaluation={"tasks": ["stackfaq"]},
        )
    )
    trials = [trial for trial in plan.trials if trial.method == "fine_tuned"]
    assert [trial.fold for trial in trials] == [0, 1, 2, 3, 4]
    for trial in trials:
        train = trial.scores.encoder
        assert isinstance(train, Train)
        assert getattr(train.corpus, "fold", None) == trial.scores.tasks[0].fold is not None
        assert trial.scores.tasks[0].fold_role == "test"
        assert train.selection is not None
        assert train.selection.task.fold_role == "dev"
    assert next(iter(plan.rows.values())) == 6000  # three of five folds train


def test_what_no_fold_changes_is_one_trial_of_the_first_fold() -> None:
    changes: dict[str, Json] = {"corpus": {"source": "retrieval/stackfaq", "split": None}, "evaluation": {"tasks": ["stsb"]}}
    plan = plan_of(small_recipe(folds={"num": 5}, selection={"task": "stackfaq"}, **changes))
    folds = {method: [trial.fold for trial in plan.trials if trial.method == method] for method in ("base", "fine_tuned")}
    assert folds == {"base": [0], "fine_tuned": [0, 1, 2, 3, 4]}


def test_folds_hold_for_each_retrieval_collection_that_trains() -> None:
    """A method that trains on another collection than the recipe's is tested on that collection's fold, and reads its documents alike."""
    changes: dict[str, Json] = {
        "corpus": {"source": "retrieval/cranfield", "split": None},
        "corpora": {"faq": {"source": "retrieval/stackfaq", "split": None, "document_field": "question_answer"}},
        "folds": {"num": 5},
        "selection": {"task": "stackfaq"},
        "evaluation": {"tasks": ["cranfield", "stackfaq", "scifact"]},
        "methods": {"faq": {"corpus": "faq", "objective": {"name": "info_nce"}}},
    }
    for trial in plan_of(small_recipe(**changes)).trials:
        train = trial.scores.encoder
        assert isinstance(train, Train) and train.selection is not None
        fold = getattr(train.corpus, "fold", None)
        found = {task.name: (task.fold, task.fold_role, task.document_field) for task in trial.scores.tasks if isinstance(task, Task)}
        assert fold is not None and found == {
            "cranfield": (fold, "test", "answer"),
            "stackfaq": (fold, "test", "question_answer"),
            "scifact": (None, None, "answer"),
        }
        assert isinstance(train.selection.task, Task) and (train.selection.task.fold, train.selection.task.fold_role) == (fold, "dev")


def test_documents_are_read_alike_by_tasks_that_have_documents_alone() -> None:
    corpus: Json = {"source": "retrieval/stackfaq", "split": None, "document_field": "question_answer"}
    changes: dict[str, Json] = {"corpus": corpus, "folds": {"num": 3}, "selection": {"task": "stackfaq"}}
    plan = plan_of(small_recipe(evaluation={"tasks": ["stackfaq", "stsb"]}, methods={"base": {}}, **changes))
    found = [(task.name, task.document_field) for task in plan.trials[0].scores.tasks if isinstance(task, Task)]
    assert found == [("stackfaq", "question_answer"), ("stsb", "answer")]


class Splits(FixedResolver):
    """Notes which splits it is asked for, and of which revision."""

    def __init__(self) -> None:
        super().__init__()
        self.splits: list[tuple[str | None, str | None]] = []

    def source(
        self, name: str, *, split: str | None, revision: str | None, columns: tuple[str, ...], where: str, judged: bool = False
    ) -> Pin:
        self.splits.append((split, revision))
        return super().source(name, split=split, revision=revision, columns=columns, where=where)


@pytest.mark.parametrize(
    ("task", "splits"),
    [
        ("sst2", [("test", None), ("train", None), ("dev", None)]),
        ("sts=hub:owner/pairs#c0ffee@dev", [("dev", "c0ffee")]),
    ],
)
def test_planning_looks_at_every_split_that_a_task_reads(task: str, splits: list[tuple[str | None, str | None]]) -> None:
    resolver = Splits()
    pinned_task(task, resolver)
    assert resolver.splits == splits


def test_probes_look_for_what_stands_in_a_method_s_own_corpus() -> None:
    objective: Json = {"name": "info_nce"}
    plan = plan_of(
        small_recipe(
            corpora={"few": {"source": "nli/triplets", "limit": 5000}},
            evaluation={"tasks": ["stsb"], "probes": {}},
            methods={"all": {"objective": objective}, "few": {"objective": objective, "corpus": "few"}},
        )
    )
    found = {trial.method: (trial.scores.encoder, trial.scores.targets) for trial in plan.trials}
    assert [getattr(encoder, "corpus", None) == targets.corpus for encoder, targets in found.values() if targets] == [True, True]
    assert _kinds(plan) == {"corpus": 2, "train": 2, "targets": 2, "scores": 2}


class ShortResolver(FixedResolver):
    """Knows one encoder that takes few tokens."""

    def encoder(self, checkpoint: str, *, revision: str | None, where: str) -> Pin:
        return replace(super().encoder(checkpoint, revision=revision, where=where), most_tokens=40 if checkpoint == "short" else 512)


def test_another_reading_of_an_encoder_takes_no_more_tokens_than_that_encoder() -> None:
    trained: Json = {
        "objective": {"name": "info_nce"},
        "encoder": {"checkpoint": "short"},
        "training": {"max_length": 40},
        "reported": False,
    }
    recipe = small_recipe(methods={"first": trained, "again": {"of": "first"}}, evaluation={"tasks": ["stsb"], "max_length": 100})
    with pytest.raises(RecipeError, match=r"evaluation\.max_length: found 100, where short takes 40 tokens"):
        unroll(recipe, ShortResolver())


def test_each_source_is_pinned_by_the_resolver() -> None:
    resolver = FixedResolver()
    plan = unroll(small_recipe(), resolver)
    assert {"nli/triplets", "sts/stsb"} == set(resolver.asked)
    assert all(
        stage.encoder.corpus is stage.corpus or stage.encoder.corpus == stage.corpus for stage in plan.stages if isinstance(stage, Bank)
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training": {"batch_size": 4}, "runtime": {"workers": 4}}, "4 rows for 4 workers"),
        ({"training": {"batch_size": 20000}}, "20000 rows a batch, 10000 in the corpus"),
        ({"corpus": {"source": "nli/triplets", "limit": 32}}, "64 rows a batch, 32 in the corpus"),
        ({"folds": {}}, "a retrieval corpus"),
        ({"seeds": list(range(7000)), "folds": {"num": 5}}, "140,000 trials (points of the grid × methods × seeds × folds)"),
        ({"sweep": {"training.batch_size": []}}, "sweep.training.batch_size: found no value"),
        ({"sweep": {"training.bach_size": [32, 64]}}, 'did you mean "batch_size"'),
        ({"sweep": {"methods.rlc.select": [True, False]}}, 'Did you mean "rcl"'),
        ({"sweep": {"runtime.log_every": [1, 2]}}, "2 values that lead to the same stages"),
        (
            {"sweep": {"training.batch_size": [32, 64, 32]}},
            "sweep.training.batch_size: found [32, 64, 32]; expected each value once. Keep only one 32.",
        ),
        ({"sweep": {"training.learning_rate": [1e-5, 2e-5, 0.00001, 1e-5]}}, "expected each value once. Keep only one 1e-05."),
        ({"sweep": {"methods.rcl.phis": [[0.01], [0.01]]}}, "Keep only one [0.01]."),
        ({"sweep": {"training.weight_decay": [1, 2, 1.0, 2]}}, "Keep only one 1 and only one 2."),
        ({"sweep": {"methods.rcl.phis": [[], [0.01]]}}, "found an empty set"),
    ],
)
def test_what_cannot_work_is_refused_while_planning(changes: dict[str, Json], message: str) -> None:
    assert message in _refusal(**changes)


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        (
            {
                "a": {"objective": {"name": "info_nce"}, "start": "b"},
                "b": {"objective": {"name": "info_nce"}, "start": "a"},
            },
            "a → b → a",
        ),
        ({"rcl": {"objective": {"name": "rcl"}, "bank": "fine_tuned", "phis": [0.01]}}, "a bank whose objective has a phi"),
        ({"rcl": {"objective": {"name": "rcl"}, "bank": "base"}}, "methods.rcl.bank"),
        ({"again": {"objective": {"name": "info_nce"}, "start": "base"}}, "methods.again.start"),
    ],
)
def test_methods_that_lead_nowhere_are_refused(methods: dict[str, Json], message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        plan_of(small_recipe(**with_method(**methods)))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [("checkpoint", "minilm-l12"), ("revision", "sha256:2222222222222222"), ("initialization", "random"), ("layers", 2)],
)
def test_what_a_start_has_settled_is_not_set_beside_it(field: str, value: Json) -> None:
    objective: Json = {"name": "info_nce"}
    own: Json = {"objective": objective, "encoder": {field: value}}
    second: Json = {"start": "first", "objective": objective, "encoder": {field: value}}
    with pytest.raises(RecipeError) as caught:
        plan_of(small_recipe(methods={"first": {"objective": objective}, "second": second}))
    assert f"methods.second.encoder.{field}: found {value} beside a start that has " in str(caught.value)
    assert _kinds(plan_of(small_recipe(methods={"first": own, "second": second}))) == {"corpus": 1, "train": 2, "scores": 2}


def _methods() -> dict[str, Json]:
    methods = small()["methods"]
    assert isinstance(methods, dict)
    return methods
