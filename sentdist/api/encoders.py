"""Python API to use encoders: load, encode, similarity, search, export; objectives for other embeddings; model cards."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentdist.data.cells import is_invisible, is_utf8
from sentdist.errors import DataError, StoreError, brief, typed
from sentdist.inference.opening import encoder_use, open_store, store_root

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

    from sentdist.inference.embedding_loss import EmbeddingLoss
    from sentdist.inference.ready_encoder import LoadedEncoder
    from sentdist.recipe.specs import EncoderSpec, EncoderUse
    from sentdist.recipe.stage import Json
    from sentdist.store.store import Artifact, ArtifactStore


Place = str | Path | None
Weights = Mapping[str, float] | None


class Encoder:
    """A sentence encoder in memory: in float32, on a GPU if there is one.

    Example:
        encoder = sentdist.Encoder("minilm-l6")
        embeddings = encoder.encode(["A man plays the guitar.", "Somebody makes music."])  # (2, 384), float32
        encoder = sentdist.Encoder("minilm-l6?max_length=128&pooling=cls")
    """

    def __init__(self, name: str | Path, *, store: Place = None) -> None:
        """Load an encoder.

        Args:
            name: a folder, a packaged name (`minilm-l6`), a hub id, or the key of a training in the store, and `?key=value&…` on how it is
                opened:
                `revision`: commit of a hub id;
                `pooling`: as `encoder.pooling` in a recipe (mean, cls, …); by default what it declares, else mean;
                `max_length`: tokens of a sentence, including special ones, by default the encoder's limit;
                `precision` of matrix products: fp32, bf16, or tf32 (TensorFloat-32, on an NVIDIA GPU);
                `normalize`: true for embeddings of length 1;
                `prompt`, `query_prompt`, `document_prompt`: prompts by name or text, instead of the encoder's defaults.
            store: where keys are looked up; None: SENTDIST_STORE, else `.sentdist/store`.

        Raises:
            EncoderError: no such encoder, an unknown key or value, no tokenizer, weights that its pooling lacks, or an unsupported length.
            DataError: not a name. ResourceError: tf32 without an NVIDIA GPU. StoreError: a key of no or several artifacts.
        """
        use, self._store = use_of(name, store), store_root(store)  # in which it was looked up

        from sentdist.inference.ready_encoder import LoadedEncoder

        self.loaded = LoadedEncoder.load(use)

    @property
    def width(self) -> int:
        """The width D of an embedding."""
        return self.loaded.width

    @property
    def prompts(self) -> dict[str, str]:
        """The prompts in its folder for sentence-transformers, name to text."""
        return dict(self.loaded.prompts.texts)

    def encode(self, sentences: str | Iterable[str], *, prompt: str | None = None, normalize: bool = False) -> np.ndarray:
        """Return the embeddings of sentences, in order.

        Args:
            sentences: a list or column of `str`, or one `str`.
            prompt: prefix of each sentence: a name in `prompts`, a text, or "" for none; None: as the encoder was opened, else the
                folder's default prompt, if any, as in `SentenceTransformer.encode`, with a warning if it has prompts but no default.
            normalize: scale to length 1; False: as the encoder was opened, by default with lengths as pooling gives them, even if the
                checkpoint has sentence-transformers normalize.

        Returns:
            (S, D) float32, or (D,) for one `str`.

        Raises:
            DataError: no sentences, or one without a visible character; an unknown prompt.
            EncoderError: non-finite embeddings; a prompt that leaves no token for a sentence.
        """
        loaded = _of_sentences(self.loaded, prompt)
        if normalize:
            loaded = replace(loaded, use=replace(loaded.use, normalize=True))
        embeddings_SD = loaded.embed(sentences_of("encode: sentences", sentences))
        embedding: np.ndarray = embeddings_SD[0] if isinstance(sentences, str) else embeddings_SD
        return embedding

    def export(self, to: str | Path) -> None:
        """Write a new folder that `SentenceTransformer(to)` loads, with a model card and the encoder's relations, if any.

        The folder keeps the `max_length` of the encoder's name. `sentdist export` also writes ONNX graphs.

        Raises:
            DataError: the folder exists.
        """
        export_encoder(self.loaded.use, Path(to).expanduser(), open_store(self._store))

    def __repr__(self) -> str:
        encoder = self.loaded.encoder
        return f"Encoder({self.loaded.use.checkpoint!r}, width={self.width}, pooling={encoder.pooling!r})"


AnyEncoder = Encoder | str | Path


def similarity(
    encoder: AnyEncoder,
    first: str | Iterable[str],
    second: str | Iterable[str],
    *,
    relations: Weights = None,
    prompt: str | None = None,
) -> Any:
    """Return the similarity of pairs of sentences, row by row.

    Args:
        encoder: an `Encoder`, or its name or folder.
        first, second: two lists of equal length, or two `str`.
        relations: relation -> weight: score by Σ_k w_k cos(h_1 + r_k, h_2), the greater of both
            directions (RSE, arXiv 2212.08802); None: cosines.
        prompt: prefix of all sentences, as in `Encoder.encode`.

    Returns:
        (S,) float64 in [−1, 1], or a float for two `str`.

    Raises:
        DataError: lists of different lengths, no sentences, a relation that the encoder lacks, an unknown prompt.
        EncoderError: the encoder has no relations; a prompt, as in `Encoder.encode`.
    """
    from sentdist.inference.similarity import pair_scorer

    heads, tails = sentences_of("similarity: first", first), sentences_of("similarity: second", second)
    if len(heads) != len(tails):
        raise DataError(
            where="similarity", found=f"{len(heads)} and {len(tails)} sentences", expected="two sentences, or two lists of equal length",
            remedy="To compare one sentence with many, use search.",
        )  # fmt: skip
    loaded = _of_sentences(_loaded(encoder), prompt)
    scores_S = pair_scorer(loaded, relations or {}).scores(heads, tails)
    return float(scores_S[0]) if isinstance(first, str) else scores_S


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A sentence found by `search`."""

    row: int  # in the corpus, from 0
    score: float  # cosine, or the weighted sum of relations
    text: str


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
) -> Any:
    """Find the sentences of a corpus nearest to each query, by exact search in memory; for large files use `sentdist search`.

    Args:
        encoder: an `Encoder`, or its name or folder.
        queries: a list of sentences, or one `str`.
        corpus: the sentences to search.
        top: hits for each query; fewer if the corpus is smaller.
        embeddings: (S, D), the corpus as encoded by `encode`; None: encode it.
        relations: as in `similarity`, with the query as head; None: cosines.
        query_prompt, document_prompt: prefix of each query and of each sentence of the corpus: a name, a text, or "" for none; None: the
            folder's prompts "query" and "document", as in `SentenceTransformer.encode_query` and `encode_document`. For `embeddings`, use
            `encode(corpus, prompt="document")`.

    Returns:
        For each query a list of hits, best first; for one `str` its list.

    Raises:
        DataError: no query, an empty corpus, `top` below 1, embeddings of another number or width, an unknown prompt, or a
            `document_prompt` with `embeddings`.
        EncoderError: the encoder has no relations; a prompt, as in `Encoder.encode`.

    Example:
        hits = sentdist.search("minilm-l6", "music", ["A dog sleeps.", "A choir sings."], top=1)
        print(hits[0].text)
    """
    from sentdist.evaluation.nearest import ROWS_PER_TILE
    from sentdist.inference.nearest import CorpusSearch, Tile, embed_queries

    asked, documents = sentences_of("search: queries", queries), sentences_of("search: corpus", corpus)
    given = None if embeddings is None else embeddings_of("search: embeddings", embeddings, num_rows=len(documents))
    if given is not None and document_prompt is not None:
        raise DataError(
            where="search: document_prompt", found="embeddings of the corpus", expected="a corpus without embeddings",
            remedy="Leave document_prompt out, and encode the corpus with it: encode(corpus, prompt=…).",
        )  # fmt: skip
    loaded = _loaded(encoder)
    of_queries, of_documents = loaded.prompts.of_queries(query_prompt), loaded.prompts.of_documents(document_prompt)
    found = CorpusSearch(embed_queries(loaded.with_prompt(of_queries.text), asked, relations or {}), depth=top)
    loaded = loaded.with_prompt(of_documents.text)
    for first in range(0, len(documents), ROWS_PER_TILE):
        sentences = documents[first : first + ROWS_PER_TILE]
        tile_RD = loaded.embed(sentences) if given is None else given[first : first + len(sentences)]
        found.look(Tile(first_row=first, num_rows=len(sentences), sentences=sentences), tile_RD)
    hits = [[Hit(row=hit["row"], score=hit["score"], text=hit["text"]) for hit in found.hits(query)] for query in range(len(asked))]
    return hits[0] if isinstance(queries, str) else hits


