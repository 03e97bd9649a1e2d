"""A server on loopback that keeps what it was shown."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer


class Listening:
    """What a server was asked, with the secret that came along. url: where it listens, by number."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.shown: list[tuple[str, str | None]] = []


@contextmanager
def listening(*, status: int = 200, text: str = "", to: str | None = None) -> Iterator[Listening]:
    """One that answers everything alike. to: where it sends those who ask."""

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
        made = Listening(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
