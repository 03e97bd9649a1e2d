"""Encoders in use, and losses for embeddings of one's own, as a Python program asks for them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from sentdist.errors import DataError, StoreError
from sentdist.inference.arguments import (
    given_count,
    given_embeddings,
    given_encoder,
    given_flag,
    given_loaded,
    given_pairs,
    given_sentences,
    given_store,
)
from sentdist.inference.opening import encoder_use, open_store
from sentdist.plan.specs import EncoderUse

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

    from sentdist.inference.embedding_loss import EmbeddingLoss
    from sentdist.inference.ready_encoder import LoadedEncoder
    from sentdist.plan.specs import EncoderSpec
    from sentdist.plan.stage import Json
    from sentdist.store.store import Artifact, ArtifactStore


Place = str | Path | None
Weights = Mapping[str, float] | None


class Encoder:
    """A sentence encoder in memory, ready for use; `Encoder.load` makes one."""

    _store: str | None = None  # that it was looked for in

    def __init__(self, loaded: LoadedEncoder) -> None:
        self.loaded = given_loaded("Encoder", loaded)

    @classmethod
    def load(
        cls,
        name: str | Path,
        *,
        revision: str | None = None,
        pooling: str | None = None,
        max_length: int | None = None,
        precision: str = "fp32",
        store: Place = None,
    ) -> Encoder:
        """Load an encoder, ours or not, in float32, on a GPU where there is one.

        name: a folder, a packaged name (`minilm-l6`), a hub id, or the key of a train artifact in the store.
        revision: commit of a hub id. pooling: as `encoder.pooling` of a recipe names it ("mean", "cls", …); None: what the encoder
            declares.
        max_length: tokens of a sentence, special ones included; None: the encoder's own limit.
        precision: fp32; tf32 for products in TensorFloat-32, on an NVIDIA GPU; bf16 for products in bfloat16.

        Raises:
            EncoderError: no such encoder, no tokenizer, a pooling that it has no weights for, a length that it does not take.
            DataError: a name that is none, no such precision. ResourceError: tf32 without such a GPU.
            StoreError: a key of no or of several artifacts.
        """
        checked = given_encoder("Encoder.load", name)
        length = None if max_length is None else given_count("Encoder.load: max_length", max_length)

        from sentdist.inference.ready_encoder import LoadedEncoder

        use = encoder_use(
            checked, given_store(store), revision=revision, pooling=pooling, max_length=length, precision=precision, normalize=False
        )
        made = cls(LoadedEncoder.load(use))
        made._store = given_store(store)
        return made

    @property
    def width(self) -> int:
        """D, the numbers of an embedding."""
        return self.loaded.width

    @property
    def prompts(self) -> dict[str, str]:
        """The prompts that its folder has for sentence-transformers, name to text."""
        return dict(self.loaded.prompts.texts)

    def encode(self, sentences: str | Iterable[str], *, prompt: str | None = None, normalize: bool = False) -> np.ndarray:
        """(S, D) float32 embeddings of S sentences in their order, or (D,) of one `str`.

        prompt: what stands before each sentence: a name among `prompts`, a text, "" for nothing; None takes the folder's default prompt, if
            it has one, as `SentenceTransformer.encode` does; a warning names its prompts where none is the default.
        normalize: of length 1. Else their length is what pooling gives, also where the checkpoint asks sentence-transformers to normalize.

        Raises:
            DataError: no sentence, or one without a visible character; no such prompt.
            EncoderError: embeddings that are not finite; a prompt that leaves no token for a sentence.
        """
        loaded = _of_sentences(self.loaded, prompt, "encode: prompt")
        if given_flag("encode: normalize", normalize):
            loaded = replace(loaded, use=replace(loaded.use, normalize=True))
        embeddings_SD = loaded.embed(given_sentences("encode: sentences", sentences))
        embedding: np.ndarray = embeddings_SD[0] if isinstance(sentences, str) else embeddings_SD
        return embedding

    def export(self, to: str | Path) -> None:
        """Write a new folder that `SentenceTransformer(to)` loads, with a model card and, where there are any, its relations.

        A `max_length` that it was loaded with is written down. As `sentdist export`, which also writes ONNX graphs.

        Raises:
            DataError: the folder is there already.
        """

        export_encoder(self.loaded.use, Path(to).expanduser(), open_store(self._store))

    def __repr__(self) -> str:
        encoder = self.loaded.encoder
        return f"Encoder({self.loaded.use.checkpoint!r}, width={self.width}, pooling={encoder.pooling!r})"


AnyEncoder = Encoder | str | Path


@overload
def similarity(  # type: ignore[overload-overlap]  # a str is an Iterable[str], too; here it is one sentence
    encoder: AnyEncoder,
    first: str,
    second: str,
    *,
    relations: Weights = None,
    directions: str = "max_both",
    prompt: str | None = None,
) -> float: ...
@overload
def similarity(
    encoder: AnyEncoder,
    first: Iterable[str],
    second: Iterable[str],
    *,
    relations: Weights = None,
    directions: str = "max_both",
    prompt: str | None = None,
) -> np.ndarray: ...
def similarity(
    encoder: AnyEncoder,
    first: str | Iterable[str],
    second: str | Iterable[str],
    *,
    relations: Weights = None,
    directions: str = "max_both",
    prompt: str | None = None,
) -> float | np.ndarray:
    """How alike sentences are, in [−1, 1]: (S,) float64 of S pairs, row by row, or a float of two `str`.

    relations: None gives cosines; relation to weight scores by what a relational encoder has learned, Σ_k w_k cos(h_1 + r_k, h_2)
    (RSE, arXiv 2212.08802). directions: of relations, `max_both`, the greater of both directions, or `one`, the first sentence as head.
    prompt: before each sentence of both, as in `Encoder.encode`.

    Raises:
        DataError: two lists of different lengths, no sentence, a relation that the encoder lacks, no such prompt.
        EncoderError: relations of an encoder without any; a prompt, as `Encoder.encode`.
    """
    from sentdist.inference.similarity import pair_scorer

    heads, tails = given_pairs("similarity", first, second)
    loaded = _of_sentences(_loaded(encoder), prompt, "similarity: prompt")
    scores_S = pair_scorer(loaded, relations or {}, directions=directions).scores(heads, tails)
    return float(scores_S[0]) if isinstance(first, str) else scores_S


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A sentence that a search found. row: its place in the corpus, from 0. score: cosine, or the weighted sum of relations."""

    row: int
    score: float
    text: str


