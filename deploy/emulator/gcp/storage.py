"""Cloud Storage's JSON API: objects of buckets that the configuration names, in memory.

https://cloud.google.com/storage/docs/json_api/v1
"""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import google_crc32c
from werkzeug.wrappers import Request, Response

from spotweave.deploy.emulator.gcp.world import GcpEmulatorConfig, GcpError, json_answer

_BUCKET = r"/storage/v1/b/(?P<bucket>[^/]+)"
_OBJECT = rf"{_BUCKET}/o/(?P<name>.+)"
_ROUTES: tuple[tuple[str, str, str, str], ...] = (
    ("GET", rf"(?:/download)?{_OBJECT}", "get", "storage.objects.get"),
    ("DELETE", _OBJECT, "delete", "storage.objects.delete"),
    ("GET", rf"{_BUCKET}/o", "list", "storage.objects.list"),
    ("POST", rf"/upload{_BUCKET}/o", "insert", "storage.objects.create"),
    ("PUT", rf"/upload{_BUCKET}/o", "resume", "storage.objects.create"),
    ("GET", rf"{_BUCKET}/iam/testPermissions", "permissions", "storage.buckets.testIamPermissions"),
)
_PAGE = 1000


@dataclass(frozen=True)
class _Object:
    generation: int
    content: bytes
    crc32c: str


@dataclass
class _Upload:
    bucket: str
    name: str
    query: Mapping[str, str]
    content: bytes = b""
    made: _Object | None = None


class Storage:
    """Answers for one project's buckets. Hold the world's lock."""

    api = "storage.googleapis.com"

    def __init__(self, config: GcpEmulatorConfig) -> None:
        self._denied = config.denied
        self.buckets: dict[str, dict[str, _Object]] = {name: {} for name in config.buckets}
        self._uploads: dict[str, _Upload] = {}
        self._generation = 0

    def permission(self, request: Request) -> str:
        """What a request needs, e.g. "storage.objects.get"; "" for what is not Cloud Storage's."""
        found = _route(request)
        return found[1] if found else ""

    def answer(self, request: Request) -> Response:
        """Raises GcpError, as Cloud Storage refuses it."""
        route = _route(request)
        assert route is not None
        act, permission, found = route
        if found["bucket"] not in self.buckets:
            raise GcpError("notFound", "The specified bucket does not exist.", 404)
        if permission in self._denied:
            raise GcpError(
                "forbidden",
                f"the caller does not have {permission} access to the Google Cloud Storage object. "
                f"Permission '{permission}' denied on resource (or it may not exist).",
                403,
            )
        handler: Callable[[str, str, Request], Response] = getattr(self, f"_{act}")
        return handler(found["bucket"], found.get("name", ""), request)

    def _get(self, bucket: str, name: str, request: Request) -> Response:
        one = self._existing(bucket, name, request.args)
        if request.args.get("alt") != "media":
            return json_answer(_resource(bucket, name, one))
        headers = {"X-Goog-Hash": f"crc32c={one.crc32c}", "X-Goog-Generation": str(one.generation)}
        return Response(one.content, headers=headers, content_type="application/octet-stream")

    def _delete(self, bucket: str, name: str, request: Request) -> Response:
        self._existing(bucket, name, request.args)
        del self.buckets[bucket][name]
        return Response(b"", 204)

    def _existing(self, bucket: str, name: str, query: Mapping[str, str]) -> _Object:
        one = self.buckets[bucket].get(name)
        if one is None:
            raise GcpError("notFound", f"No such object: {bucket}/{name}", 404)
        self._precondition(bucket, name, query)
        return one

    def _list(self, bucket: str, _: str, request: Request) -> Response:
        query = request.args
        names = sorted(one for one in self.buckets[bucket] if one.startswith(query.get("prefix", "")))
        after = query.get("pageToken", "")
        names = [one for one in names if one > after]
        page = names[: min(int(query.get("maxResults", _PAGE)), _PAGE)]
        found: dict[str, Any] = {
            "items": [_resource(bucket, name, self.buckets[bucket][name]) for name in page]
        }
        if len(page) < len(names):
            found["nextPageToken"] = page[-1]
        return json_answer(found)

    def _permissions(self, bucket: str, _: str, request: Request) -> Response:
        asked = request.args.getlist("permissions")
        granted = [one for one in asked if one not in self._denied]
        return json_answer({"permissions": granted} if granted else {})

    # Uploads: in one request, or a session whose parts each continue the one before.

    def _insert(self, bucket: str, _: str, request: Request) -> Response:
        if request.args.get("uploadType") == "resumable":
            return self._begin(bucket, request)
        about, content = _parts(request)
        name = str(about.get("name", ""))
        _intact(content, str(about.get("crc32c", "")))
        return json_answer(_resource(bucket, name, self._keep(bucket, name, content, request.args)))

    def _begin(self, bucket: str, request: Request) -> Response:
        name = str(json.loads(request.get_data() or b"{}").get("name") or request.args.get("name", ""))
        self._precondition(bucket, name, request.args)
        key = uuid.uuid4().hex
        self._uploads[key] = _Upload(bucket, name, request.args)
        path = f"/upload/storage/v1/b/{quote(bucket)}/o?uploadType=resumable&upload_id={key}"
        return Response(b"", headers={"Location": f"http://{request.headers.get('host', '')}{path}"})

    def _resume(self, bucket: str, _: str, request: Request) -> Response:
        upload = self._uploads.get(request.args.get("upload_id", ""))
        found = re.fullmatch(
            r"bytes (?:(?P<start>\d+)-\d+|\*)/(?P<size>\d+|\*)", request.headers.get("Content-Range", "")
        )
        if upload is None or found is None:
            raise GcpError("notFound", "Not Found", 404)
        if upload.made is None:
            if found["start"] is not None:
                # What came already is not kept twice: its answer was lost.
                upload.content = upload.content[: int(found["start"])] + request.get_data()
            if found["size"] == "*" or len(upload.content) < int(found["size"]):
                headers = {"Range": f"bytes=0-{len(upload.content) - 1}"} if upload.content else {}
                return Response(b"", 308, headers)
            _intact(upload.content, request.headers.get("X-Goog-Hash", "").removeprefix("crc32c="))
            upload.made = self._keep(bucket, upload.name, upload.content, upload.query)
            upload.content = b""
        return json_answer(_resource(bucket, upload.name, upload.made))

    def _keep(self, bucket: str, name: str, content: bytes, query: Mapping[str, str]) -> _Object:
        self._precondition(bucket, name, query)
        self._generation += 1
        made = self.buckets[bucket][name] = _Object(self._generation, content, _crc32c(content))
        return made

    def _precondition(self, bucket: str, name: str, query: Mapping[str, str]) -> None:
        wanted = query.get("ifGenerationMatch")
        one = self.buckets[bucket].get(name)
        if wanted is not None and int(wanted) != (one.generation if one else 0):
            raise GcpError(
                "conditionNotMet", "At least one of the pre-conditions you specified did not hold.", 412
            )


