"""Addresses of object stores and servers: as they are opened, and as they may be shown, without what lets somebody in."""

from __future__ import annotations

import re

GCS_GIVES_UP_S = 60.0

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


def giving_up(address: str) -> str:
    """A gs:// address that bounds how long one request is tried, unless it says so itself: Google's library tries for a quarter of an hour,
    in silence, also where there are no credentials. All others as they are."""
    if not address.startswith(("gs://", "gcs://")) or "retry_limit_seconds=" in address:
        return address
    return f"{address}{'&' if '?' in address else '?'}retry_limit_seconds={GCS_GIVES_UP_S:g}"