@overload
def search(  # type: ignore[overload-overlap]
    encoder: AnyEncoder,
    queries: str,
    corpus: Iterable[str],
    *,
    top: int = 10,
    embeddings: ArrayLike | None = None,
    relations: Weights = None,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
) -> list[Hit]: ...
@overload
def search(
    encoder: AnyEncoder,
    queries: Iterable[str],
    corpus: Iterable[str],
    *,
    top: int = 10,
    embeddings: ArrayLike | None = None,
    relations: Weights = None,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
) -> list[list[Hit]]: ...
def search(
    encoder: AnyEncoder,
    queries: str | Iterable[str],
    corpus: Iterable[str],
    *,
    top: int = 10,
    embeddings: ArrayLike | None = None,
    relations: Weights = None,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
) -> list[Hit] | list[list[Hit]]:
    """The `top` sentences of a corpus nearest to each query, exactly, best first; all, where it has fewer. Of one `str`, its hits alone.

    embeddings: (S, D), what `encode` gave for the corpus; None encodes it. relations: as in `similarity`, the query as head.
    query_prompt, document_prompt: before each query and each sentence of the corpus: a name, a text, "" for nothing; None takes what
        `SentenceTransformer.encode_query` and `encode_document` take, the folder's prompts "query" and "document". Embeddings bring theirs
        with them: `encode(corpus, prompt="document")`.
    Memory is that of the corpus itself; a corpus in a file of any size is searched by `sentdist search`.

    Raises:
        DataError: no query, an empty corpus, a `top` below 1, embeddings of another number or width, a prompt that there is not, or one
            for documents that are embeddings.
        EncoderError: relations of an encoder without any; a prompt, as `Encoder.encode`.
    """
    from sentdist.evaluation.nearest import ROWS_PER_TILE
    from sentdist.evaluation.nearest import search as exact_search
    from sentdist.inference.nearest import embed_queries

    asked, documents = given_sentences("search: queries", queries), given_sentences("search: corpus", corpus, one_will_do=False)
    given = None if embeddings is None else given_embeddings("search: embeddings", embeddings, of=len(documents))
    depth = given_count("search: top", top)
    if given is not None and document_prompt is not None:
        raise DataError(
            where="search: document_prompt", found="embeddings of the corpus", expected="a corpus that is still to be encoded",
            remedy="Leave document_prompt out, and encode the corpus with it: encode(corpus, prompt=…).",
        )  # fmt: skip
    loaded = _loaded(encoder)
    of_queries = loaded.prompts.of_queries(query_prompt, option="search: query_prompt")
    vectors = embed_queries(loaded.with_prompt(of_queries.text), asked, relations or {})
    if given is None:
        loaded = loaded.with_prompt(loaded.prompts.of_documents(document_prompt, option="search: document_prompt").text)
    tiles = (loaded.embed(documents[first : first + ROWS_PER_TILE]) for first in range(0, len(documents), ROWS_PER_TILE))
    ranking = exact_search(vectors.vectors, tiles if given is None else given, depth=depth)
    scores_QK = (ranking.cosines * vectors.scale[:, None]).round(6)
    hits = [
        [Hit(row=row, score=score, text=documents[row]) for row, score in zip(rows, scores, strict=True)]
        for rows, scores in zip(ranking.documents.tolist(), scores_QK.tolist(), strict=True)
    ]
    return hits[0] if isinstance(queries, str) else hits


