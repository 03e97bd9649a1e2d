"""Cross-validation over queries, one by one or by shared answers: which fold a query is in, what a fold is for, what it trains on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, get_args

from sentdist.data.retrieval import Retrieval
from sentdist.data.seeded_order import digest_u64
from sentdist.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

Role = Literal["train", "dev", "test"]
By = Literal["query", "answer"]


def fold_of_queries(query_ids: Sequence[str], *, num_folds: int, seed: int, groups: Mapping[str, str] | None = None) -> dict[str, int]:
    """Return query id → fold. Folds differ in size by at most one; the order in which the queries are listed does not matter.

    groups: query id → name of its group; then a group stays together, the largest first, each into the fold that has fewest queries.

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
    if groups is not None:
        return _fold_of_groups(query_ids, groups, num_folds, seed)
    ranked = sorted(query_ids, key=lambda query: (digest_u64(seed, query), query))
    return {query: rank % num_folds for rank, query in enumerate(ranked)}


def _fold_of_groups(query_ids: Sequence[str], groups: Mapping[str, str], num_folds: int, seed: int) -> dict[str, int]:
    members: defaultdict[str, list[str]] = defaultdict(list)
    for query in query_ids:
        members[groups[query]].append(query)
    if len(members) < num_folds:
        raise _complaint(
            f"{len(members)} groups of {len(query_ids)} queries that share no answer", f"at least one for each of {num_folds} folds"
        )
    sizes, folds = [0] * num_folds, dict[str, int]()
    for name in sorted(members, key=lambda name: (-len(members[name]), digest_u64(seed, name), name)):
        fold = sizes.index(min(sizes))
        sizes[fold] += len(members[name])
        folds |= dict.fromkeys(members[name], fold)
    return folds


def groups_by_answer(retrieval: Retrieval) -> dict[str, str]:
    """Return query id → its group: queries that share a relevant document, or one of the same text, also by way of others."""
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        while leader.setdefault(name, name) != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    texts = dict(zip(retrieval.document_ids, retrieval.documents, strict=True))
    for query in retrieval.query_ids:
        own = find(f"query {query}")
        for document, relevance in retrieval.qrels[query].items():
            if relevance > 0:
                first, other = sorted((own, find(f"text {texts[document]}" if document in texts else f"document {document}")))
                leader[other] = first
                own = first
    groups: dict[str, str] = {query: find(f"query {query}") for query in retrieval.query_ids}
    names: dict[str, str] = {}
    for query in sorted(groups):
        names.setdefault(groups[query], query)  # its first query: the name does not change with the order in which they are listed
    return {query: names[group] for query, group in groups.items()}


def groups_of(retrieval: Retrieval, by: By) -> dict[str, str] | None:
    """Which queries a fold keeps together; None: none. by answer: no test query's relevant document is trained on."""
    return groups_by_answer(retrieval) if by == "answer" else None


def queries_for(
    query_ids: Sequence[str], *, fold: int, num_folds: int, seed: int, role: Role, groups: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return the queries that play `role` in round `fold`, in the order given: fold k tests, fold k + 1 (cyclic) is dev, the rest train.

    groups: as `fold_of_queries` has them.
    """
    if not 0 <= fold < num_folds:
        raise _complaint(f"fold {fold}", f"0 to {num_folds - 1}")
    if role not in get_args(Role):
        raise _complaint(f'role "{role}"', f"one of {', '.join(get_args(Role))}")
    folds = fold_of_queries(query_ids, num_folds=num_folds, seed=seed, groups=groups)
    roles: dict[int, Role] = {fold: "test", (fold + 1) % num_folds: "dev"}
    return tuple(query for query in query_ids if roles.get(folds[query], "train") == role)


def fold_of_retrieval(retrieval: Retrieval, *, fold: int, num_folds: int, seed: int, role: Role, by: By = "query") -> Retrieval:
    """Return the source with only the queries of a role; the bank of documents stays whole."""
    groups = groups_of(retrieval, by)
    chosen = set(queries_for(retrieval.query_ids, fold=fold, num_folds=num_folds, seed=seed, role=role, groups=groups))
    kept = [(query, text) for query, text in zip(retrieval.query_ids, retrieval.queries, strict=True) if query in chosen]
    return replace(
        retrieval,
        query_ids=tuple(query for query, _ in kept),
        queries=tuple(text for _, text in kept),
        qrels={query: retrieval.qrels[query] for query, _ in kept},
    )


def faq_pairs(retrieval: Retrieval, *, fold: int, num_folds: int, seed: int, role: Role = "train", by: By = "query") -> pa.Table:
    """Return columns anchor and positive: every query of the role with each document that is judged relevant for it, once a text.

    Documents of equal text (StackFAQ repeats a question for each of its answers) give one row. Raises DataError when nothing is relevant.
    """
    import pyarrow as pa

    texts = dict(zip(retrieval.document_ids, retrieval.documents, strict=True))
    part = fold_of_retrieval(retrieval, fold=fold, num_folds=num_folds, seed=seed, role=role, by=by)
    rows = dict.fromkeys(
        (query, texts[document])
        for query_id, query in zip(part.query_ids, part.queries, strict=True)
        for document, relevance in part.qrels[query_id].items()
        if relevance > 0 and document in texts
    )
    if not rows:
        raise _complaint(f"no document of relevance 1 or more for the {role} queries of fold {fold}", "at least one")
    anchors, positives = zip(*rows, strict=True)
    return pa.table({"anchor": pa.array(anchors, pa.large_string()), "positive": pa.array(positives, pa.large_string())})


def _complaint(found: str, expected: str) -> DataError:
    return DataError(
        where="folds over queries", found=found, expected=expected, remedy="Correct the fold in the recipe, or use more queries."
    )
