"""What is refused while planning: each line changes the small recipe, and the error says what stands behind the bar.

`new` is a method that is added to those of the small recipe; all else replaces a section.
"""

from __future__ import annotations

import pytest

from sentdist.errors import RecipeError
from sentdist.plan.recipe import recipe_from_values
from sentdist.plan.stage import Json
from sentdist.plan.wording import parsed_yaml
from tests.support.planning import plan_of, small_values, with_method

CORPORA: Json = {
    "graded": {"kind": "graded", "parts": [{"source": "sts/stsb", "scale": "zero_to_five"}]},
    "groups": {"kind": "groups", "parts": [{"source": "nli/snli"}], "num_positives": 2, "num_negatives": 2},
    "group": {"kind": "groups", "parts": [{"source": "nli/snli"}], "num_positives": 1, "num_negatives": 2},
    "pairs": {"source": "nli/pairs", "columns": ["one", "two"]},
}

VALUES = """
name: Two Words | name
seeds: [1, 1] | expected each seed once
methods: {} | methods
baseline: bass | Did you mean "base"?
headline: rcll, baseline: base | headline: "rcll" is not one of
headline: rcl | headline: has no effect without a baseline
encoder: minilm-l6 | such as {checkpoint: minilm-l6}
folds: {} | a retrieval corpus
training: {epochs: 1000000000000000000} | training.epochs: found
training: {learning_rate: -1.0} | training.learning_rate
training: {learning_rate: true} | training.learning_rate: found true; expected a number
training: {batch_size: 1} | training.batch_size
training: {batch_size: 20000} | 20000 rows per batch, 10000 in the corpus
training: {batch_size: 4}, runtime: {workers: 4} | 4 rows for 4 workers
runtime: {workers: 4, gpus_per_worker: 0.25} | runtime.gpus_per_worker: found 0.25 with 4 workers
runtime: {device: gpu} | Did you mean "cuda"?
"""

UNKNOWN_KEYS = """
evalution: {tasks: [stsb]} | evalution: unknown key; did you mean "evaluation"
lr: 1e-5 | did you mean "training.learning_rate"?
steps: 10 | unknown key; known are name
encoder: {checkpoint: minilm-l6, precision: bf16} | known are checkpoint, revision
evaluation: {tasks: [stsb], links: {poool: 5}} | evaluation.links.poool: unknown key; did you mean "pool"
corpora: {g: {kind: graded, source: sts/stsb}} | did you mean "parts[].source"
corpora: {g: {kind: graded, parts: [{source: sts/stsb, clumns: [a, b]}]}} | corpora.g.parts.0.clumns: unknown key; did you mean "columns"
new: {weight: 0.5} | did you mean "objective.terms"?
new: {objective: {name: rcl, bank: entropy}} | did you mean "methods.new.bank"?
new: {view: {relations: {weights: {duplicates: 1.0}, direction: one}}} | view.relations.direction: unknown key; did you mean "directions"
"""

TASKS = """
evaluation: {tasks: [stsd]} | "stsd" is no task
evaluation: {tasks: []} | evaluation.tasks
evaluation: {tasks: [own-dev]} | Held-out rows of a corpus of kind own are always called own
evaluation: {tasks: [mr-dev]} | Use mr; mr-dev is for selection.task
selection: {task: transfer} | cannot choose checkpoints
selection: {task: stsb-dev+sickr-dve} | Did you mean "sickr-dev"?
selection: {task: stsb-dev+stsb-dev} | expected each task once
selection: {task: stsb-dev+stackfaq} | found tasks of retrieval and of sts
selection: {task: transfer-dev, limit: 40} | selection.limit: found 40 beside mr-dev
selection: {task: "clustering=my/data"} | cannot choose checkpoints
selection: {task: "classification=my/data"} | sts=SOURCE
selection: {task: "sts=my/pairs+retrieval=my/bank"} | tasks of one kind
"""

CORPUS = """
corpus: {source: nli/triplets, columns: [sent0], add_reversed: true} | add_reversed: found one column
corpus: {source: nli/triplets, columns: [a, b, c, d]} | found 4 columns
corpus: {source: nli/triplets, document_field: question} | corpus.document_field: found a field without effect on rows
corpus: {source: retrieval/stackfaq, split: null, columns: [a, b]}, folds: {num: 5}, corpora: {} | corpus.columns
corpus: {kind: own, file: a.csv, encoding: latein} | corpus.encoding: found 'latein'
corpora: {other: {source: nli/triplets, limit_seed: 4}} | corpora.other.limit_seed: found no limit
corpora: {short: {like: corpsu}} | Did you mean "corpus"
corpora: {one: {like: two}, two: {like: one}} | found one → two → one; expected no cycle
corpora: {one: {like: corpus, relations: 1.5}} | corpora.one.relations: found 1.5; expected a list of relations
corpora: {short: {like: corpus}}, sweep: {corpus.limit: [5, 6]} | would keep their values
corpora: {g: {kind: groups, parts: [{source: nli/snli}], num_positives: 1, num_negatives: 1, augmentation: {name: paraphrases}}} | checkpoint
corpora: {g: {kind: groups, parts: [{source: nli/snli}], num_positives: 1, num_negatives: 1, augmentation: {name: synonym}}} | synonyms
"""