def objective(name: str, *, width: int | None = None, relations: Sequence[str] = (), **values: Json) -> EmbeddingLoss:
    """Return an objective of recipes as a torch module for your own embeddings.

    Call it with (B, D) tensors: anchors, positives and optionally hard negatives; by name with `labels`, `relations` or `augmented` where
    the objective reads them (see `EmbeddingLoss.forward`). Under torch.distributed, candidates come from all ranks.

    Args:
        name: as in a recipe; `sentdist list objectives` lists the names.
        width: D, for objectives with parameters (a head, relation vectors): add its `parameters()` to the optimizer.
        relations: names of the relations, for objectives with relation vectors.
        values: as in a recipe.

    Raises:
        RecipeError: no such objective, unknown values, or an objective that needs more than embeddings (masked words, tags).

    Example:
        loss = sentdist.objective("info_nce", temperature=0.05)(torch.randn(8, 384), torch.randn(8, 384))
    """
    from sentdist.inference.embedding_loss import EmbeddingLoss
    from sentdist.recipe.recipe import objective_from_values

    return EmbeddingLoss(objective_from_values(name, values), width=width, relations=relations)


def sentences_of(where: str, given: str | Iterable[str]) -> list[str]:
    """Return sentences as a list; a `str` is one sentence. Columns of NumPy, pandas, Arrow and Polars are accepted.

    Raises:
        DataError: no sentences, or one that is no `str`, has no visible character or a lone surrogate; a table, a mapping or a set.
    """
    if not isinstance(given, Iterable) or isinstance(given, bytes | Mapping | Set) or hasattr(given, "columns"):
        raise DataError(where=where, found=typed(given), expected="a list of sentences", remedy="Give a list or a column of str.")
    column = given.to_pylist() if hasattr(given, "to_pylist") else given  # Arrow's items are no str
    sentences = [column] if isinstance(column, str) else list(column)
    if not sentences:
        raise DataError(where=where, found="no sentences", expected="a list of sentences", remedy="Give at least one.")
    for number, sentence in enumerate(sentences):
        if not isinstance(sentence, str) or is_invisible(sentence) or not is_utf8(sentence):
            raise DataError(
                where=f"{where}[{number}]", found=brief(sentence), expected="a str of UTF-8 with a visible character",
                remedy="Fill it in, or leave it out.",
            )  # fmt: skip
    return sentences


