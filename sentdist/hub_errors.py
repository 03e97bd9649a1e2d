"""What an error of the Hugging Face hub means for people: it said no, or it did not answer."""

from __future__ import annotations

from dataclasses import dataclass

from sentdist.errors import first_line

HUB_ANSWERS_WITHIN_S = 20.0  # what is asked before any work; else a silent hub is waited for half a minute and more


@dataclass(frozen=True, kw_only=True)
class HubTrouble:
    """found, remedy: as in an error of ours. has_answered: the hub itself said so; else it may answer another time."""

    found: str
    remedy: str
    has_answered: bool


def hub_trouble(error: Exception, *, revision: str | None = None) -> HubTrouble:
    """Read an error of huggingface_hub, or of a library that calls it. revision: what was asked for."""
    import huggingface_hub.errors as known  # half a second

    if isinstance(error, known.LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__  # it was not in the cache either
    answered, silent = True, False
    match error:
        case known.RevisionNotFoundError():
            return HubTrouble(
                found=f'no revision "{revision}" on the hub', remedy="Copy the commit from its page: Files, History.", has_answered=answered
            )
        case known.GatedRepoError():
            return HubTrouble(
                found="a repository whose owner must let you in", remedy="Ask on its page, then `hf auth login`.", has_answered=answered
            )
        case known.RepositoryNotFoundError() | known.HFValidationError():
            return HubTrouble(
                found="no such repository on the hub, or a private one", remedy="Correct the name, or log in with `hf auth login`.",
                has_answered=answered,
            )  # fmt: skip
        case known.OfflineModeIsEnabled():
            return HubTrouble(
                found="HF_HUB_OFFLINE, which forbids to ask the hub",
                remedy="Unset HF_HUB_OFFLINE, or fetch it before.",
                has_answered=silent,
            )
    if isinstance(error, known.LocalTokenNotFoundError) or _status(error) in (401, 403):
        return HubTrouble(
            found="no login that may do this", remedy="Log in with `hf auth login`, by a token that may do what you ask for.",
            has_answered=answered,
        )  # fmt: skip
    return HubTrouble(
        found=f"no answer from the hub ({type(error).__name__}: {first_line(error)})",
        remedy="Check the network and try again.",
        has_answered=silent,
    )


def _status(error: Exception) -> int | None:
    code = getattr(getattr(error, "response", None), "status_code", None)
    return code if isinstance(code, int) else None
