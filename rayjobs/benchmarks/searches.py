"""What searches are worth and cost: `python -m rayjobs.benchmarks.searches lattice|killed|machinery --store DIR [--data DIR]`.

lattice: every point of a small lattice is trained; searches over it are then replayed from its stages, with many seeds of the searcher.
killed: a search whose process is killed at random moments and submitted again, beside one left alone.
machinery: processor time of a search that is not training: all trainings are pretended.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy import stats

from rayjobs.benchmarks import out_file
from sentdist.recipe.recipe import recipe_from_values
from sentdist.recipe.stage import Json
from sentdist.recipe.stages import Train
from sentdist.run import local, search
from sentdist.run.local import search_in_process
from sentdist.stages.context import Context
from sentdist.stages.planned import planned_search
from sentdist.stages.rung_records import RungScore
from sentdist.store.searches import SearchRecord, find_search
from sentdist.store.store import ArtifactStore
from sentdist.text import PrintLine, markdown_table
from sentdist.tracking.tracker import Tracker

POINT = 0.1  # of a dev score × 100: what counts as the same
BUDGETS = (5, 10, 15, 20, 30)  # trials at which searchers are compared
TRIAL_S = 30.0  # of the trials that the cost of the machinery is held against


def main(argv: Sequence[str] | None = None) -> None:
    """Run one of them and print what it found."""
    parser = argparse.ArgumentParser(prog="python -m rayjobs.benchmarks.searches", description=(__doc__ or "").partition("\n\n")[2],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("what", choices=["lattice", "killed", "machinery"])
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=os.environ.get("SENTDIST_DATA"))
    parser.add_argument("--seeds", type=int, default=20, help="lattice: of the searcher")
    parser.add_argument("--trials", type=int, default=100, help="machinery")
    parser.add_argument("--out", type=out_file, help="also write it there")
    asked = parser.parse_args(argv)
    match asked.what:
        case "lattice":
            said = lattice(asked.store, asked.data, num_seeds=asked.seeds)
        case "killed":
            said = killed(asked.store, random.Random(0))
        case _:
            said = machinery(asked.store, num_trials=asked.trials)
    print(said)
    if asked.out:
        asked.out.write_text(said + "\n")


def lattice(store: Path, data: Path | None, *, num_seeds: int) -> str:
    """Train the lattice, then replay searches over it."""
    whole = _searched(store, data, "lattice", suggest="grid", print_line=print)
    halved = [_searched(store, data, "halved", suggest="random", seed=seed, samples=len(whole.trials), halving=HALVING)
              for seed in range(num_seeds)]  # fmt: skip
    ways = {way: [bests(_searched(store, data, way, suggest=way, seed=seed, samples=len(whole.trials))) for seed in range(num_seeds)]
            for way in ("random", "tpe")}  # fmt: skip
    return "\n\n".join([halving_page(whole, halved), searchers_page(ways)])


HALVING: Json = {"rungs": [0.1, 0.3, 1.0], "keep": 1 / 3}


def lattice_values(name: str, **search: Json) -> dict[str, Json]:
    """Eq. 1 from the lowest layer of MiniLM, on 160 triplets of NLI: 42 points of learning rate and temperature, ten dev scores each."""
    return {
        "name": name,
        "encoder": {"checkpoint": "minilm-l6", "layers": 1},
        "corpus": {"source": "nli/triplets", "split": "train", "limit": 160},
        "training": {"batch_size": 8, "epochs": 1, "max_length": 32, "warmup_fraction": 0.0, "precision": "bf16"},
        "selection": {"task": "sickr-dev", "every_fraction": 0.1},
        "evaluation": {"tasks": ["stsb"]},
        "seeds": [0],
        "methods": {"eq1": {"objective": {"name": "info_nce", "temperature": 0.05}}},
        "search": {
            "space": {
                "training.learning_rate": {"log": [1e-5, 1e-2], "steps": 7},
                "methods.eq1.objective.temperature": {"log": [0.0125, 0.4], "steps": 6},
            },
            **search,
        },
        "runtime": {"engine": "torch", "workers": 1, "cpus_per_worker": 1},
    }


def _searched(store: Path, data: Path | None, name: str, *, print_line: PrintLine = lambda line: None, **search: Json) -> SearchRecord:
    values = lattice_values(f"{name}-{search['seed']}" if "seed" in search else name, **search)
    return search_in_process(
        *planned_search(recipe_from_values(values, where=name), store=str(store), data=data), Tracker(), print_line=print_line
    )


def bests(record: SearchRecord) -> list[float]:
    """The best dev score after 1, 2, … finished trials, in the order of suggestions."""
    finished = sorted((trial for trial in record.trials if trial.state == "finished"), key=lambda trial: trial.number)
    return np.maximum.accumulate([trial.dev or 0.0 for trial in finished]).tolist()


def sentences(record: SearchRecord) -> int:
    """Trained on until the last rung of each trial."""
    return sum(trial.rungs[-1].sentences for trial in record.trials if trial.rungs)


def halving_page(whole: SearchRecord, halved: Sequence[SearchRecord]) -> str:
    """What halving reaches of the grid's dev score, for which share of its sentences."""
    best, paid = bests(whole)[-1], sentences(whole)
    gaps = [best - bests(record)[-1] for record in halved]
    shares = [100 * sentences(record) / paid for record in halved]
    within = sum(gap <= POINT + 1e-9 for gap in gaps)
    low = sum(share <= 40.0 for share in shares)
    scores = [trial.dev or 0.0 for trial in whole.trials]
    return (
        f"Grid of {len(scores)} trainings, {paid:,} sentences: best dev score {best:.2f}, median {np.median(scores):.2f}, worst "
        f"{min(scores):.2f}; {sum(score > best - POINT for score in scores)} within {POINT} of the best.\n\nHalving in {len(halved)} "
        f"random orders: {np.mean(shares):.1f} % of the sentences ({min(shares):.1f} to {max(shares):.1f}; at most 40 % in {low}); "
        f"{np.mean(gaps):.2f} below the best on average, {max(gaps):.2f} at worst; within {POINT} in {within}."
    )


