"""A bucket that speaks S3 over HTTP on this machine (moto's server), and a proxy in front of it that misbehaves."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEYS = {"access_key": "testing", "secret_key": "testing"}
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


@dataclass
class Faults:
    """What the proxy does wrong: `refuse` so many requests with a 500, `cut` the next bodies after so many bytes."""

    refuse: int = 0
    cut: list[int] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)


@dataclass
class Bucket:
    """`options` are those of `BucketStorage`; `stop` and `start` are the server going away and coming back."""

    server: Any
    port: int
    faults: Faults
    options: dict[str, Any]

    def stop(self) -> None:
        self.server.stop()

    def start(self) -> None:
        from moto.server import ThreadedMotoServer

        self.server = ThreadedMotoServer(ip_address="127.0.0.1", port=self.port, verbose=False)
        self.server.start()


@contextmanager
def running_bucket(name: str = "lab", prefix: str = "files here") -> Iterator[Bucket]:
    import boto3
    from moto.server import ThreadedMotoServer

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    faults = Faults()
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), _handler(port, faults))
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{proxy.server_address[1]}"
    options = {"bucket_name": name, "location": prefix, "endpoint_url": address, "region_name": "us-east-1", **KEYS}
    direct = boto3.client(
        "s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1", aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )  # fmt: skip
    direct.create_bucket(Bucket=name)
    found = Bucket(server, port, faults, options)
    try:
        yield found
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
        HTTPConnection("127.0.0.1", port).request("POST", "/moto-api/reset")
        found.stop()


def _handler(port: int, faults: Faults) -> type[BaseHTTPRequestHandler]:
    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def forward(self) -> None:
            # boto3 waits for this before it sends a body.
            body = self._body()
            faults.seen.append(f"{self.command} {self.path}")
            if faults.refuse > 0:
                faults.refuse -= 1
                self.send_response(500)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            upstream = HTTPConnection("127.0.0.1", port, timeout=20)
            headers = {k: v for k, v in self.headers.items() if k.lower() not in ("transfer-encoding", "expect")}
            if body or self.command in ("PUT", "POST"):
                headers["Content-Length"] = str(len(body))
            try:
                upstream.request(self.command, self.path, body or None, headers)
                answer = upstream.getresponse()
                data = answer.read()
            except OSError:
                self.close_connection = True
                return
            finally:
                upstream.close()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            length = answer.headers.get("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(data)))
            self.end_headers()
            if self.command == "GET" and faults.cut and len(data) > faults.cut[0]:
                self.wfile.write(data[: faults.cut.pop(0)])
                self.close_connection = True
            elif self.command != "HEAD":
                self.wfile.write(data)

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
                parts = []
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(parts)
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward

    return Proxy