def _route(request: Request) -> tuple[str, str, dict[str, str]] | None:
    for verb, pattern, act, permission in _ROUTES:
        found = re.fullmatch(pattern, request.path)
        if found is not None and verb == request.method:
            return act, permission, found.groupdict()
    return None


def _parts(request: Request) -> tuple[dict[str, Any], bytes]:
    """Metadata and content of an upload in one request. Raises GcpError."""
    boundary = re.search(r'boundary="?([^";]+)', str(request.headers.get("Content-Type", "")))
    parts = (b"\r\n" + request.get_data()).split(b"\r\n--" + boundary[1].encode()) if boundary else []
    if len(parts) != 4:
        raise GcpError("badRequest", "Malformed multipart body.", 400)
    about, content = (part.partition(b"\r\n\r\n")[2] for part in parts[1:3])
    return json.loads(about), content


def _crc32c(content: bytes) -> str:
    return base64.b64encode(google_crc32c.value(content).to_bytes(4, "big")).decode()


def _intact(content: bytes, crc32c: str) -> None:
    calculated = _crc32c(content)
    if crc32c and crc32c != calculated:
        text = f'Provided CRC32C "{crc32c}" doesn\'t match calculated CRC32C "{calculated}".'
        raise GcpError("invalid", text, 400)


def _resource(bucket: str, name: str, one: _Object) -> dict[str, Any]:
    return {
        "kind": "storage#object",
        "bucket": bucket,
        "name": name,
        "generation": str(one.generation),
        "size": str(len(one.content)),
        "crc32c": one.crc32c,
    }