def objective(name: str, *, width: int | None = None, relations: Sequence[str] = (), **values: Json) -> EmbeddingLoss:
    """A loss by its name in a recipe, for embeddings of your own: `objective("info_nce", temperature=0.05)(anchors, positives)`.

    It is a torch module, called with (B, D) tensors, column by column: anchors, positives and perhaps hard negatives; and with `labels`,
    `relations` or `augmented` embeddings where the objective reads them (see `EmbeddingLoss.forward`). Under torch.distributed candidates
    come from all ranks. `sentdist objectives` lists the names.
    values: as in a recipe. width: D, for what learns something beside the encoder (a head, vectors of relations); its `parameters()` belong
    into the optimizer. relations: their names, for objectives that have vectors of them.

    Raises:
        RecipeError: no such objective, values that it has not, or one that needs more than embeddings (masked words, tags).
    """
    from sentdist.inference.embedding_loss import EmbeddingLoss
    from sentdist.plan.recipe import objective_from_values

    return EmbeddingLoss(objective_from_values(name, values), width=width, relations=relations)


def _loaded(encoder: AnyEncoder) -> LoadedEncoder:
    return encoder.loaded if isinstance(encoder, Encoder) else Encoder.load(encoder).loaded


def _of_sentences(loaded: LoadedEncoder, asked: str | None, option: str) -> LoadedEncoder:
    """The encoder with the prompt that `encode` puts before sentences; a warning where nobody said that it shall take none of those that
    there are."""
    prompt = loaded.prompts.of_sentences(asked, option=option)
    if asked is None and prompt.line and not prompt.text:
        warnings.warn(prompt.line, stacklevel=3)
    return loaded.with_prompt(prompt.text)


def export_encoder(use: EncoderUse, to: Path, store: ArtifactStore, *, card: str | None = None) -> None:
    """`export_sentence_transformers`; of a training of the store, used as it was trained, with the card that `push` sends. One of another
    version of sentdist, of which that cannot be written, keeps the card of its folder.

    card: another text of its README.md.

    Raises:
        EncoderError: no such checkpoint. DataError: the folder is there already. StoreError: the store cannot be read.
    """
    from sentdist.inference.export_formats import export_sentence_transformers

    trained = _training_of(use.checkpoint, store) if use.pooling is None and card is None else None
    card = card if trained is None else _card_if_known(trained, store, name=to.name)
    export_sentence_transformers(as_trained(use, store), to, card=card)


def as_trained(use: EncoderUse, store: ArtifactStore) -> EncoderUse:
    """The use, of a training of the store with sentences as long as it was trained with; a length that the use names stays."""
    trained = _training_of(use.checkpoint, store) if use.max_length is None else None
    return use if trained is None else replace(use, max_length=_fields(trained)["training"]["max_length"])


def card_of(
    trained: Artifact,
    store: ArtifactStore,
    *,
    name: str,
    licence: str | None = None,
    language: Sequence[str] | None = None,
    scored_as: EncoderSpec | None = None,
    num_seeds: int = 1,
) -> str:
    """`encoder_card` of a training, or of the average of `num_seeds`; language: None for what the card of the base model says; licence:
    None for that of a packaged one.

    Raises:
        StoreError: as `encoder_card`.
    """
    from sentdist.learning.encoder.declared import ends_in_normalize
    from sentdist.learning.encoder.find_checkpoint import PACKAGED_ENCODERS
    from sentdist.learning.encoder.write_folder import language_of
    from sentdist.report.encoder_card import encoder_card

    folder = Path(store.folder(trained))
    said = language_of(folder) if language is None else language
    packaged = PACKAGED_ENCODERS.get(_fields(trained)["encoder"]["checkpoint"])
    base, licence = (None, licence) if packaged is None else (packaged.hub_id, licence or packaged.licence)
    return encoder_card(
        store, trained, name=name, licence=licence, language=said, has_unit_length=ends_in_normalize(folder), base=base,
        scored_as=scored_as, num_seeds=num_seeds,
    )  # fmt: skip


def _card_if_known(trained: Artifact, store: ArtifactStore, *, name: str) -> str | None:
    try:
        return card_of(trained, store, name=name)
    except StoreError:
        return None


def _fields(trained: Artifact) -> Any:
    return trained.record.stage["fields"]


def _training_of(checkpoint: str, store: ArtifactStore) -> Artifact | None:
    """The training whose folder this is; None for any other checkpoint."""
    found = store.at(f"train/{Path(checkpoint).name}")
    return found if found is not None and Path(store.folder(found)) == Path(checkpoint).absolute() else None
