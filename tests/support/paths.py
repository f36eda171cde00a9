"""Folders of the project, and of the material kept beside it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The root of the project."""
BESIDE = ROOT.parent / "shared"
"""Material that is kept beside the project; it may be absent."""