SWEEPS = """
sweep: {training: {epochs: [1, 2]}} | {training.epochs: [1, 2]}
sweep: {training.batch_size: []} | found no value
sweep: {training.batch_size: [32, 64, 32]} | expected each value once. Keep only one 32.
sweep: {training.bach_size: [32, 64]} | did you mean "batch_size"
sweep: {runtime.log_every: [1, 2]} | 2 values that lead to the same stages
sweep: {methods.rlc.select: [true, false]} | Did you mean "rcl"
sweep: {methods.rcl.phis: [[], [0.01]]} | found an empty set
sweep: {corpus.held_out.seed: [0, 1]}, corpus: {kind: own, file: a.csv} | decides which rows are held out
sweep: {corpus.source: [retrieval/a]}, corpus: {source: retrieval/a, split: null}, folds: {num: 3} | decides which rows are held out
"""

METHODS = """
methods: {m: null} | methods.m: found nothing; expected fields
methods: {a: {objective: {name: info_nce}, start: b}, b: {objective: {name: info_nce}, start: a}} | a → b → a
new: {objective: {name: entropi, phi: 0.1}} | Did you mean "entropy"?
new: {objective: {name: entropy}} | methods.new.objective.phi: found nothing
new: {objective: {name: info_nce, temperature: 0}} | methods.new.objective.temperature
new: {objective: {info_nce: {temperature: 0.05}}} | Write {name: info_nce, temperature: 0.05}
new: {objective: {name: rcl}} | methods.new.bank: found nothing
new: {objective: {name: rcl}, bank: entropi} | methods.new.bank: "entropi" is not one of
new: {objective: {name: rcl}, bank: fine_tuned, phis: [0.01]} | a bank whose objective has a phi
new: {objective: {name: rcl}, bank: entropy, phis: []} | methods.new.phis: found an empty set
new: {objective: {name: rcl}, bank: entropy, phis: [0.1, 0.1]} | expected each value once
new: {objective: {name: rcl}, bank: entropy, phis: [high]} | methods.new.phis.0
new: {objective: {name: info_nce}, bank: entropy} | methods.new.bank: has no effect
new: {objective: {name: info_nce}, phis: [0.1]} | methods.new.phis: has no effect
new: {objective: {name: info_nce}, bank_dtype: float32} | methods.new.bank_dtype: found no bank
new: {objective: {name: info_nce}, shapes: [pairs]} | shapes: has no effect on a corpus of kind rows
new: {objective: {name: info_nce}, start: bse} | Did you mean "base"?
new: {objective: {name: info_nce}, start: fine_tuned, encoder: {layers: 2}} | methods.new.encoder.layers: found 2 beside a start
new: {objective: {name: info_nce}, title: fine_tuned} | methods.new.title: found "fine_tuned"
new: {objective: {name: info_nce}, training: {epochs: 0}} | methods.new.training.epochs
new: {objective: {name: info_nce}, stopping: {reading: step, interval_fraction: 0.2}} | methods.new.stopping
new: {training: {epochs: 2}} | methods.new.training: has no effect
new: {start: fine_tuned} | methods.new.start: has no effect on the untouched checkpoint
new: {seed: 0} | methods.new.seed: has no effect on the untouched checkpoint
new: {of: fine_tuned, encoder: {pooling: cls}} | methods.new.of: scores the encoder of another method
"""

OBJECTIVES = """
new: {objective: {name: regression, loss: mse}} | rows without labels
new: {objective: {name: rse}} | rows without relations
new: {corpus: grops, objective: {name: supmpn}} | "grops" is not one of
new: {corpus: graded, objective: {name: supmpn}} | most of which are not positives
new: {corpus: groups, objective: {name: info_nce}} | 2 positives per anchor
new: {corpus: group, objective: {name: triplet}} | Set num_negatives: 1
new: {corpus: pairs, objective: {name: supmpn}} | no hard negatives
new: {objective: {name: regulators}, bank: entropy} | regulators alone
new: {objective: {name: sum, terms: [{}, {}]}} | terms.0.objective: found nothing; expected fields
new: {objective: {name: sum, terms: [{objective: {name: info_nce}}]}} | at least 2
new: {objective: {name: sum, terms: [{objective: {name: info_nce}}, {objective: {name: info_nce}}]}} | info_nce twice
new: {objective: {name: sum, terms: [{objective: {name: info_nce}}, {objective: {name: regulators}}]}} | methods.new.bank: found nothing
new: {objective: {name: sum, terms: [{objective: {name: mlm}}, {wieght: 1, objective: {name: mlm}}]}} | terms.1.wieght: unknown key
new: {training: {freeze_encoder: true}, objective: {name: info_nce}} | freeze_encoder with info_nce: found no parameters of its own
new: {training: {freeze_encoder: true}, objective: {name: symmetric_info_nce}} | found no parameters of its own
new: {training: {freeze_encoder: true}, objective: {name: mlm}} | methods.new.select: found stsb-dev
new: {training: {freeze_encoder: true, layer_decay: 0.95}, select: false, objective: {name: mlm}} | layer_decay: found 0.95
"""


@pytest.mark.parametrize("table", ["VALUES", "UNKNOWN_KEYS", "TASKS", "CORPUS", "SWEEPS", "METHODS", "OBJECTIVES"])
def test_a_recipe_that_makes_no_sense_is_refused(table: str) -> None:
    for line in globals()[table].strip().splitlines():
        written, _, said = line.rpartition(" | ")
        changes = parsed_yaml(f"{{{written}}}", where="here", expected="", remedy="")
        assert isinstance(changes, dict)
        base = with_method(new=changes.pop("new")) if "new" in changes else small_values()
        with pytest.raises(RecipeError) as caught:
            plan_of(recipe_from_values({"corpora": CORPORA, **base, **changes}, where="small.yaml"))
        assert said in str(caught.value), line