def embeddings_of(where: str, given: ArrayLike, *, num_rows: int) -> np.ndarray:
    """Return an (S, D) array of numbers from an array, a tensor or lists; DataError unless it has S = `num_rows` rows."""
    import numpy as np

    detach = getattr(given, "detach", None)  # of a tensor, which NumPy rejects with a gradient, on a GPU or in bfloat16
    embeddings_SD = np.asarray(given if detach is None else detach().cpu().float())
    if embeddings_SD.ndim != 2 or len(embeddings_SD) != num_rows or embeddings_SD.dtype.kind not in "fiu":
        raise DataError(
            where=where, found=f"{embeddings_SD.dtype} of shape {embeddings_SD.shape}", expected=f"({num_rows}, width) numbers",
            remedy="Encode the corpus again.",
        )  # fmt: skip
    return embeddings_SD


def use_of(encoder: AnyEncoder, store: Place = None) -> EncoderUse:
    """Return the use of an encoder; DataError for an object of another library."""
    if isinstance(encoder, Encoder):
        return encoder.loaded.use
    if not isinstance(encoder, str | Path):
        raise DataError(
            where="encoder", found=typed(encoder), expected="a sentdist.Encoder, or the name or folder of one",
            remedy="Save a SentenceTransformer and give its folder: model.save(folder).",
        )  # fmt: skip
    return encoder_use(str(encoder), store)


