"""Records as Redis holds them, read into models and written from asks: the only place that knows the names of the fields."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.domain import amounts
from app.domain.asks import PoolSettings, RequestAsk, body_digest
from app.domain.models import Account, Event, Hold, Policy, Pool, Request, Told
from app.domain.names import component_id
from app.domain.reasons import Code, PoolRefusal, Reason
from app.domain.states import State

Flat = Sequence[str]
"""Name and value in turn, as HGETALL and our scripts answer."""


def pairs(flat: Flat) -> dict[str, str]:
    """A flat list as a mapping; of a name that comes twice the last counts."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def ask(request_id: str, wanted: RequestAsk, key: str | None) -> dict[str, Any]:
    """What the submit script takes: the fields to write, and what it needs beside them."""
    fields = [
        "component", component_id(wanted.component_type, wanted.component),
        "resources", amounts.encode(wanted.amounts()),
        "preemptible", "1" if wanted.preemptible else "0",
        "class", str(wanted.preemption_class),
        "checkpoint", wanted.checkpoint,
        "retries", str(wanted.retries),
    ]  # fmt: skip
    for name in ("checkpoint_minutes", "walltime_s", "lease_s", "queue_ttl_s"):
        if (value := getattr(wanted, name)) is not None:
            fields += [name, str(value)]
    if wanted.labels:
        fields += ["labels", json.dumps(wanted.labels, sort_keys=True)]
    taken = {"id": request_id, "fields": fields}
    return {**taken, "key": key, "digest": body_digest(wanted)} if key else taken


def request(at: Mapping[str, str], lapses: str = "", places: Flat | None = None) -> Request:
    """A request out of its hash and the end of its lease; of one that was looked at also its places and its story."""
    kind, _, name = at["component"].partition("/")
    return Request(
        id=at["id"],
        component=name,
        component_type=kind,
        status=State(at["status"]),
        resources=amounts.decode(at["resources"]),
        preemptible=at["preemptible"] == "1",
        preemption_class=int(at["class"]),
        checkpoint=at["checkpoint"],
        checkpoint_minutes=_whole(at.get("checkpoint_minutes")),
        walltime_s=_whole(at.get("walltime_s")),
        retries=int(at["retries"]),
        lease_s=_whole(at.get("lease_s")),
        queue_ttl_s=_whole(at.get("queue_ttl_s")),
        labels=json.loads(at["labels"]) if "labels" in at else {},
        submitted_ms=int(at["submitted_ms"]),
        number=int(at["seq"]),
        reason=_reason(at),
        pool=at.get("pool") or None,
        fence=_whole(at.get("fence")),
        granted_ms=_whole(at.get("granted_ms")),
        ended_ms=_whole(at.get("ended_ms")),
        outcome=at.get("outcome") or None,
        lease_expires_ms=_whole(lapses),
        position={pool: int(place) for pool, place in pairs(places or ()).items()},
        story=() if places is None else tuple(_story(at)),
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text else None


def _reason(at: Mapping[str, str]) -> Reason | None:
    if not at.get("reason"):
        return None
    refusals = [text.split(" ") for text in at.get("reasons", "").split(";") if text]
    return Reason(
        Code(at["reason"]),
        tuple(
            PoolRefusal(pool, Code(code), key, int(asked), int(bound), account)
            for pool, code, key, asked, bound, account in refusals
        ),
    )


def _story(at: Mapping[str, str]) -> Iterable[Told]:
    for number in range(1, int(at.get("events", 0)) + 1):
        if told := at.get(f"e{number}"):
            entry, event, at_ms, *rest = told.split(" ")
            pool, reason, by = [None if word in ("", "-") else word for word in (*rest, "-", "-", "-")[:3]]
            yield Told(entry, event, int(at_ms), pool, reason, by)


def event(entry_id: str, at: Mapping[str, str]) -> Event:
    """An entry of the workspace's stream."""
    return Event(
        id=entry_id,
        event=at["event"],
        request=at["request"],
        at_ms=int(at["at"]),
        component=at["component"],
        resources=amounts.decode(at["resources"]),
        came_from=State(at["from"]) if at["from"] else None,
        to=State(at["to"]),
        pool=at["pool"] or None,
        fence=_whole(at["fence"]),
        reason=at["reason"] or None,
        by=at["by"] or None,
    )


def settings(changed: Mapping[str, Any]) -> str:
    """Settings as the scripts take them: nothing given is nothing changed, null is the empty text."""
    return json.dumps({name: "" if value is None else str(value) for name, value in changed.items()})


def all_settings(wanted: PoolSettings) -> str:
    """A new pool's settings, name and value in turn: every one is written, but for those that are null."""
    return json.dumps([word for name, value in wanted.model_dump().items() if value is not None for word in (name, str(value))])


def pool(name: str, fields: Mapping[str, Any]) -> Pool:
    """A pool and its accounts out of what `pool_view` answers."""
    at = pairs(fields["pool"])
    columns = _columns(at)
    names = PoolSettings.model_fields
    given = {setting: int(at[setting]) if at[setting].isdigit() else at[setting] for setting in names if setting in at}
    return Pool(
        name=name,
        description=fields["description"],
        capacity=columns["limit"],
        used=columns["used"],
        used_fixed=columns["fixed"],
        held=columns["kept"],
        settings={setting: given.get(setting) for setting in names},
        queue_length=int(fields["queued"]),
        active_count=int(fields["active"]),
        groups={group: Account(**_account(group, pairs(flat), "parent")) for group, flat in fields["groups"]},
        policies={
            component: Policy(
                **_account(component, own := pairs(flat), "group"), priority=int(own["priority"]), queued=int(queued)
            )
            for component, flat, queued in fields["policies"]
        },
        holds=tuple(_hold(request_id, text) for request_id, text in pairs(fields["holds"]).items()),
        unfinished="reviewing" in at or "unsettled" in at,
    )


def _columns(at: Mapping[str, str]) -> dict[str, dict[str, int]]:
    columns: dict[str, dict[str, int]] = {name: {} for name in ("limit", "reserved", "used", "fixed", "kept")}
    for field, value in at.items():
        column, _, key = field.partition(":")
        if key and column in columns and (column in ("limit", "reserved") or value != "0"):
            columns[column][key] = int(value)
    return columns


def _account(name: str, at: Mapping[str, str], parent: str) -> dict[str, Any]:
    columns = _columns(at)
    return {
        "name": name,
        "parent": at.get(parent),
        "weight": int(at["weight"]),
        "reserved": columns["reserved"],
        "limit": columns["limit"],
        "used": columns["used"],
        "used_fixed": columns["fixed"],
    }


def _hold(request_id: str, text: str) -> Hold:
    kind, since = text.split(" ")
    return Hold(request_id, kind, int(since))
