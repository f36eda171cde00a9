"""The examples of the OpenAPI document: bodies and answers of real calls.

`make generated` records them and writes `examples.json`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.api.errors import PROBLEM_TYPE
from app.api.routing import EVENT_STREAM

FILE = Path(__file__).with_name("examples.json")
REFERENCE = "#/components/examples/"


@dataclass(frozen=True)
class Examples:
    """The examples by operation, and the problem documents that several operations share."""

    operations: dict[str, dict[str, Any]]
    problems: dict[str, dict[str, Any]]
    """Name → an Example object of OpenAPI."""

    @classmethod
    def read(cls) -> Examples:
        """Return the examples of the file."""
        recorded = json.loads(FILE.read_text("utf-8"))
        problems = {name: {"summary": problem["detail"], "value": problem} for name, problem in recorded["problems"].items()}
        return cls(recorded["operations"], problems)

    def add_to(self, operation_id: str, operation: dict[str, Any]) -> None:
        """Add the examples of an operation: its path parameters, its body, and each of its answers."""
        recorded = self.operations[operation_id]
        for parameter in operation["parameters"]:
            if parameter["in"] == "path":
                parameter["example"] = recorded["path"][parameter["name"]]
        if "request" in recorded:
            operation["requestBody"]["content"]["application/json"]["example"] = recorded["request"]
        for status, body in recorded.get("responses", {}).items():
            for media_type, content in operation["responses"][status]["content"].items():
                content["example"] = recorded["stream"] if media_type == EVENT_STREAM else body
        for status, names in recorded.get("problems", {}).items():
            references = {name: {"$ref": REFERENCE + name} for name in names}
            operation["responses"][status]["content"][PROBLEM_TYPE]["examples"] = references