def searchers_page(ways: dict[str, list[list[float]]]) -> str:
    """The best dev score after so many trials, mean over seeds with its 95 % interval, and the difference over seeds in pairs."""
    rows = []
    length = min(len(one) for found in ways.values() for one in found)
    for num in [*(budget for budget in BUDGETS if budget < length), length]:
        at = {way: np.array([one[num - 1] for one in found]) for way, found in ways.items()}
        rows.append([str(num), *(mean_text(scores) for scores in at.values()), mean_text(at["tpe"] - at["random"], sign="+")])
    seeds = len(ways["random"])
    return f"Best dev score after so many trials, mean over {seeds} seeds of the searcher with its 95 % interval (t):\n\n" + markdown_table(
        ["trials", *ways, "TPE − random"], rows
    )


def mean_text(values: np.ndarray[Any, Any], *, sign: str = "") -> str:
    """A mean and its 95 % interval by Student's t."""
    mean, error = float(values.mean()), float(stats.sem(values))
    half = float(stats.t.ppf(0.975, len(values) - 1)) * error
    return f"{mean:{sign}.2f} ({mean - half:{sign}.2f} to {mean + half:{sign}.2f})"


def tiny_values(name: str, methods: dict[str, Json], **search: Json) -> dict[str, Json]:
    """Trainings of a few steps, on sentences that the package makes itself."""
    return {
        "name": name,
        "encoder": {"checkpoint": "minilm-l6", "layers": 1},
        "corpus": {"source": "generated/nli", "split": "train", "limit": 32},
        "training": {"batch_size": 8, "epochs": 1, "max_length": 16},
        "selection": {"task": "scenes-sts-dev", "every_fraction": 0.5},
        "evaluation": {"tasks": ["scenes-sts"]},
        "seeds": [0, 1],
        "methods": {"eq1": {"objective": {"name": "info_nce", "temperature": 0.05}}, **methods},
        "search": {"space": {"training.learning_rate": {"log": [1e-5, 1e-3]}}, "halving": {"rungs": [0.5, 1.0], "keep": 0.5}, **search},
        "runtime": {"engine": "torch", "workers": 1, "cpus_per_worker": 1},
    }


RCL: dict[str, Json] = {
    "entropy": {"objective": {"name": "entropy", "phi": 0.01}, "training": {"learning_rate": 5e-5}, "select": False, "reported": False},
    "rcl": {"objective": {"name": "rcl"}, "bank": "entropy", "phis": [0.01]},
}


