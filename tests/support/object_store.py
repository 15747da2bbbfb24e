"""An object store on loopback.

It speaks the part of the protocol of S3 that a lake needs, and checks no signature. An object appears whole. One that
exists is not replaced when the request says `If-None-Match: *`.
"""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class _Object(NamedTuple):
    """An object, and when it was written.

    A lake removes logs that are a week old.
    """

    body: bytes
    modified_s: float


class _Store(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, _Object] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.lock = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Store

    def do_PUT(self) -> None:
        body = self._body()
        query = parse_qs(urlsplit(self.path).query)
        if "uploadId" in query:
            self.server.parts[query["uploadId"][0]][int(query["partNumber"][0])] = body
            self._answer(200)
            return
        with self.server.lock:
            taken = self.headers.get("if-none-match") == "*" and self._key in self.server.objects
            if not taken:
                self.server.objects[self._key] = _Object(body, time.time())
        self._answer(412 if taken else 200)

    def do_POST(self) -> None:
        """Begin or complete an upload in parts."""
        self._body()
        upload = parse_qs(urlsplit(self.path).query).get("uploadId", [secrets.token_hex(8)])[0]
        parts = self.server.parts.pop(upload, None)
        if parts is None:
            self.server.parts[upload] = {}
            result = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
        else:
            body = b"".join(parts[number] for number in sorted(parts))
            self.server.objects[self._key] = _Object(body, time.time())
            result = "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>"
        self._answer(200, result.encode())

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            self._answer(200, self._listing({name: values[0] for name, values in query.items()}))
            return
        found = self.server.objects.get(self._key)
        if found is None:
            self._answer(404)
            return
        body, headers = found.body, {"last-modified": formatdate(found.modified_s, usegmt=True)}
        if "range" in self.headers:
            first, _, last = self.headers["range"].removeprefix("bytes=").partition("-")
            start = int(first) if first else len(body) - int(last)
            end = min(int(last) if first and last else len(body) - 1, len(body) - 1)
            headers["content-range"] = f"bytes {start}-{end}/{len(body)}"
            self._answer(206, body[start : end + 1], headers)
        else:
            self._answer(200, body, headers)

    do_HEAD = do_GET

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    @property
    def _key(self) -> str:
        """The object's name, behind that of the bucket."""
        return unquote(urlsplit(self.path).path).removeprefix("/").partition("/")[2]

    def _listing(self, query: dict[str, str]) -> bytes:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        contents, folders = [], set()
        for key, found in sorted(self.server.objects.items()):
            if not key.startswith(prefix) or key <= query.get("start-after", ""):
                continue
            rest = key.removeprefix(prefix)
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
            else:
                modified = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(found.modified_s))
                size = f"<Size>{len(found.body)}</Size><LastModified>{modified}</LastModified><ETag>e</ETag>"
                contents.append(f"<Contents><Key>{escape(key)}</Key>{size}</Contents>")
        prefixes = "".join(
            f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in sorted(folders)
        )
        listed = f"<IsTruncated>false</IsTruncated>{''.join(contents)}{prefixes}"
        return f"<ListBucketResult>{listed}</ListBucketResult>".encode()

    def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        known = {"content-length": str(len(body)), "etag": '"e"'}
        for name, value in (known | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Write nothing."""


@contextlib.contextmanager
def object_store() -> Iterator[dict[str, str]]:
    """Yield the environment variables by which clients of S3 reach a store.

    It is a process of its own: some calls of `deltalake` keep Python's lock while they wait for an answer.
    """
    command = [sys.executable, "-m", "tests.support.object_store"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "nowhere",
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "key",
        }
        process.communicate()


def _serve() -> None:
    """Serve until standard input ends, as it does when the test's process has ended."""
    with _Store() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_port, flush=True)
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    _serve()
