"""Score an encoder, or a floor without one, on tasks; with probes and data for plots."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sentdist.data.corpus import OpenedCorpus
from sentdist.data.leaks import shared_groups
from sentdist.data.sampler import shuffled
from sentdist.data.tagging import FileTargets
from sentdist.errors import DataError
from sentdist.evaluation.items import GROUP, SHARED
from sentdist.evaluation.linear_models import probe_distribution, probe_regression
from sentdist.evaluation.relational import BY, relation_cosines
from sentdist.evaluation.sts import mean_of_all
from sentdist.learning.relation_file import Relations
from sentdist.objectives.channels import Channels
from sentdist.recipe.specs import EncoderSpec, LexicalSpec, Probes
from sentdist.recipe.stage import Json
from sentdist.recipe.stages import Scores, Train
from sentdist.stages.context import Context, commit, folder_of
from sentdist.stages.embed import Embed, EmbeddedTasks, MakeEmbed, embed_here
from sentdist.stages.text_stages import targets_of
from sentdist.store.store import Artifact
from sentdist.tasks.geometry import GEOMETRY, geometry_of
from sentdist.tasks.kinds import TASK_KINDS
from sentdist.tasks.scorer import COSINE, CosineScorer, RelationalScorer, Scorer, saved_scorer
from sentdist.tasks.sts import LoadedSts
from sentdist.tasks.task import LoadedTask, TaskScore, load_task


def score_by(task: LoadedTask, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
    """Return the task's score; if the best relation counts, its score, with the main score by each relation as a measure."""
    if isinstance(scorer, CosineScorer) or scorer.scoring.combine == "sum":
        return task.score(embeddings_SD, scorer)
    found = {
        next(alone.relations): task.score(embeddings_SD, RelationalScorer(relations=scorer.relations, scoring=alone))
        for alone in scorer.scoring.alone
    }
    best = max(found.values(), key=lambda score: -np.inf if score.main is None else score.main)
    return replace(best, measures={**best.measures, **{f"{BY}{relation}": score.main for relation, score in found.items()}})


def mean_of_parts(parts: Sequence[Sequence[TaskScore]]) -> float | None:
    """Return the mean over parts of the mean main score of their tasks, by the best relation for each part if there are several.

    None if a score is undefined.
    """
    return mean_of_all(_best_mean(part) for part in parts)


def _best_mean(part: Sequence[TaskScore]) -> float | None:
    names = [name for name in part[0].measures if name.startswith(BY)]
    values = [[score.measures[name] for score in part] for name in names] or [[score.main for score in part]]
    return max((mean for row in values if (mean := mean_of_all(row)) is not None), default=None)


def probe_results(stage: Scores, embed: Embed, context: Context) -> dict[str, Json]:
    """Return the results of linear probes for the record; empty if the stage has none.

    `probes.tags_from_pos` and `probes.tags_from_bow`: share of the tags' information in the tags' and the words' channels (1: all, 0: none,
    see `DistributionProbe.explained`). `probes.words_from_…`: R² of the shares of the most frequent words. A working adversary lowers
    tags_from_bow and words_from_pos.
    """
    targets = targets_of(stage.targets, context)
    if stage.probes is None or targets is None or stage.targets is None:
        return {}
    corpus = OpenedCorpus.open(folder_of(stage.targets.corpus, context))
    ids = np.sort(shuffled(corpus.num_sentences, seed=stage.probes.seed, stream="probes")[: stage.probes.num_sentences])
    embeddings_SD = embed(corpus.sentences(ids))
    return _found(stage.probes, embeddings_SD, targets, ids)


def _found(probes: Probes, embeddings_SD: np.ndarray, targets: FileTargets, ids: np.ndarray) -> dict[str, Json]:
    channels = Channels.of(embeddings_SD.shape[1], probes.channels)
    parts = {"pos": embeddings_SD[:, : channels.pos], "bow": embeddings_SD[:, channels.pos :]}
    rows = targets.rows(ids)
    kept = rows.bow_words < probes.num_words  # the vocabulary is in the order of frequency
    words_SV = np.zeros((len(ids), min(probes.num_words, targets.num_words)))
    words_SV[rows.bow_rows[kept], rows.bow_words[kept]] = rows.bow_shares[kept]
    results: dict[str, Json] = {"probes.num_sentences": len(ids)}
    for name, part_SD in parts.items():
        try:
            tags = probe_distribution(part_SD, rows.pos, seed=probes.seed)
            words = probe_regression(part_SD, words_SV, seed=probes.seed)
        except DataError as error:
            raise error.with_context(where=f"probes: {error.where}") from error
        results |= {
            f"probes.tags_from_{name}": tags.explained,
            f"probes.tags_from_{name}.cross_entropy": tags.cross_entropy,
            f"probes.words_from_{name}": words,
        }
        results |= {"probes.tags.floor": tags.floor, "probes.tags.best": tags.best}
    return results


LEFT_OUT = "left_out"  # a key of the metadata of a file of items


