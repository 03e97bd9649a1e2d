"""What the columns of a person's own table are called, by which it is known what they hold."""

from __future__ import annotations

import re

from sentdist.data.own.passages import NEGATIVE_PASSAGES, POSITIVE_PASSAGES

# Names of columns, by which they are known; case and spaces around do not count.
QUESTIONS = ("question", "query", "frage", "q", "user_query")
ANSWERS = ("answer", "response", "antwort", "reply", "a")
ANCHORS = ("anchor", "sent0", "sentence1", "sentence_1", "text1", "text_1", "sentence_a", "premise", "title", *QUESTIONS)
POSITIVES = (
    *POSITIVE_PASSAGES,
    "positive", "pos", "sent1", "sentence2", "sentence_2", "text2", "text_2", "sentence_b", "hypothesis", "document", "passage",
    "paraphrase", "body", *ANSWERS,
)  # fmt: skip
NEGATIVE_WORDS = re.compile(r"(?<![^\W\d_])(?:(?:neg|hard|hardneg|wrong|falsch)(?![^\W\d_])|negativ|distract|contradict|irrelevant)")
NEGATIVES = (
    "sent2",
    *NEGATIVE_PASSAGES,
    *(f"{hard}{word}" for hard in ("", "hard_", "hard") for word in ("negative", "negatives", "neg", "negs")),
)
GRADES = ("score", "similarity", "similarity_score", "label", "labels", "gold_label", "grade", "gold", "rating", "relatedness", "sim")
GROUPS = ("group", "group_id")
SPLITS = ("split",)
ROW_NAMES = ("id", "index", "")  # of columns that name or count rows, as pandas' index does; so do these beginnings and this end
ROW_BEGINNINGS, ROW_END = ("__index_level_", "unnamed:"), "_id"
NUMBERED_ID = re.compile("q?id_?[0-9]*")  # qid1, qid2: of Quora's questions
GRADE_WORDS = (
    "score", "label", "similar", "relat", "duplicate", "paraphrase", "entail", "grade", "gold", "judg", "rating", "rater", "annotat",
    "match", "ähnlich", "duplikat", "bewertung", "percent", "prozent",
    "somiglianza", "puntua", "punteggio", "相似", "类似", "類似", "сходств", "оценк",
)  # fmt: skip
MEANS = ("mean", "average", "avg", "mittel", "durchschnitt")  # of several people's scores, where numbers stand below
CLASSES = ("class", "category", "klasse", "kategorie", "target", "type", "topic", "intent")  # said of a text, hardly of how alike two are
LABELS = ("label", "labels", "gold", "gold_label", *CLASSES)  # may number classes that are in no order
OPPOSITES = (
    "differ",
    "distan",
    "dissimil",
    "unähnlich",
    "abstand",
    "unterschied",
    "verschieden",
    "distanz",
    "différen",
    "diferen",
    "rank",
)  # a higher number is less alike
KNOWN_NAMES = frozenset((*ANCHORS, *POSITIVES, *NEGATIVES, *GRADES, *GROUPS, *SPLITS))


def is_called_negative(column: str, *, surely: bool = False) -> bool:
    """Whether the name of a column says that it holds negatives; surely: it says nothing else, but a number, as sentence-transformers calls
    several: negative_1, negative_2."""
    plain = re.sub("[ -]", "_", column.strip().casefold())
    if plain in NEGATIVES or re.sub("_?[0-9]+$", "", plain) in NEGATIVES:
        return True
    return not surely and NEGATIVE_WORDS.search(plain) is not None


def is_called_beside(column: str) -> bool:
    """Whether a column is called as groups, splits or names of rows are."""
    plain = column.strip().casefold()
    return (
        plain in (*GROUPS, *SPLITS, *ROW_NAMES)
        or plain.startswith(ROW_BEGINNINGS)
        or plain.endswith(ROW_END)
        or NUMBERED_ID.fullmatch(plain) is not None
    )
