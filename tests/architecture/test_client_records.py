"""The client cannot import the responses of the API, so its records are compared with them here."""

from __future__ import annotations

import dataclasses
from typing import Any

import poolkeeper.models as client
import pytest
from pydantic import BaseModel

from app.api.schemas.declarations import DeclarationChangeResponse, DeclarationPlanResponse
from app.api.schemas.events import RankResponse, TimelineEntryResponse, VictimResponse
from app.api.schemas.over_limit import LimitHolderResponse, OverLimitResponse
from app.api.schemas.pool_shares import AccountSharesResponse, PreemptibleSplitResponse
from app.api.schemas.pools import GroupResponse, PolicyResponse, PoolResponse
from app.api.schemas.requests import HeartbeatResponse, ReasonResponse, SubmitResponse, WaitResponse
from app.api.schemas.tasks import TaskResponse
from app.api.schemas.workspaces import WhoamiResponse

RESPONSES: dict[Any, type[BaseModel]] = {
    client.Reason: ReasonResponse,
    client.Request: SubmitResponse,
    client.Waits: WaitResponse,
    client.Heartbeat: HeartbeatResponse,
    client.Task: TaskResponse,
    client.Pool: PoolResponse,
    client.Policy: PolicyResponse,
    client.Group: GroupResponse,
    client.PreemptibleSplit: PreemptibleSplitResponse,
    client.ShareAccount: AccountSharesResponse,
    client.Rank: RankResponse,
    client.Victim: VictimResponse,
    client.TimelineEntry: TimelineEntryResponse,
    client.Caller: WhoamiResponse,
    client.Change: DeclarationChangeResponse,
    client.LimitHolder: LimitHolderResponse,
    client.OverLimit: OverLimitResponse,
    client.Plan: DeclarationPlanResponse,
}


def test_every_record_of_the_client_has_its_response() -> None:
    records = {each for each in vars(client).values() if isinstance(each, type) and dataclasses.is_dataclass(each)}
    assert records == RESPONSES.keys()


@pytest.mark.parametrize("record", RESPONSES, ids=lambda record: record.__name__)
def test_a_record_of_the_client_has_the_fields_of_its_response(record: Any) -> None:
    assert {field.name for field in dataclasses.fields(record)} == set(RESPONSES[record].model_fields)