def build_scores(
    stage: Scores, context: Context, *, make_embed: MakeEmbed = embed_here, on_fit: Callable[[str], None] | None = None
) -> Artifact:
    """Embed every unique sentence of all tasks once, then score each task; items are kept for paired tests.

    Args:
        make_embed: Makes the function that embeds, here or elsewhere.
        on_fit: Called with a task's name before classifiers are fitted on it, which may take longer than embedding.
    """
    started = time.perf_counter()
    tasks = [load_task(task, context.data_root, context.folders) for task in stage.tasks]
    if isinstance(stage.encoder, LexicalSpec):
        scores, facts = [task.score_words(stage.encoder.name) for task in tasks], dict[str, Json]()
    else:
        scores, facts = _embedded_scores(stage, stage.encoder, tasks, context, make_embed(stage, context), on_fit)
    results = score_results(scores) | facts
    with context.store.staged() as folder:
        (folder / "items").mkdir()
        for score, items in zip(scores, _items_tables(tasks, scores), strict=True):
            pq.write_table(items, folder / "items" / f"{score.task}.parquet", compression="zstd")
        (folder / "scores.json").write_text(json.dumps(results, indent=1))
        return commit(stage, folder, context, seconds=time.perf_counter() - started, results=results)


def _items_tables(tasks: list[LoadedTask], scores: list[TaskScore]) -> list[pa.Table]:
    """The items of each task with their groups, for tests: items that share a text are not independent, within a task or across tasks.
    Metadata name what was left out."""
    texts = [task.texts() for task in tasks]
    tables = [
        pa.table(dict(score.items)).replace_schema_metadata({LEFT_OUT: one.left_out}) for score, one in zip(scores, texts, strict=True)
    ]
    tested = [place for place, score in enumerate(scores) if score.has_main and tables[place].num_rows == texts[place].num_items]
    grouped = [(texts[place], texts[place].groups()) for place in tested]
    for place, (_, groups), shared in zip(tested, grouped, shared_groups(grouped), strict=True):
        tables[place] = tables[place].append_column(GROUP, pa.array(groups))
        if (shared >= 0).any():
            tables[place] = tables[place].append_column(SHARED, pa.array(shared))
    return tables


def _embedded_scores(
    stage: Scores, of: EncoderSpec | Train, tasks: list[LoadedTask], context: Context, embed: Embed, on_fit: Callable[[str], None] | None
) -> tuple[list[TaskScore], dict[str, Json]]:
    """Scores of the tasks by an encoder, and facts on geometry, relations and probes."""
    scorer = saved_scorer(folder_of(of, context), stage.view.relations) if isinstance(of, Train) else COSINE
    embedded = EmbeddedTasks.of(stage, of, tasks, context, embed)
    scores = []
    for planned, task in zip(stage.tasks, tasks, strict=True):
        if on_fit is not None and TASK_KINDS[planned.kind].needs_train:
            on_fit(planned.name)
        scores.append(score_by(task, embedded.of_task(planned, task), scorer))
    facts = _geometry(tasks, embedded) | _relations(tasks, embedded, scorer)
    return scores, facts | probe_results(stage, embed, context)


def score_results(scores: list[TaskScore]) -> dict[str, Json]:
    """Return flat results: the main score under the task's name, every measure under `task.measure`."""
    results: dict[str, Json] = {}
    for score in scores:
        if score.has_main:
            results[score.task] = score.main
        results |= {f"{score.task}.{name}": value for name, value in score.measures.items()}
    return results


def _relations(tasks: list[LoadedTask], embedded: EmbeddedTasks, scorer: Scorer) -> dict[str, Json]:
    """Cosines between relations, and the mean score of the STS tasks at each weight of the view's curve."""
    facts = _relation_facts(scorer.relations)
    pairs = [task for task in tasks if isinstance(task, LoadedSts)]
    if pairs and isinstance(scorer, RelationalScorer) and scorer.scoring.curve is not None:
        curves = [task.curve(embedded.of_sentences(task.sentences), scorer) for task in pairs]
        means: list[Json] = [mean_of_all(scores) for scores in zip(*curves, strict=True)]
        grid = scorer.scoring.curve
        facts["weight_curve"] = {"relation": grid.relation, "weights": list(grid.weights), "scores": means}
    return facts


def _relation_facts(relations: Relations) -> dict[str, Json]:
    """Cosines and lengths of relations; empty for a table that did not learn (vectors of length 0)."""
    lengths_K = np.linalg.norm(relations.vectors, axis=1)
    if not relations.names or not lengths_K.all():
        return {}
    cosines = relation_cosines(relations.vectors).round(6).tolist()
    return {"relations": {"names": list(relations.names), "cosines": cosines, "lengths": [round(float(one), 6) for one in lengths_K]}}


def _geometry(tasks: list[LoadedTask], embedded: EmbeddedTasks) -> dict[str, Json]:
    """Alignment, uniformity and mean cosine over the sentences of STS-B (or the first STS task), as in SimCSE."""
    candidates = [task for task in tasks if isinstance(task, LoadedSts)]
    if not candidates:
        return {}
    chosen = next((task for task in candidates if task.task.name == "stsb"), candidates[0])
    found = geometry_of(chosen.pairs, embedded.of_sentences(chosen.sentences))
    return {f"geometry.{name}": getattr(found, name) for name in GEOMETRY.shown} | {"geometry.task": chosen.task.name}
