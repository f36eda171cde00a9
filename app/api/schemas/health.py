"""The response model of the health checks."""

from __future__ import annotations

from typing import Literal

from app.api.schemas.response_model import ResponseModel


class HealthResponse(ResponseModel):
    """The answer of a health check."""

    status: Literal["ok"]
    """The constant `ok`: failures are problem documents."""
