"""The origin of a request. The client has the same three functions of its own, because it imports nothing of the server."""

from types import ModuleType

import poolkeeper.request_origin as client_side
import pytest

from app.domain import request_origin as server_side

BOTH = pytest.mark.parametrize("origin", [server_side, client_side], ids=["server", "client"])


@BOTH
def test_a_short_id_tells_requests_of_one_day_apart(origin: ModuleType) -> None:
    assert origin.short_id("1m7vs5w1ggz6wyk3tzcw") == "k3tzcw"


@BOTH
@pytest.mark.parametrize(
    ("labels", "text"),
    [({"user": "ana", "host": "gpu-01"}, "ana@gpu-01"), ({"user": "ana"}, "ana"), ({"host": "gpu-01"}, "gpu-01"), ({}, "")],
)
def test_the_owner_is_the_user_at_the_host(origin: ModuleType, labels: dict[str, str], text: str) -> None:
    assert origin.owner(labels) == text


@BOTH
@pytest.mark.parametrize(
    ("name", "labels", "text"),
    [
        ("nightly", {"command": "python train.py"}, "nightly"),
        (None, {"command": "python train.py", "task": "lab.train"}, "python train.py"),
        (None, {"task": "lab.train"}, "lab.train"),
        (None, {}, ""),
    ],
)
def test_the_title_is_the_name_else_the_command_else_the_task(
    origin: ModuleType, name: str | None, labels: dict[str, str], text: str
) -> None:
    assert origin.title(name, labels) == text
