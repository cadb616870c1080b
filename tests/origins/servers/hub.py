"""A hub as the real `huggingface_hub` client sees it, on loopback.

Repositories have commits; large files answer by a redirect to a host of
another name, which gives ranges and must never see a token.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

LARGE: Final = (".safetensors", ".gguf", ".bin", ".pt")

SIGNATURE: Final = "s3cr3t-of-a-redirect"
"""By which a large file is read at the other host."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A large file whose bytes another server gives, at ``url``."""

    bytes: int
    sha256: str
    url: str


Content: TypeAlias = bytes | Elsewhere
Files: TypeAlias = Mapping[str, Content]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request that came in."""

    method: str
    path: str
    host: str
    range: str | None
    authorization: str | None


@dataclass(slots=True)
class Hub:
    """What the hub holds, what it was asked, and how it answers."""

    port: int = 0
    token: str | None = None
    """Whoever has not this token is refused; the redirected-to host asks for none."""
    renamed: dict[str, str] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    """The length of each body of a file, or of a part of one, that was sent."""
    _commits: dict[str, dict[str, Files]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def push(self, repository: str, files: Files) -> str:
        """Make these files the head of a repository; the commit's name."""
        commit = hashlib.sha1(
            "".join(f"{path}{blob_id(files[path])}" for path in sorted(files)).encode()
        ).hexdigest()
        commits = self._commits.setdefault(repository, {})
        commits.pop(commit, None)
        commits[commit] = dict(files)
        return commit

    def squash(self, repository: str) -> None:
        """Forget every commit but the head."""
        head = next(reversed(self._commits[repository]))
        self._commits[repository] = {head: self._commits[repository][head]}

    def commits(self, repository: str) -> dict[str, Files] | None:
        return self._commits.get(repository)

    def bodies(self) -> list[Asked]:
        """The requests for bytes of files, redirects not counted."""
        return [one for one in self.asked if "/cdn/" in one.path or "/resolve/" in one.path]


def blob_id(content: Content) -> str:
    """The name that git gives to a file's content."""
    if isinstance(content, Elsewhere):
        content = content.sha256.encode()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def sha256_of(content: Content) -> str:
    """What a large file is stored by."""
    return content.sha256 if isinstance(content, Elsewhere) else hashlib.sha256(content).hexdigest()


def size_of(content: Content) -> int:
    """The bytes of a file, wherever they are."""
    return content.bytes if isinstance(content, Elsewhere) else len(content)


