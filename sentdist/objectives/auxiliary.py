"""Auxiliary tasks on channels of the embedding, with adversaries; the equations stand in learning/objectives/auxiliary.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from sentdist.citation import Citation
from sentdist.objectives.objective import Given, Misfit, Needs, ObjectiveSpec, Rate, Weight

if TYPE_CHECKING:
    from sentdist.learning.objectives.objective import Objective

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
    """Shares of tags and of words, each predicted from channels of its own, with an adversary on the other's channels (after ACL P19-1041).

    The weights are ratios, those of John et al.: a term of weight 0.01 gives them the size of SimCSE's masked language modelling.
    """

    title: ClassVar[str] = "part-of-speech and bag-of-words tasks with adversaries"
    about: ClassVar[str] = "tags and words in channels of their own, with adversaries"
    citations: ClassVar[tuple[Citation, ...]] = (JOHN, NLTK, GANIN)
    needs: ClassVar[Needs] = Needs(columns=1, positives=None, labels="ignored", targets=True)
    equation: ClassVar[str] = "sentdist/learning/objectives/auxiliary.py"

    name: Literal["auxiliary"] = "auxiliary"
    channels: tuple[int, int] | None = None  # of tags, of words; they add up to the encoder's width. None: 128 : 640 of it
    pos_weight: Weight = 10.0
    bow_weight: Weight = 3.0
    classifier_learning_rate: Rate | None = None  # None: the encoder's
    adversary: Literal["none", "entropy", "reversal"] = "entropy"
    pos_adversary: Weight = 1.0
    bow_adversary: Weight = 0.03
    adversary_learning_rate: Rate = 1e-3
    warmup_steps: Annotated[int, Field(ge=0)] = 0  # in which the adversaries' weights grow from 0

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

    def misfit_of_encoder(self, *, pooling: str, width: int | None) -> Misfit | None:
        """Refused: tasks that would read another representation than the one that is evaluated, and channels that do not add up."""
        if pooling == "cls_mlp_train_only":
            return Misfit(
                found=f"channels of a layer that is dropped at test (pooling {pooling})",
                expected="channels of what is evaluated",
                remedy="Use pooling cls, and projected: true for the contrastive term: the layer then stands before that term only.",
            )
        return None if self.channels is None or width is None else misfit_of_channels(self.channels, width)

    @classmethod
    def used_citations(cls, values: Mapping[str, object]) -> tuple[Citation, ...]:
        return tuple(work for work in cls.citations if work is not GANIN or values.get("adversary") == "reversal")

    def make_loss(self, given: Given) -> Objective:
        from sentdist.learning.objectives.adversaries import Adversaries
        from sentdist.learning.objectives.auxiliary import Auxiliary as Loss
        from sentdist.learning.objectives.auxiliary import AuxiliaryWeights
        from sentdist.learning.objectives.channels import Channels

        assert given.targets is not None, "the plan gives every auxiliary its targets"
        channels = Channels.of(given.encoder.width, self.channels)
        has_adversaries = self.adversary != "none"
        weights = AuxiliaryWeights(
            pos=self.pos_weight, bow=self.bow_weight, adversary_pos=self.pos_adversary, adversary_bow=self.bow_adversary
        )
        return Loss(
            channels=channels,
            targets=given.targets,
            weights=weights,
            adversaries=Adversaries(channels=channels, targets=given.targets, learning_rate=self.adversary_learning_rate)
            if has_adversaries
            else None,
            form=self.adversary if has_adversaries else "entropy",
            warmup_steps=self.warmup_steps,
            learning_rate=self.classifier_learning_rate,
        )


def misfit_of_channels(channels: tuple[int, int], width: int) -> Misfit | None:
    """Why two channels do not share out an encoder's width; None where they do."""
    if sum(channels) == width and min(channels) >= 1:
        return None
    return Misfit(
        found=f"{channels[0]} + {channels[1]} = {sum(channels)}",
        expected=f"two numbers above 0 that add up to the encoder's width, {width}",
        remedy="Correct them, or leave them out: then they are 128 : 640 of the width.",
        where="channels",
    )
