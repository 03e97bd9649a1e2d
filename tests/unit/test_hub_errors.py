"""What the hub's errors mean, with the error classes that its library raises."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import huggingface_hub.errors as known
import pytest

from sentdist.errors import hub_trouble


def _http(kind: Callable[..., Exception], status: int) -> Exception:
    """As the library makes it of an answer."""
    return kind("reported", response=SimpleNamespace(status_code=status, headers={}, request=None))


@pytest.mark.parametrize(
    ("error", "found", "has_answered"),
    [
        (_http(known.RevisionNotFoundError, 404), 'no revision "abc" on the hub', True),
        (_http(known.GatedRepoError, 403), "a repository whose owner must let you in", True),
        (_http(known.RepositoryNotFoundError, 401), "no such repository on the hub, or a private one", True),
        (known.HFValidationError("a//b"), "no such repository on the hub, or a private one", True),
        (_http(known.HfHubHTTPError, 403), "no login that may do this", True),
        (known.LocalTokenNotFoundError("none"), "no login that may do this", True),
        (_http(known.HfHubHTTPError, 503), "no answer from the hub (HfHubHTTPError: reported)", False),
        (known.OfflineModeIsEnabled("off"), "HF_HUB_OFFLINE, which forbids to ask the hub", False),
        (OSError("no route to host\nand more"), "no answer from the hub (OSError: no route to host)", False),
    ],
)
def test_an_error_is_an_answer_or_silence(error: Exception, found: str, has_answered: bool) -> None:
    trouble = hub_trouble(error, revision="abc")
    assert (trouble.found, trouble.has_answered) == (found, has_answered) and trouble.remedy.endswith(".")
    not_cached = known.LocalEntryNotFoundError("not in the cache")
    not_cached.__cause__ = error
    assert hub_trouble(not_cached, revision="abc") == trouble
