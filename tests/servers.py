"""Servers of remote files, real ones, on this machine: they write down every request."""

from __future__ import annotations

import base64
import json
import re
import threading
import zlib
from collections.abc import Callable, Iterable
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

USER = "ann:s3cret-pass"
SIGNED = "sig=3d9c6f1a77&expires=99"


class Asked(NamedTuple):
    """A request: method, path, its Range header, status and bytes of the answer."""

    method: str
    path: str
    range: str | None
    status: int
    sent: int


class Web:
    """Serves ``folder``: ranges, unless below ``/whole``; ``/private`` needs USER, ``/signed`` the query
    SIGNED; ``/flaky`` fails at first. What clients of the Hugging Face hub ask is answered, too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[Asked] = []
        self.failed: set[tuple[str, str | None]] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.host}"

    def __enter__(self) -> Web:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def sent(self) -> int:
        """Bytes of all answers so far."""
        return sum(a.sent for a in self.asked)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self._answer(send=False)

            def do_GET(self) -> None:
                self._answer(send=True)

            def _answer(self, send: bool) -> None:
                url = urlsplit(self.path)
                if url.path.startswith("/api/models/"):
                    self._tell_hub(unquote(url.path).split("/")[3:])
                    return
                file = web.folder / unquote(url.path).replace("/resolve/main/", "/").lstrip("/")
                status = self._status(url.path, url.query, file)
                size = file.stat().st_size if status == 200 else 0
                wanted = self.headers.get("Range")
                found = re.fullmatch(r"bytes=(\d+)-(\d*)", wanted or "")
                start, stop = 0, size
                if status == 200 and found and "/whole/" not in url.path:
                    status, start, stop = 206, int(found[1]), min(int(found[2] or size - 1) + 1, size)
                self.send_response_only(status)
                if status == 206:
                    self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
                self.send_header("Content-Length", str(stop - start))
                self.send_header("ETag", f'"{size}"')
                self.end_headers()
                web.asked.append(Asked(self.command, self.path, wanted, status, (stop - start) * send))
                if send and stop > start:
                    try:
                        with file.open("rb") as f:
                            f.seek(start)
                            self.wfile.write(f.read(stop - start))
                    except (BrokenPipeError, ConnectionResetError):
                        self.close_connection = True

            def _tell_hub(self, parts: list[str]) -> None:
                """As the hub does: a repository is a folder of a folder, ``main`` its revision."""
                root = web.folder.joinpath(*parts[:2])
                found: object = {"id": "/".join(parts[:2]), "sha": "0" * 40}
                if "tree" in parts:
                    folder = root.joinpath(*parts[4:])
                    found = [
                        {
                            "type": "directory" if p.is_dir() else "file",
                            "oid": f"{zlib.crc32(p.name.encode()):040x}",
                            "size": 0 if p.is_dir() else p.stat().st_size,
                            "path": p.relative_to(root).as_posix(),
                        }
                        for p in sorted(folder.iterdir())
                    ]
                data = json.dumps(found).encode()
                self.send_response_only(200 if root.is_dir() else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                web.asked.append(Asked(self.command, self.path, None, 200, len(data)))
                self.wfile.write(data)

            def _status(self, path: str, query: str, file: Path) -> int:
                basic = "Basic " + base64.b64encode(USER.encode()).decode()
                if "/private/" in path and self.headers.get("Authorization") != basic:
                    return 401
                if "/signed/" in path and query != SIGNED:
                    return 403
                if "/flaky/" in path and (path, self.headers.get("Range")) not in web.failed:
                    web.failed.add((path, self.headers.get("Range")))
                    return 503
                return 200 if file.is_file() else 404

            def log_message(self, *_: object) -> None:
                pass

        return Handler


class Store:
    """moto's server of S3."""

    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import WSGIRequestHandler, make_server

        class _Quiet(WSGIRequestHandler):
            def log_request(self, *_: object) -> None:
                pass

        self.asked: list[Asked] = []
        self.refused: tuple[str, str] | None = None
        app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._recorded(app), True, request_handler=_Quiet)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.environment = {
            "AWS_ACCESS_KEY_ID": "AKIAEXAMPLEEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI-example-secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.url,
        }

    def __enter__(self) -> Store:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def bucket(self, name: str) -> str:
        """A new bucket: its URL."""
        self._client.create_bucket(Bucket=name)
        self.asked.clear()
        return f"s3://{name}"

    def put(self, folder: Path, url: str) -> None:
        """The files of ``folder`` to below ``url``."""
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        for file in folder.rglob("*"):
            if file.is_file():
                key = f"{prefix}/{file.relative_to(folder).as_posix()}".lstrip("/")
                self._client.upload_file(str(file), bucket, key)
        self.asked.clear()

    def keys(self, bucket: str) -> list[str]:
        """Every object of a bucket."""
        found = self._client.list_objects_v2(Bucket=bucket).get("Contents", [])
        return sorted(o["Key"] for o in found)

    def get(self, url: str) -> bytes:
        """The bytes of an object."""
        bucket, _, key = url.removeprefix("s3://").partition("/")
        return bytes(self._client.get_object(Bucket=bucket, Key=key)["Body"].read())

    def refuse(self, method: str, text: str) -> None:
        """Answer 403 to requests of this method with ``text`` in path or query, until a test begins anew."""
        self.refused = (method, text)

    def unfinished(self, bucket: str) -> list[str]:
        """Objects of which parts were uploaded, and no more."""
        return [u["Key"] for u in self._client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])]

    @cached_property
    def _client(self) -> Any:
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name=self.environment["AWS_DEFAULT_REGION"],
            aws_access_key_id=self.environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.environment["AWS_SECRET_ACCESS_KEY"],
        )

    def _recorded(self, app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
        def recorded(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            said: list[str] = []
            method, text = self.refused or ("", "")
            if (
                method == environ["REQUEST_METHOD"]
                and text in f"{environ['PATH_INFO']}?{environ.get('QUERY_STRING')}"
            ):
                environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
                start("403 Forbidden", [("Content-Type", "application/xml")])
                return [b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"]

            def begin(status: str, *args: Any, **kwargs: Any) -> Any:
                said.append(status)
                return start(status, *args, **kwargs)

            data = b"".join(app(environ, begin))
            query = f"?{environ['QUERY_STRING']}" if environ.get("QUERY_STRING") else ""
            status = int(said[0].split()[0])
            self.asked.append(
                Asked(
                    environ["REQUEST_METHOD"],
                    environ["PATH_INFO"] + query,
                    environ.get("HTTP_RANGE"),
                    status,
                    len(data),
                )
            )
            return [data]

        return recorded
