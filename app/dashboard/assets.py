"""The asset files of the pages. The name of each has a digest of its content, so a browser can cache it for good."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from flask import Response, abort

ASSET_DIRECTORY = Path(__file__).parent / "assets"
MEDIA_TYPES: Mapping[str, str] = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
IMMUTABLE = "public, max-age=31536000, immutable"


class Asset(NamedTuple):
    """A file with its media type."""

    media_type: str
    content: bytes


class Assets:
    """All asset files, by the names in their URLs."""

    def __init__(self, folder: Path = ASSET_DIRECTORY) -> None:
        self._served: dict[str, Asset] = {}
        self._names: dict[str, str] = {}
        for file in sorted(folder.iterdir()):
            if kind := MEDIA_TYPES.get(file.suffix):
                content = file.read_bytes()
                name = f"{file.stem}.{hashlib.sha256(content).hexdigest()[:12]}{file.suffix}"
                self._served[name], self._names[file.name] = Asset(kind, content), name

    def url(self, name: str) -> str:
        """Return the URL of a file."""
        return f"/assets/{self._names[name]}"

    def serve(self, name: str) -> Response:
        """Return a file that a browser may cache for good. Raise 404 if there is no such file."""
        if name not in self._served:
            abort(404, "there is no such file")
        kind, content = self._served[name]
        return Response(content, mimetype=kind, headers={"Cache-Control": IMMUTABLE})
