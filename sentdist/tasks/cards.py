"""The table of shipped evaluation tasks with source, licence and citation, and the groups of tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class TaskCard:
    """What is known of a task before its data are read."""

    kind: str  # of `TASK_KINDS`
    source: str
    split: str | None  # that is scored; None: all rows
    licence: str
    citation: str | None  # key of `sentdist.report.citations`; None: generated texts or user data
    title: str | None = None  # of its column in a report; None: its name
    num_items: int | None = None  # pairs, queries or texts of the published set, if known
    columns: tuple[str, ...] = ()  # of the texts, if other than in user files of the kind
    documents: tuple[str, ...] = ("document",)  # of the candidates
    label: str = "label"
    dev: str | None = None  # of a classification: the split that chooses the penalty, if any
    num_folds: int = 10  # of a classification
    classifier: Literal["senteval", "converged"] = "converged"  # likewise
    role: Literal["test", "dev"] = "test"  # likewise; dev: the dev accuracy that chooses the penalty, only to choose checkpoints


TASKS: dict[str, TaskCard] = {
    "sts12": TaskCard(title="STS12", kind="sts", source="sts/sts12", split=None, licence="SemEval shared task", citation="sts12", num_items=3108),
    "sts13": TaskCard(title="STS13", kind="sts", source="sts/sts13", split=None, licence="SemEval shared task", citation="sts13", num_items=1500),
    "sts14": TaskCard(title="STS14", kind="sts", source="sts/sts14", split=None, licence="SemEval shared task", citation="sts14", num_items=3750),
    "sts15": TaskCard(title="STS15", kind="sts", source="sts/sts15", split=None, licence="SemEval shared task", citation="sts15", num_items=3000),
    "sts16": TaskCard(title="STS16", kind="sts", source="sts/sts16", split=None, licence="SemEval shared task", citation="sts16", num_items=1186),
    "stsb": TaskCard(title="STS-B", kind="sts", source="sts/stsb", split="test", licence="CC BY-SA 4.0", citation="stsb", num_items=1379),
    "stsb-dev": TaskCard(kind="sts", source="sts/stsb", split="dev", licence="CC BY-SA 4.0", citation="stsb", num_items=1500),
    "sickr": TaskCard(title="SICK-R", kind="sts", source="sts/sick", split="test", licence="CC BY-NC-SA 3.0", citation="sick", num_items=4927),
    # SemEval's trial split
    "sickr-dev": TaskCard(kind="sts", source="sts/sick", split="trial", licence="CC BY-NC-SA 3.0", citation="sick", num_items=500),
    # train, dev and test as one: how RSE's own rows are scored (its dev pairs also choose the checkpoint)
    "stsb-pooled": TaskCard(kind="sts", source="sts/stsb", split=None, licence="CC BY-SA 4.0", citation="stsb", num_items=8628),
    "sickr-pooled": TaskCard(kind="sts", source="sts/sick", split=None, licence="CC BY-NC-SA 3.0", citation="sick", num_items=9927),
    "stackfaq": TaskCard(kind="retrieval", source="retrieval/stackfaq", split=None, licence="unstated", citation="stackfaq", num_items=1249),
    "mr": TaskCard(
        title="MR", kind="classification", source="transfer/mr", split=None, licence="unstated", citation="mr", num_items=10662,
        classifier="senteval"
    ),
    "cr": TaskCard(
        title="CR", kind="classification", source="transfer/cr", split=None, licence="unstated", citation="cr", num_items=3775,
        classifier="senteval"
    ),
    "subj": TaskCard(
        title="SUBJ", kind="classification", source="transfer/subj", split=None, licence="unstated", citation="subj", num_items=10000,
        classifier="senteval"
    ),
    "mpqa": TaskCard(
        title="MPQA", kind="classification", source="transfer/mpqa", split=None, licence="unstated", citation="mpqa", num_items=10606,
        classifier="senteval"
    ),
    "sst2": TaskCard(
        title="SST2", kind="classification", source="transfer/sst2", split="test", licence="unstated", citation="sst2", num_items=70042, dev="dev",
        classifier="senteval"
    ),
    "trec": TaskCard(
        title="TREC", kind="classification", source="transfer/trec", split="test", licence="unstated", citation="trec", num_items=5952,
        classifier="senteval"
    ),
    "mrpc": TaskCard(
        title="MRPC", kind="classification", source="transfer/mrpc", split="test", licence="Microsoft Research, non-commercial", citation="mrpc",
        num_items=5801, columns=("text", "text2"), classifier="senteval"
    ),
    "str2022": TaskCard(title="STR", kind="sts", source="sts/sem_text_rel_ranked.csv", split=None, licence="CC BY 4.0", citation="str2022", num_items=5500),
    # each FAQ's own question, to which its answer alone is relevant, as RCL's numbers must have been made
    "faqir": TaskCard(kind="retrieval", source="retrieval/faqir", split="questions", licence="CC BY-NC-SA 3.0", citation="faqir", num_items=4133),
    "faqir-queries": TaskCard(kind="retrieval", source="retrieval/faqir", split="queries", licence="CC BY-NC-SA 3.0", citation="faqir", num_items=1233),
    "cough": TaskCard(kind="retrieval", source="retrieval/cough", split="questions", licence="CC BY-NC-SA 4.0", citation="cough", num_items=7117),
    "cough-queries": TaskCard(kind="retrieval", source="retrieval/cough", split="queries", licence="CC BY-NC-SA 4.0", citation="cough", num_items=1201),
    "scifact": TaskCard(kind="retrieval", source="retrieval/scifact", split="test", licence="CC BY 4.0, ODC-By", citation="scifact", num_items=300),
    "cranfield": TaskCard(kind="retrieval", source="retrieval/cranfield", split=None, licence="unstated", citation="cranfield", num_items=225),
    "qqp-pairs": TaskCard(kind="pairs", source="pairs/qqp", split="test", licence="Quora, non-commercial", citation="qqp", num_items=10000),
    "mrpc-pairs": TaskCard(
        kind="pairs", source="transfer/mrpc", split="test", licence="Microsoft Research, non-commercial", citation="mrpc", num_items=1725,
        columns=("text", "text2")
    ),
    "twitter-url": TaskCard(kind="pairs", source="pairs/Twitter_URL_Corpus_test.txt", split=None, licence="unstated", citation="twitter_url"),
    "twitter-pit": TaskCard(kind="pairs", source="pairs/test.data", split=None, licence="CC BY-NC-SA 3.0", citation="pit2015"),
    "semeval2016-cqa": TaskCard(
        kind="reranking", source="retrieval/semeval2016_cqa_question_similarity", split="dev", licence="unstated", citation="semeval2016cqa",
        num_items=500, columns=("query_subject", "query_body"), documents=("doc_subject", "doc_body")
    ),
    "askubuntu": TaskCard(kind="reranking", source="reranking/askubuntu", split="test", licence="unstated", citation="askubuntu", num_items=4000),
    "askubuntu-dev": TaskCard(kind="reranking", source="reranking/askubuntu", split="dev", licence="unstated", citation="askubuntu"),
    "cqadupstack": TaskCard(kind="forums", source="retrieval/cqadupstack", split="test", licence="Apache-2.0", citation="cqadupstack"),
    "cqadupstack-dev": TaskCard(kind="forums", source="retrieval/cqadupstack", split="valid", licence="Apache-2.0", citation="cqadupstack"),
    **{
        f"scidocs-{relation}-dev": TaskCard(
            kind="reranking", source="reranking/scidocs", split=f"{relation}-valid", licence="unstated", citation="scidocs"
        )
        for relation in ("cite", "cocite", "coview", "coread")
    },
    "scidocs-cite": TaskCard(kind="reranking", source="reranking/scidocs", split="cite", licence="unstated", citation="scidocs", num_items=30000),
    "scidocs-cocite": TaskCard(kind="reranking", source="reranking/scidocs", split="cocite", licence="unstated", citation="scidocs", num_items=30000),
    "scidocs-coview": TaskCard(kind="reranking", source="reranking/scidocs", split="coview", licence="unstated", citation="scidocs", num_items=30000),
    "scidocs-coread": TaskCard(kind="reranking", source="reranking/scidocs", split="coread", licence="unstated", citation="scidocs", num_items=30000),
    "banking77": TaskCard(
        kind="classification", source="retrieval/banking77", split="test", licence="CC BY 4.0", citation="banking77", label="label_name",
        num_items=13083, num_folds=3
    ),
    "banking77-clusters": TaskCard(
        kind="clustering", source="retrieval/banking77", split="test", licence="CC BY 4.0", citation="banking77", label="label_name", num_items=3080
    ),
    "geometry-stsb": TaskCard(kind="geometry", source="sts/stsb", split="test", licence="CC BY-SA 4.0", citation="geometry", num_items=1379),
    "scenes-sts": TaskCard(title="Help desk STS", kind="sts", source="generated/sts", split="test", licence="Apache-2.0", citation=None),
    "scenes-sts-dev": TaskCard(kind="sts", source="generated/sts", split="dev", licence="Apache-2.0", citation=None),
    "scenes-faq": TaskCard(kind="retrieval", source="generated/faq", split=None, licence="Apache-2.0", citation=None),
}  # fmt: skip

TASKS |= {
    f"{name}-dev": replace(TASKS[name], role="dev", num_folds=5, title=None)
    for name in ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")
}

TASK_GROUPS: dict[str, tuple[str, ...]] = {
    "sts": ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"),
    "sts-pooled": ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb-pooled", "sickr-pooled"),
    "transfer": ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc"),
    "transfer-dev": ("mr-dev", "cr-dev", "subj-dev", "mpqa-dev", "sst2-dev", "trec-dev", "mrpc-dev"),
    "retrieval": ("stackfaq", "scifact", "cranfield"),
    "pairs": ("qqp-pairs", "mrpc-pairs"),
    # Before the groups that are parts of it: its average comes first.
    "useb": (
        "askubuntu",
        "cqadupstack",
        "twitter-url",
        "twitter-pit",
        "scidocs-cite",
        "scidocs-cocite",
        "scidocs-coview",
        "scidocs-coread",
    ),
    "twitter": ("twitter-url", "twitter-pit"),
    "reranking": ("semeval2016-cqa",),
    "scidocs": ("scidocs-cite", "scidocs-cocite", "scidocs-coview", "scidocs-coread"),
    "scidocs-dev": ("scidocs-cite-dev", "scidocs-cocite-dev", "scidocs-coview-dev", "scidocs-coread-dev"),
    "intent": ("banking77", "banking77-clusters"),
    "geometry": ("geometry-stsb",),
    "scenes": ("scenes-sts", "scenes-faq"),
}


def group_parts(group: str) -> tuple[tuple[str, ...], ...]:
    """Return the parts that the average of a group is over: single tasks, and smaller groups as one part each (four parts in USEB)."""
    tasks = TASK_GROUPS[group]
    within = [other for other in TASK_GROUPS.values() if len(other) > 1 and set(other) < set(tasks)]
    return tuple(dict.fromkeys(next((other for other in within if task in other), (task,)) for task in tasks))
