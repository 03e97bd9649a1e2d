"""Ports of loopback: a server that keeps what it was shown, and numbers for servers that are not started."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

FREE = {"ray": 7379, "dashboard": 7265, "mlflow": 7001}


class Listening:
    """What a server was asked, with the secret that came along. url: where it listens, by number."""

    def __init__(self, port: int, scheme: str) -> None:
        self.port = port
        self.url = f"{scheme}://127.0.0.1:{port}"
        self.shown: list[tuple[str, str | None]] = []


@contextmanager
def listening(*, status: int = 200, text: str = "", to: str | None = None, certificate: Path | None = None) -> Iterator[Listening]:
    """One that answers everything alike. to: where it sends those who ask. certificate: a file that holds it and its key, for https."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.shown.append((self.path, self.headers.get("Authorization")))
            self.send_response(302 if to else status)
            if to:
                self.send_header("Location", to)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        made = Listening(server.server_address[1], "http" if certificate is None else "https")
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
