"""Asking servers over HTTP: a secret goes to the host that was named, and to no other."""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from email.message import Message
from typing import IO
from urllib.parse import SplitResult, unquote, urlsplit

MOST_BYTES = 10_000
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, kw_only=True)
class Reply:
    """status: of HTTP. text: the first 10 kB."""

    status: int
    text: str


def get(url: str, *, authorization: str | None = None, authority: str | None = None, timeout_s: float) -> Reply | None:
    """What a server answers; None if none does. No proxy is asked about this machine, and no other host is shown `authorization`.

    A user and password in the address are shown to the server where no `authorization` is given, as MLflow's own client does.
    authority: file or folder of the certificates that vouch for servers; None: those of REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE, as for Ray's
    and MLflow's own clients, else the system's.
    """
    if not url.startswith(("http://", "https://")):
        return None
    try:
        parts = urlsplit(url)
        proxies = urllib.request.ProxyHandler({} if parts.hostname in LOOPBACK else None)
        shown = authorization or _login(parts)
        plain = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        request = urllib.request.Request(plain, headers={"Authorization": shown} if shown else {})
        with urllib.request.build_opener(proxies, _SecretsStay, _trusting(authority)).open(request, timeout=timeout_s) as response:
            return Reply(status=response.status, text=response.read(MOST_BYTES).decode(errors="replace"))
    except urllib.error.HTTPError as error:
        with error:
            return Reply(status=error.code, text="")
    except (OSError, ValueError, http.client.HTTPException):
        return None


def ray_version(reply: Reply | None) -> str | None:
    """What a dashboard of Ray answers at /api/version; None if it is no such answer."""
    try:
        return None if reply is None or reply.status != 200 else str(json.loads(reply.text)["ray_version"])
    except (ValueError, KeyError, TypeError):
        return None


def basic_auth_header(user: str, password: str) -> str:
    """How HTTP shows a user and a password."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def _trusting(authority: str | None) -> urllib.request.HTTPSHandler:
    place = authority or os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or None
    is_folder = place is not None and os.path.isdir(place)
    context = ssl.create_default_context(capath=place if is_folder else None, cafile=None if is_folder else place)
    return urllib.request.HTTPSHandler(context=context)


def _login(parts: SplitResult) -> str | None:
    return basic_auth_header(unquote(parts.username), unquote(parts.password)) if parts.username and parts.password else None


class _SecretsStay(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        """urllib would send the secret along, wherever the answer points."""
        redirected = super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
        if redirected is not None and urlsplit(newurl).netloc != urlsplit(req.full_url).netloc:
            redirected.remove_header("Authorization")
        return redirected