@contextmanager
def running_hub() -> Iterator[Hub]:
    hub = Hub()

    class Handler(_Handler):
        of = hub

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        hub.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="hub")
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    of: Hub
    protocol_version = "HTTP/1.1"
    # A head and a body in two packets wait for each other without it.
    disable_nagle_algorithm = True
    timeout = 30

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:
            self.close_connection = True  # whoever asked has hung up

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        self.of.asked.append(
            Asked(
                self.command,
                self.path,
                self.headers.get("Host", ""),
                self.headers.get("Range"),
                self.headers.get("Authorization"),
            )
        )
        if parts[0] == "cdn":
            self._content(parts[1])
        elif self.of.token not in (None, self._token()):
            self._refuse(401, "GatedRepo", "Access to model is restricted.")
        elif parts[:2] == ["api", "models"]:
            self._told(parts[2:], parse_qs(url.query, keep_blank_values=True))
        elif "resolve" in parts[1:3]:
            self._resolve(parts)
        else:
            self._refuse(404, "RepoNotFound", "Repository not found")

    def _token(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    # -- What there is -------------------------------------------------------------

    def _told(self, parts: list[str], query: Mapping[str, list[str]]) -> None:
        verb = next((at for at, part in enumerate(parts) if part in ("revision", "tree")), None)
        repository = "/".join(parts[:verb])
        if moved := self.of.renamed.get(repository):
            path = self.path.replace(f"/{repository}", f"/{moved}", 1)
            self._answer(307, b"", {"Location": path})
            return
        found = self._commit(repository, "main" if verb is None else parts[verb + 1])
        if found is None:
            return
        commit, files = found
        if verb is not None and parts[verb] == "tree":
            self._json([_entry(path, files[path]) for path in sorted(files)])
            return
        siblings = [_sibling(path, files[path], "blobs" in query) for path in sorted(files)]
        self._json({"id": repository, "sha": commit, "siblings": siblings, "tags": []})

    def _commit(self, repository: str, revision: str) -> tuple[str, Files] | None:
        commits = self.of.commits(repository)
        if commits is None:
            self._refuse(404, "RepoNotFound", "Repository not found")
            return None
        commit = next(reversed(commits)) if revision in ("main", "refs/pr/1") else revision
        if commit not in commits:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return None
        return commit, commits[commit]

    # -- Bytes ----------------------------------------------------------------------

    def _resolve(self, parts: list[str]) -> None:
        at = parts.index("resolve")
        found = self._commit("/".join(parts[:at]), parts[at + 1])
        if found is None:
            return
        commit, files = found
        path = "/".join(parts[at + 2 :])
        content = files.get(path)
        if content is None:
            self._refuse(404, "EntryNotFound", "Entry not found")
        elif isinstance(content, bytes) and not path.endswith(LARGE):
            self._bytes(content, blob_id(content), {"X-Repo-Commit": commit})
        else:
            sha256 = sha256_of(content)
            cdn = f"http://localhost:{self.of.port}/cdn/{sha256}?sig={SIGNATURE}"
            self._answer(
                302,
                b"",
                {
                    "Location": content.url if isinstance(content, Elsewhere) else cdn,
                    "X-Repo-Commit": commit,
                    "X-Linked-ETag": f'"{sha256}"',
                    "X-Linked-Size": str(size_of(content)),
                    "ETag": f'"{blob_id(content)}"',
                    "Accept-Ranges": "bytes",
                },
            )

    def _content(self, sha256: str) -> None:
        for repository in list(self.of._commits):
            for files in (self.of.commits(repository) or {}).values():
                for content in files.values():
                    if isinstance(content, bytes) and sha256_of(content) == sha256:
                        self._bytes(content, f"cdn-{sha256[:8]}", {})
                        return
        self._refuse(404, "EntryNotFound", "no such object")

    def _bytes(self, content: bytes, etag: str, headers: Mapping[str, str]) -> None:
        told = {"ETag": f'"{etag}"', "Accept-Ranges": "bytes", **headers}
        match = re.fullmatch(r"bytes=([0-9]+)-([0-9]*)", self.headers.get("Range", ""))
        if match is None:
            self._answer(200, content, told)
            return
        first = int(match[1])
        last = min(int(match[2] or len(content)), len(content) - 1)
        told["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        self._answer(206, content[first : last + 1], told)

    # -- Answers --------------------------------------------------------------------

    def _json(self, told: object) -> None:
        self._answer(200, json.dumps(told).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status: int, code: str, words: str) -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": words}
        self._answer(status, json.dumps({"error": words}).encode(), headers)

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
            if status in (200, 206) and "ETag" in headers:
                self.of.sent.append(len(body))


def _entry(path: str, content: Content) -> dict[str, object]:
    told: dict[str, object] = {
        "type": "file",
        "path": path,
        "size": size_of(content),
        "oid": blob_id(content),
    }
    if path.endswith(LARGE):
        told["lfs"] = {"oid": sha256_of(content), "size": size_of(content), "pointerSize": 134}
    return told


def _sibling(path: str, content: Content, with_blobs: bool) -> dict[str, object]:
    told: dict[str, object] = {"rfilename": path}
    if with_blobs:
        size = size_of(content)
        told |= {"size": size, "blobId": blob_id(content)}
        if path.endswith(LARGE):
            told["lfs"] = {"sha256": sha256_of(content), "size": size, "pointerSize": 134}
    return told
