"""Addresses as they may be shown: what lets somebody in stands in many of them, and in none that is printed, logged or kept."""

from __future__ import annotations

import re

# What stands before a host: up to the last @, for a password may hold one. With a slash in it no library takes it as an address, and
# says so with half of the password; it is told from HOST:PORT/PATH@COMMIT by what follows the colon.
_LOGIN = re.compile(r"(?<=://)(?:[^\s/?#]*@|[^\s/?#:@\[\]]*:(?!\d{1,5}(?:[/?#]|$))[^\s]*@)")
_NAMES = r"[\w-]*(?:password|passwd|secret|token|signature|credential)[\w-]*|[\w-]*(?:api|access|account)[_-]?key(?:[_-]?id)?|pwd|sig|key"
_FIELD = re.compile(rf"(?<=[?&])({_NAMES})=[^&#\s]+", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """A text, such as an address or an error's, without users and passwords before a host and without secrets after a `?`."""
    if "://" not in text:
        return text
    return _FIELD.sub(r"\1=…", _LOGIN.sub("", text))
