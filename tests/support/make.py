"""Losses as the training loop calls them, from an objective's values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from sentdist.learning.bank import BankReader
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.objective import Objective
from sentdist.objectives import entropy as entropy_file
from sentdist.objectives import info_nce as info_nce_file
from sentdist.objectives import mlm, rse
from sentdist.objectives import rcl as rcl_file
from sentdist.objectives import rcl as regulators_file
from sentdist.objectives import supmpn as supmpn_file
from sentdist.objectives.learned.mlm import MaskedLMLoss
from sentdist.objectives.learned.regression import RegressionLoss
from sentdist.objectives.learned.rse import Relational
from sentdist.objectives.objective_spec import LossInputs, ObjectiveSpec
from sentdist.objectives.regression import Regression

NOTHING: Any = None  # in place of rows of which nothing is asked


def made(spec: ObjectiveSpec, *, bank: BankReader | None = None) -> Objective:
    """The loss of an objective that asks nothing of the rows."""
    return spec.make_loss(LossInputs(rows=NOTHING, bank=bank))


def regression(*, width: int, **values: Any) -> RegressionLoss:
    """As settled on labels 0, 1, 2 where nothing else is said."""
    spec = Regression.model_validate({"label_range": (0.0, 2.0), "spacing": 1.0, "boundary": "none", **values})
    return cast(RegressionLoss, spec.make_loss(LossInputs(rows=NOTHING, width=width)))


def relational(*, relations: tuple[str, ...], width: int, **values: Any) -> Relational:
    rows: Any = SimpleNamespace(relation_names=relations)
    return cast(Relational, rse.RSE(**values).make_loss(LossInputs(rows=rows, width=width)))


def masked_lm(encoder: SentenceEncoder, **values: Any) -> MaskedLMLoss:
    return MaskedLMLoss(encoder, mlm.masked_lm, **values)


def info_nce(**values: Any) -> Objective:
    return made(info_nce_file.InfoNCE(**values))


def entropy(**values: Any) -> Objective:
    return made(entropy_file.Entropy(**values))


def rcl(*, bank: BankReader, **values: Any) -> Objective:
    return made(rcl_file.RCL(**values), bank=bank)


def regulators(*, bank: BankReader, **values: Any) -> Objective:
    return made(regulators_file.Regulators(**values), bank=bank)


def supmpn(**values: Any) -> Objective:
    return made(supmpn_file.SupMPN(**values))
