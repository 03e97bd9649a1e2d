"""Addresses of object stores and servers: as they are opened, and as they may be shown, without what lets somebody in."""

from __future__ import annotations

import re

GCS_GIVES_UP_S = 60.0

# What stands before a host: up to the last @, for a password may hold one. With a slash in it no library takes it as an address, and
# says so with half of the password; it is distinguished from HOST:PORT/PATH@COMMIT by what follows the colon.
_LOGIN = re.compile(r"(?<=://)(?:[^\s/?#]*@|[^\s/?#:@\[\]]*:(?!\d{1,5}(?:[/?#]|$))[^\s]*@)")
_NAMES = r"[\w-]*(?:password|passwd|secret|token|signature|credential)[\w-]*|[\w-]*(?:api|access|account)[_-]?key(?:[_-]?id)?|pwd|sig|key"
_FIELD = re.compile(rf"(?<=[?&])({_NAMES})=[^&#\s]+", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """A text, such as an address or an error's, without users and passwords before a host and without secrets after a `?`."""
    if "://" not in text:
        return text
    return _FIELD.sub(r"\1=…", _LOGIN.sub("", text))


def opened_as(address: str) -> str:
    """An address with what its library should do and does not do by itself; what the address says already stays.

    s3://: an object up to 5 MB goes in one request, not in three (begin, part, end). gs://: one request is tried for a minute;
    Google's library tries for a quarter of an hour, in silence, also where there are no credentials.
    """
    if address.startswith("s3://"):
        name, value = "allow_delayed_open", "true"
    elif address.startswith(("gs://", "gcs://")):
        name, value = "retry_limit_seconds", f"{GCS_GIVES_UP_S:g}"
    else:
        return address
    return address if f"{name}=" in address else f"{address}{'&' if '?' in address else '?'}{name}={value}"