def _loaded(encoder: AnyEncoder) -> LoadedEncoder:
    return encoder.loaded if isinstance(encoder, Encoder) else Encoder(encoder).loaded


def _of_sentences(loaded: LoadedEncoder, asked: str | None) -> LoadedEncoder:
    """The encoder with the prompt for sentences; warns if it has prompts and none was requested or is the default."""
    prompt = loaded.prompts.of_sentences(asked)
    if asked is None and loaded.use.prompts.sentence is None and prompt.line and not prompt.text:
        warnings.warn(prompt.line, stacklevel=3)
    return loaded.with_prompt(prompt.text)


def export_encoder(use: EncoderUse, to: Path, store: ArtifactStore, *, card: str | None = None) -> None:
    """Export to a new folder for sentence-transformers; a training of the store gets its card, unless another `card` is given.

    If the card cannot be written (a training by another version), the card of its folder is kept.
    """
    from sentdist.inference.export import export_sentence_transformers

    trained = _training_of(use.checkpoint, store) if use.pooling is None and card is None else None
    if trained is not None:
        with suppress(StoreError):
            card = card_of(trained, store, name=to.name)
    export_sentence_transformers(as_trained(use, store), to, card=card)


def as_trained(use: EncoderUse, store: ArtifactStore) -> EncoderUse:
    """Return the use with the maximum length in training if it is a training of the store and sets no length."""
    trained = _training_of(use.checkpoint, store) if use.max_length is None else None
    return use if trained is None else replace(use, max_length=_fields(trained)["training"]["max_length"])


def card_of(
    trained: Artifact,
    store: ArtifactStore,
    *,
    name: str,
    licence: str | None = None,
    scored_as: EncoderSpec | None = None,
    num_seeds: int = 1,
) -> str:
    """Return the model card of a training, or of the average of `num_seeds` trainings: see `encoder_card`.

    licence: None: that of a packaged base model.
    """
    from sentdist.learning.encoder.declared import Checkpoint
    from sentdist.learning.encoder.find_checkpoint import PACKAGED_ENCODERS
    from sentdist.learning.encoder.write_folder import language_of
    from sentdist.report.encoder_card import encoder_card

    folder = Path(store.folder(trained))
    packaged = PACKAGED_ENCODERS.get(_fields(trained)["encoder"]["checkpoint"])
    base, licence = (None, licence) if packaged is None else (packaged.hub_id, licence or packaged.licence)
    return encoder_card(
        store, trained, name=name, licence=licence, language=language_of(folder),
        has_unit_length=Checkpoint.open(folder).is_normalized, base=base, scored_as=scored_as, num_seeds=num_seeds,
    )  # fmt: skip


def _fields(trained: Artifact) -> Any:
    return trained.record.stage["fields"]


def _training_of(checkpoint: str, store: ArtifactStore) -> Artifact | None:
    """The training of the store in this folder, or None."""
    found = store.at(f"train/{Path(checkpoint).name}")
    return found if found is not None and Path(store.folder(found)) == Path(checkpoint).absolute() else None
