"""An S3 server in this process that misbehaves when it is asked to: moto behind a proxy."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
from moto.server import ThreadedMotoServer

BUCKET = "artifacts"
ERRORS = {
    "internal error": (500, "InternalError", "We encountered an internal error. Please try again."),
    "throttled": (503, "SlowDown", "Please reduce your request rate."),
    "expired credentials": (400, "ExpiredToken", "The provided token has expired."),
    "no such key": (403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records."),
    "no right": (403, "AccessDenied", "Access Denied"),
}


@dataclass
class FaultyS3:
    """The server as a test handles it.

    mood: None, a key of ERRORS, "slow" or "cut" (the connection breaks half-way through an answer, or before one).

    for_requests: how many requests meet the mood; then all is well again.
    """

    address: str = ""
    mood: str | None = None
    for_requests: float = float("inf")
    only: tuple[str, ...] = ("GET", "HEAD", "PUT", "POST", "DELETE")
    delay_s: float = 0.5
    num_requests: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def root(self, name: str) -> str:
        """The address of a store on it."""
        return f"s3://{BUCKET}/{name}?scheme=http&region=us-east-1&endpoint_override={self.address}"

    def be(self, mood: str | None, *, for_requests: float = float("inf"), only: tuple[str, ...] | None = None) -> None:
        """Misbehave from now on."""
        self.mood, self.for_requests = mood, for_requests
        self.only = only or ("GET", "HEAD", "PUT", "POST", "DELETE")

    def mood_for(self, method: str) -> str | None:
        """What the next request meets."""
        with self._lock:
            self.num_requests += 1
            if self.mood is None or method not in self.only or self.for_requests <= 0:
                return None
            self.for_requests -= 1
            return self.mood


@contextmanager
def faulty_s3() -> Iterator[FaultyS3]:
    """A server with one empty bucket."""
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    client = boto3.client(
        "s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1", aws_access_key_id="key", aws_secret_access_key="secret"
    )
    client.create_bucket(Bucket=BUCKET)
    client.close()
    s3 = FaultyS3()
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), _handler(s3, f"{host}:{port}"))
    s3.address = f"127.0.0.1:{proxy.server_address[1]}"
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield s3
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
        moto.stop()


def _handler(s3: FaultyS3, behind: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self._body()
            mood = s3.mood_for(self.command)
            if mood in ERRORS:
                self._refuse(*ERRORS[mood])
                return
            if mood == "slow":
                time.sleep(s3.delay_s)
            connection = http.client.HTTPConnection(behind, timeout=30)
            try:
                headers = {
                    name: value for name, value in self.headers.items() if name.lower() not in ("transfer-encoding", "content-length")
                }
                connection.request(self.command, self.path, body=body, headers=headers)
                answer = connection.getresponse()
                content = answer.read()
                if mood == "cut" and not content:
                    self.close_connection = True  # what was asked for is done, and nobody learns of it
                else:
                    self._answer(answer.status, list(answer.getheaders()), content, cut=mood == "cut")
            finally:
                connection.close()

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - names that http.server calls

        def _body(self) -> bytes:
            if "chunked" in self.headers.get("Transfer-Encoding", ""):
                content = b""
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    content += self.rfile.read(size)
                    self.rfile.readline()
                while self.rfile.readline().strip():  # trailers
                    pass
                return content
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def _refuse(self, status: int, code: str, message: str) -> None:
            content = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'.encode()
            self._answer(status, [("Content-Type", "application/xml")], content, cut=False)

        def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes, *, cut: bool) -> None:
            self.send_response(status)
            for name, value in headers:
                if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                    self.send_header(name, value)
            length = dict((name.lower(), value) for name, value in headers).get("content-length", str(len(content)))
            self.send_header("Content-Length", length if self.command == "HEAD" else str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content[: len(content) // 2] if cut else content)
            if cut:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Nothing: a test's output is pytest's."""

    return Handler