def killed(store: Path, draw: random.Random, *, times: int = 3) -> str:
    """Two searches by processes of their own, one of them killed (SIGKILL) so many times."""
    values = tiny_values("killed", RCL, suggest="tpe", samples=6)
    started = time.monotonic()
    _submit(values, store / "alone").wait()
    alone_s = time.monotonic() - started
    finished: dict[str, int] = {}
    moments = []
    for _ in range(times):
        process, moment = _submit(values, store / "killed"), draw.uniform(0.15, 0.45) * alone_s
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            moments.append(moment)
        finished |= _records(store / "killed", known=finished)
    _submit(values, store / "killed").wait()
    found = {name: find_search(ArtifactStore(store / name), "killed") for name in ("alone", "killed")}
    counts = {name: len(_records(store / name)) for name in found}
    again = sum(changed != finished.get(place, changed) for place, changed in _records(store / "killed").items())
    alone, other = found["alone"], found["killed"]
    assert alone is not None and other is not None
    return killed_page(alone, other, moments=moments, counts=counts, num_finished=len(finished), num_again=again)


def killed_page(
    alone: SearchRecord, other: SearchRecord, *, moments: Sequence[float], counts: dict[str, int], num_finished: int, num_again: int
) -> str:
    """Whether a search that was killed ended as one left alone."""
    same = [(one.number, one.suggestion, one.dev, one.cells) for one in alone.finalists] == [
        (one.number, one.suggestion, one.dev, one.cells) for one in other.finalists
    ]
    trials = [{one.number: (one.suggestion, one.state, one.dev) for one in record.trials} for record in (alone, other)]
    return (
        f"Killed {len(moments)} times, after {', '.join(f'{moment:.0f}' for moment in moments)} s: finalists and their dev scores "
        f"{'the same' if same else 'DIFFER'}, all {len(alone.trials)} trials {'the same' if trials[0] == trials[1] else 'DIFFER'}. Stages "
        f"in the store at the end: {counts['alone']} and {counts['killed']}; of {num_finished} that were finished when it was killed "
        f"{num_again} were built again; Sentences trained on: "
        f"{alone.spent_sentences:,} and {other.spent_sentences:,}."
    )


def _submit(values: dict[str, Json], store: Path) -> subprocess.Popen[bytes]:
    store.mkdir(parents=True, exist_ok=True)
    recipe = store / "recipe.yaml"
    recipe.write_text(json.dumps(values))
    command = [sys.executable, "-m", "sentdist", "sweep", str(recipe), "--local", "--store", str(store)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def _records(store: Path, *, known: dict[str, int] | None = None) -> dict[str, int]:
    """Finished stages, and when their record was written; what is known stays as it was first seen."""
    found = {str(path.relative_to(store)): path.stat().st_mtime_ns for path in store.glob("*/*/record.json")}
    return found | (known or {})


def machinery(store: Path, *, num_trials: int) -> str:
    """Searches of half as many trials, as many and twice as many, in which every training is pretended: what is left is the search."""
    found = {
        suggest: {num: _pretended(store / f"{suggest}-{num}", num, suggest) for num in (num_trials // 2, num_trials, 2 * num_trials)}
        for suggest in ("random", "tpe")
    }
    return machinery_page(found)


def _pretended(store: Path, num_trials: int, suggest: str) -> float:
    """Seconds of processor time, planning included."""
    started = time.process_time()
    values = tiny_values("machinery", {}, suggest=suggest, samples=num_trials)
    planned, context = planned_search(recipe_from_values(values, where="machinery"), store=str(store))
    if find_search(context.store, "machinery") is not None:
        raise SystemExit(f"{store}: holds a search already, which would only be replayed; name an empty folder")
    with patch.object(local, "rung_score", _rung_score), patch.object(search, "rung_score", _rung_score):
        record = search_in_process(planned, context, Tracker(), print_line=lambda line: None)
    assert len(record.trials) == num_trials
    return time.process_time() - started


def _rung_score(train: Train, share: float, context: Context) -> RungScore:
    """As if every training were in the store."""
    dev = 50 + int(train.key[:4], 16) / 6553.6
    return RungScore(step=1, dev=dev, last=dev, sentences=96, seconds=1.0)


def machinery_page(found: Mapping[str, Mapping[int, float]]) -> str:
    """found: by searcher and number of trials. The share is that of a search whose trials take TRIAL_S."""
    rows = [
        [suggest, str(num), f"{seconds:.2f}", f"{1000 * seconds / num:.1f}", f"{100 * seconds / (num * TRIAL_S):.3f} %"]
        for suggest, took in found.items()
        for num, seconds in took.items()
    ]
    header = ["searcher", "trials", "processor s", "ms a trial", f"share, trials of {TRIAL_S:.0f} s"]
    return "Suggest, plan, decide, note (two rungs, the best half go on); nothing is trained:\n\n" + markdown_table(header, rows)


if __name__ == "__main__":
    main()
