"""Auxiliary tasks on channels of the embedding: tags from the first, words from the others (John et al. 2019, ACL P19-1041)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from sentdist.families import POOLINGS
from sentdist.objectives.channels import Channels, mismatch_of_channels
from sentdist.objectives.objective_spec import LossInputs, Mismatch, Needs, ObjectiveSpec, Rate, Weight
from sentdist.text import Citation

if TYPE_CHECKING:
    from sentdist.learning.objective import Objective

JOHN = Citation(
    key="john",
    kind="inproceedings",
    authors=("Vineet John", "Lili Mou", "Hareesh Bahuleyan", "Olga Vechtomova"),
    title="Disentangled Representation Learning for Non-Parallel Text Style Transfer",
    where="ACL",
    year=2019,
    url="https://aclanthology.org/P19-1041",
    role="auxiliary tasks and adversaries on parts of an embedding",
)
GANIN = Citation(
    key="ganin",
    kind="inproceedings",
    authors=("Yaroslav Ganin", "Victor Lempitsky"),
    title="Unsupervised Domain Adaptation by Backpropagation",
    where="ICML",
    year=2015,
    url="https://arxiv.org/abs/1409.7495",
    role="gradient reversal",
)
NLTK = Citation(
    key="nltk",
    kind="misc",
    authors=("Steven Bird", "Ewan Klein", "Edward Loper"),
    title="Natural Language Processing with Python",
    where="O'Reilly",
    year=2009,
    url="https://www.nltk.org/book",
    role="part-of-speech tagger",
)


class Auxiliary(ObjectiveSpec):
    """λ_P CE(t_P, C_P(h_P)) + λ_B CE(t_B, C_B(h_B)) − α_P H(D_P(h_B)) − α_B H(D_B(h_P)): a term beside a contrastive one.

    Optimizes: the first channels predict a sentence's tags, the others its words, while adversaries that read the *other* channels
        stay uncertain. t_P, t_B are shares of tags and words; D_P, D_B are the adversaries, constant here:
        this loss gives them no gradient, their dropout is off, and they have their own training (`Adversaries`).
        Without adversaries the last two terms are absent.
    Reads: the encoder's embeddings in all columns, each sentence with its own targets, looked up by `batch.sentence_ids`.
    Units and reduction: nats, mean over the columns (views) and this rank's B rows; candidates of other ranks play no part.
        A sentence without a word of the vocabulary adds 0 to the word terms.
    Source: "SimCSE + auxiliary tasks" (poster), its L_cls and L_adv, with C_BOW in the second term (printed C_POS twice);
        entropy form, classifiers and adversaries after John et al. 2019 (ACL P19-1041).
    The weights are ratios, those of John et al.: in a sum, weight 0.01 gives this term the size of SimCSE's masked language modelling.

    Args:
        adversary: "entropy" as above, bounded since H ≤ ln V; "reversal": −α CE(t, D(h)) instead of −α H(D(h)), whose gradient is that of
            gradient reversal (Ganin & Lempitsky 2015, arXiv 1409.7495) for the encoder: the literal reading of the poster; unbounded.
        warmup_steps: adversary steps over which α grows linearly; 0: none.
    """

    title: ClassVar[str] = "part-of-speech and bag-of-words tasks with adversaries"
    about: ClassVar[str] = "tags and words in separate channels, with adversaries"
    citations: ClassVar[tuple[Citation, ...]] = (JOHN, NLTK, GANIN)
    needs: ClassVar[Needs] = Needs(columns=1, positives=None, labels="ignored", targets=True)

    name: Literal["auxiliary"] = "auxiliary"
    channels: tuple[int, int] | None = None  # for tags and for words, together the encoder's width; null: 128 : 640 of it
    pos_weight: Weight = 10.0
    bow_weight: Weight = 3.0
    classifier_learning_rate: Rate | None = None  # null: the encoder's
    adversary: Literal["none", "entropy", "reversal"] = "entropy"
    pos_adversary: Weight = 1.0
    bow_adversary: Weight = 0.03
    adversary_learning_rate: Rate = 1e-3
    warmup_steps: Annotated[int, Field(ge=0)] = 0  # steps in which the adversaries' weights grow from 0

    @model_validator(mode="after")
    def _adversaries_are_used(self) -> Self:
        fields = type(self).model_fields
        own = ("pos_adversary", "bow_adversary", "adversary_learning_rate", "warmup_steps")
        changed = [name for name in own if getattr(self, name) != fields[name].default]
        if self.adversary == "none" and changed:
            raise ValueError(f"{changed[0]} has no effect when adversary is 'none'; leave it out")
        if self.adversary != "none" and self.pos_adversary == self.bow_adversary == 0:
            raise ValueError("found no weight for either adversary; expected one above 0, or adversary: none")
        return self

    def mismatch_of_encoder(self, *, pooling: str, width: int | None, has_mask_token: bool) -> Mismatch | None:
        """Reject a pooling whose head is dropped at test, and channels that do not add up to the width."""
        if POOLINGS[pooling].head == "training":
            return Mismatch(
                found=f"channels of a layer that is dropped at test (pooling {pooling})",
                expected="channels of the evaluated embeddings",
                remedy="Use pooling cls, and projected: true for the contrastive term: the layer then applies to that term only.",
            )
        return None if self.channels is None or width is None else mismatch_of_channels(self.channels, width)

    def mismatch_of_frozen_encoder(self) -> Mismatch | None:
        """Reject adversaries: only a trained encoder can evade them."""
        return None if self.adversary == "none" else Mismatch(f"{self.adversary} adversaries", "adversary: none", "Set adversary: none.")

    @property
    def used_citations(self) -> tuple[Citation, ...]:
        return tuple(work for work in self.citations if work is not GANIN or self.adversary == "reversal")

    def make_loss(self, inputs: LossInputs) -> Objective:
        from sentdist.objectives.learned.auxiliary import Adversaries, AuxiliaryLoss, AuxiliaryWeights

        assert inputs.targets is not None, "the plan gives every auxiliary its targets"
        channels = Channels.of(inputs.needed_width(self.name), self.channels)
        has_adversaries = self.adversary != "none"
        weights = AuxiliaryWeights(
            pos=self.pos_weight, bow=self.bow_weight, adversary_pos=self.pos_adversary, adversary_bow=self.bow_adversary
        )
        return AuxiliaryLoss(
            channels=channels,
            targets=inputs.targets,
            weights=weights,
            adversaries=Adversaries(channels=channels, targets=inputs.targets, learning_rate=self.adversary_learning_rate)
            if has_adversaries
            else None,
            form=self.adversary if has_adversaries else "entropy",
            warmup_steps=self.warmup_steps,
            learning_rate=self.classifier_learning_rate,
        )
