"""What is known of an artifact: the stage that it is, how and where it was made, and what came out."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from sentdist.plan.stage import Json


class Record(BaseModel):
    """The content of `record.json`. Its presence beside the data is what makes an artifact exist."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    kind: str
    label: str
    place: str  # folder below the root of the store
    stage: dict[str, Json]  # canonical: kind, revision, fields; input stages by key
    inputs: tuple[str, ...]  # keys
    created_at: str  # ISO 8601, UTC
    seconds: float  # wall time of the making
    runtime: dict[str, Json]  # workers, engine, ZeRO stage, device: what must not change a result
    environment: dict[str, str]  # versions, host, processor
    results: dict[str, Json]  # scores, counts, the stopping step: what a report or a dashboard shows
    files: dict[str, int]  # relative path -> bytes
