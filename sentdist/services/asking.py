"""Asking servers over HTTP: a secret goes to the host that was named, and to no other."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from dataclasses import dataclass
from email.message import Message
from typing import IO
from urllib.parse import urlsplit

MOST_BYTES = 10_000
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, kw_only=True)
class Reply:
    """status: of HTTP. text: the first 10 kB."""

    status: int
    text: str


def get(url: str, *, authorization: str | None = None, timeout_s: float) -> Reply | None:
    """What a server answers; None if none does. No proxy is asked about this machine, and no other host is shown `authorization`."""
    if not url.startswith(("http://", "https://")):
        return None
    try:
        proxies = urllib.request.ProxyHandler({} if urlsplit(url).hostname in LOOPBACK else None)
        request = urllib.request.Request(url, headers={"Authorization": authorization} if authorization else {})
        with urllib.request.build_opener(proxies, _SecretsStay).open(request, timeout=timeout_s) as response:
            return Reply(status=response.status, text=response.read(MOST_BYTES).decode(errors="replace"))
    except urllib.error.HTTPError as error:
        with error:
            return Reply(status=error.code, text="")
    except (OSError, ValueError, http.client.HTTPException):
        return None


class _SecretsStay(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        """urllib would send the secret along, wherever the answer points."""
        redirected = super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
        if redirected is not None and urlsplit(newurl).netloc != urlsplit(req.full_url).netloc:
            redirected.remove_header("Authorization")
        return redirected
