"""The response model of the health checks."""

from __future__ import annotations

from typing import Literal

from app.api.schemas.response_model import ResponseModel


class HealthResponse(ResponseModel):
    """A word."""

    status: Literal["ok"]
