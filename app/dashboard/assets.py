"""The files of the pages: each is called by what is in it, so a browser keeps it for good and never has an old one."""

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
    """A file as it is served."""

    media_type: str
    content: bytes


class Assets:
    """All files there are, by the name they are served under."""

    def __init__(self, folder: Path = ASSET_DIRECTORY) -> None:
        self._served: dict[str, Asset] = {}
        self._names: dict[str, str] = {}
        for file in sorted(folder.iterdir()):
            if kind := MEDIA_TYPES.get(file.suffix):
                content = file.read_bytes()
                name = f"{file.stem}.{hashlib.sha256(content).hexdigest()[:12]}{file.suffix}"
                self._served[name], self._names[file.name] = Asset(kind, content), name

    def url(self, name: str) -> str:
        """Where a file is."""
        return f"/assets/{self._names[name]}"

    def serve(self, name: str) -> Response:
        """A file, to be kept for good."""
        if name not in self._served:
            abort(404, "there is no such file")
        kind, content = self._served[name]
        return Response(content, mimetype=kind, headers={"Cache-Control": IMMUTABLE})
