"""Sending checkpoints: one file with ranges, or all of it as a tar that is made while it is sent.

Everything is streamed through this server, from a folder as from a bucket: a signed redirect to a bucket would need the
browser to reach it, and `connect-src 'self'` to allow it. A tar is made header by header, so that nothing is copied and
its length is known before it begins.
"""

import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.utils.http import content_disposition_header

from webapp.checkpoints.manifests import MANIFEST, Entry, checked_chunks, read_manifest
from webapp.checkpoints.models import Checkpoint
from webapp.core.streaming import streamed
from webapp.runs.storage import chunks, read

BLOCK = tarfile.BLOCKSIZE


@dataclass(frozen=True)
class Range:
    """Bytes `begin` up to, not including, `end`."""

    begin: int
    end: int


class Unsatisfiable(Exception):
    """The range lies outside the file."""


def entry_in(checkpoint: Checkpoint, name: str) -> Entry | None:
    """The file of that name in the checkpoint's manifest; None for every other name."""
    return next((entry for entry in read_manifest(checkpoint.uri) if entry.name == name), None)


def wanted_range(header: str, if_range: str, *, size: int, etag: str) -> Range | None:
    """The one range that is asked for; None for the whole file: no header, one that cannot be read, several ranges, or an
    If-Range of another content. Raises Unsatisfiable.
    """
    found = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", header.replace(" ", ""))
    if found is None or found[0] == "bytes=-" or (if_range and if_range != etag):
        return None
    first, last = found.groups()
    if not first:
        begin, end = max(0, size - int(last)), size
    else:
        begin, end = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < begin:
            return None
    if begin >= size or begin >= end:
        raise Unsatisfiable
    return Range(begin, end)


def file_response(request: HttpRequest, folder: str, entry: Entry) -> HttpResponseBase:
    """One file below the URI `folder`: 200, 206, 304 or 416. Its ETag is its SHA-256. A whole file is compared with that
    while it is sent; one that was changed breaks off.
    """
    etag = f'"{entry.sha256}"'
    response: HttpResponseBase
    if etag in [one.strip() for one in request.headers.get("If-None-Match", "").split(",")]:
        response = HttpResponse(status=304)
    else:
        asked, only_if = request.headers.get("Range", ""), request.headers.get("If-Range", "")
        try:
            part = wanted_range(asked, only_if, size=entry.size, etag=etag)
        except Unsatisfiable:
            response = HttpResponse(status=416)
            response.headers["Content-Range"] = f"bytes */{entry.size}"
            return response
        uri = f"{folder}/{entry.name}"
        if part is None:
            response = StreamingHttpResponse(streamed(request, checked_chunks(folder, entry)))
            response.headers["Content-Length"] = str(entry.size)
        else:
            response = StreamingHttpResponse(streamed(request, chunks(uri, part.begin, part.end)), status=206)
            response.headers["Content-Length"] = str(part.end - part.begin)
            response.headers["Content-Range"] = f"bytes {part.begin}-{part.end - 1}/{entry.size}"
    response.headers["ETag"] = etag
    response.headers["Accept-Ranges"] = "bytes"
    response.headers["Content-Type"] = "application/octet-stream"
    response.headers["Content-Disposition"] = content_disposition_header(True, entry.name.rpartition("/")[2]) or ""
    return response


def tar_response(request: HttpRequest, checkpoint: Checkpoint) -> StreamingHttpResponse:
    """All files and the manifest in one tar, below a folder named after the checkpoint."""
    entries = read_manifest(checkpoint.uri)
    manifest = read(f"{checkpoint.uri}/{MANIFEST}")
    folder = safe_name(checkpoint.name) or f"checkpoint-{checkpoint.pk}"
    mtime = int(checkpoint.created_at.timestamp())
    members = [(_header(f"{folder}/{entry.name}", entry.size, mtime), entry) for entry in entries]
    last = _header(f"{folder}/{MANIFEST}", len(manifest), mtime)

    def body() -> Iterator[bytes]:
        for header, entry in members:
            yield header
            yield from checked_chunks(checkpoint.uri, entry)
            yield b"\0" * (-entry.size % BLOCK)
        yield last + manifest + b"\0" * (-len(manifest) % BLOCK)
        yield b"\0" * (2 * BLOCK)

    size = sum(len(header) + entry.size + (-entry.size % BLOCK) for header, entry in members)
    size += len(last) + len(manifest) + (-len(manifest) % BLOCK) + 2 * BLOCK
    response = StreamingHttpResponse(streamed(request, body()), content_type="application/x-tar")
    response.headers["Content-Length"] = str(size)
    response.headers["Content-Disposition"] = content_disposition_header(True, f"{folder}.tar") or ""
    return response


def safe_name(name: str) -> str:
    """A name that every file system takes."""
    return re.sub(r"[^\w.+-]+", "-", name, flags=re.ASCII).strip("-.")[:80]


def _header(name: str, size: int, mtime: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = size, mtime, 0o644
    # PAX, because files may be larger than 8 GB and names may be in any script.
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
