"""Cross-validation over queries: which fold a query is in, what a fold is for, what it trains on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, get_args

from sentdist.data.retrieval import Retrieval
from sentdist.data.seeded_order import digest_u64
from sentdist.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

Role = Literal["train", "dev", "test"]


def fold_of_queries(query_ids: Sequence[str], *, num_folds: int, seed: int) -> dict[str, int]:
    """Return query id → fold. Folds differ in size by at most one; the order in which the queries are listed does not matter.

    RCL (arXiv 2209.13241) evaluates FAQ retrieval by a "5-fold method" without saying more;
    the folds here are over queries, by published seed.
    Raises DataError for fewer than three folds (train, dev and test need one each), for fewer queries than folds, and for repeated ids.
    """
    if num_folds < 3:
        raise _complaint(f"{num_folds} folds", "at least 3: one tests, one is for development, the rest train")
    if len(set(query_ids)) != len(query_ids):
        raise _complaint("a query id that occurs twice", "each query id once")
    if len(query_ids) < num_folds:
        raise _complaint(f"{len(query_ids)} queries", f"at least one for each of the {num_folds} folds")
    ranked = sorted(query_ids, key=lambda query: (digest_u64(seed, query), query))
    return {query: rank % num_folds for rank, query in enumerate(ranked)}


def queries_for(query_ids: Sequence[str], *, fold: int, num_folds: int, seed: int, role: Role) -> tuple[str, ...]:
    """Return the queries that play `role` in round `fold`, in the order given: fold k tests, fold k + 1 (cyclic) is dev, the rest train."""
    if not 0 <= fold < num_folds:
        raise _complaint(f"fold {fold}", f"0 to {num_folds - 1}")
    if role not in get_args(Role):
        raise _complaint(f'role "{role}"', f"one of {', '.join(get_args(Role))}")
    folds = fold_of_queries(query_ids, num_folds=num_folds, seed=seed)
    roles: dict[int, Role] = {fold: "test", (fold + 1) % num_folds: "dev"}
    return tuple(query for query in query_ids if roles.get(folds[query], "train") == role)


def fold_of_retrieval(retrieval: Retrieval, *, fold: int, num_folds: int, seed: int, role: Role) -> Retrieval:
    """Return the source with only the queries of a role; the bank of documents stays whole."""
    chosen = set(queries_for(retrieval.query_ids, fold=fold, num_folds=num_folds, seed=seed, role=role))
    kept = [(query, text) for query, text in zip(retrieval.query_ids, retrieval.queries, strict=True) if query in chosen]
    return replace(
        retrieval,
        query_ids=tuple(query for query, _ in kept),
        queries=tuple(text for _, text in kept),
        qrels={query: retrieval.qrels[query] for query, _ in kept},
    )


def faq_pairs(retrieval: Retrieval, *, fold: int, num_folds: int, seed: int, role: Role = "train", min_relevance: int = 1) -> pa.Table:
    """Return columns anchor and positive: every query of the role with each document judged at least `min_relevance` for it, once a text.

    Documents of equal text (StackFAQ repeats a question for each of its answers) give one row. Raises DataError when nothing is relevant.
    """
    import pyarrow as pa

    texts = dict(zip(retrieval.document_ids, retrieval.documents, strict=True))
    part = fold_of_retrieval(retrieval, fold=fold, num_folds=num_folds, seed=seed, role=role)
    rows = dict.fromkeys(
        (query, texts[document])
        for query_id, query in zip(part.query_ids, part.queries, strict=True)
        for document, relevance in part.qrels[query_id].items()
        if relevance >= min_relevance and document in texts
    )
    if not rows:
        raise _complaint(f"no document of relevance {min_relevance} or more for the {role} queries of fold {fold}", "at least one")
    anchors, positives = zip(*rows, strict=True)
    return pa.table({"anchor": pa.array(anchors, pa.large_string()), "positive": pa.array(positives, pa.large_string())})


def _complaint(found: str, expected: str) -> DataError:
    return DataError(
        where="folds over queries", found=found, expected=expected, remedy="Correct the fold in the recipe, or use more queries."
    )
