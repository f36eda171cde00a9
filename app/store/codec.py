"""Records as Redis holds them, read into models and written from asks: the only place that knows the names of the fields."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from pydantic.fields import FieldInfo

from app.domain import amounts, decimals
from app.domain.models import Event, Group, HeartbeatResult, Policy, Pool, PoolHold, Request, Setting, TimelineEntry, Victims
from app.domain.names import component_id
from app.domain.queue_score import EXACT
from app.domain.reasons import PoolRefusal, Reason, ReasonCode
from app.domain.specs import AccountSettings, GroupSpec, PolicySpec, PoolSettings, RequestSpec, body_digest
from app.domain.states import HOLDING_STATES, RequestState

DEFAULT_MODE = "fair_share"
"""The mode of a group that has none written."""

NEVER_LAPSES = str(EXACT)
"""When a lease lapses that does not run."""

PREEMPTION_GROUP_LABEL = "preemption_group"
"""The label of those who never take from each other."""

FlatHash = Sequence[str]
"""Name and value in turn, as HGETALL and our scripts answer."""


def to_mapping(flat: FlatHash) -> dict[str, str]:
    """A flat list as a mapping; of a name that comes twice the last counts."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def encode_request(request_id: str, wanted: RequestSpec, key: str | None) -> dict[str, Any]:
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
    if PREEMPTION_GROUP_LABEL in wanted.labels:
        fields += ["chain", hashlib.sha256(wanted.labels[PREEMPTION_GROUP_LABEL].encode()).hexdigest()[:16]]
    if wanted.labels:
        fields += ["labels", json.dumps(wanted.labels, sort_keys=True)]
    taken = {"id": request_id, "fields": fields}
    return {**taken, "key": key, "digest": body_digest(wanted)} if key else taken


def decode_request(at: Mapping[str, str], lapses: str = "", places: FlatHash | None = None) -> Request:
    """A request out of its hash and the end of its lease; of one that was looked at also its places and its story."""
    kind, _, name = at["component"].partition("/")
    status = RequestState(at["status"])
    leaving = status is RequestState.PREEMPTING
    return Request(
        id=at["id"],
        component=name,
        component_type=kind,
        status=status,
        resources=amounts.decode(at["resources"]),
        preemptible=at["preemptible"] == "1",
        preemption_class=int(at["class"]),
        checkpoint=at["checkpoint"],
        checkpoint_minutes=_optional_int(at.get("checkpoint_minutes")),
        walltime_s=_optional_int(at.get("walltime_s")),
        retries=int(at["retries"]),
        lease_s=_optional_int(at.get("lease_s")),
        queue_ttl_s=_optional_int(at.get("queue_ttl_s")),
        labels=json.loads(at["labels"]) if "labels" in at else {},
        submitted_ms=int(at["submitted_ms"]),
        number=int(at["seq"]),
        reason=_decode_reason(at),
        pool=at.get("pool") or None,
        fence=_optional_int(at.get("fence")),
        granted_ms=_optional_int(at.get("granted_ms")),
        ended_ms=_optional_int(at.get("ended_ms")),
        outcome=at.get("outcome") or None,
        preemptions=int(at.get("preemptions") or 0),
        resume=at.get("resume") == "1",
        checkpoint_reference=at.get("reference") or None,
        directive=((leaving and at.get("directive")) or "continue") if status in HOLDING_STATES else None,
        deadline_ms=_optional_int(at.get("deadline_ms")) if leaving else None,
        extended=at.get("extended") == "1",
        deferred_s=int(at.get("deferred_s") or 0),
        preempted_by=at.get("preempted_by") or None,
        lease_expires_ms=None if lapses == NEVER_LAPSES else _optional_int(lapses),
        position={pool: int(place) for pool, place in to_mapping(places or ()).items()},
        timeline=() if places is None else tuple(_decode_timeline(at)),
        task=at.get("task"),
        started_ms=_optional_int(at.get("started_ms")),
    )


def _optional_int(text: str | None) -> int | None:
    return int(text) if text else None


def _decode_reason(at: Mapping[str, str]) -> Reason | None:
    if not at.get("reason"):
        return None
    refusals = [text.split(" ") for text in at.get("reasons", "").split(";") if text]
    return Reason(
        ReasonCode(at["reason"]),
        tuple(
            PoolRefusal(pool, ReasonCode(code), key, int(asked), int(bound), account)
            for pool, code, key, asked, bound, account in refusals
        ),
        by=at.get("preempted_by") or None,
    )


def _decode_timeline(at: Mapping[str, str]) -> Iterable[TimelineEntry]:
    for number in range(1, int(at.get("events", 0)) + 1):
        if told := at.get(f"e{number}"):
            entry, event, at_ms, *rest = told.split(" ")
            pool, reason, by, rank, by_rank, victims = [None if word in ("", "-") else word for word in (*rest, *"------")[:6]]
            yield TimelineEntry(entry, event, int(at_ms), pool, reason, by, rank, by_rank, _decode_victims(victims))


def _decode_victims(text: str | None) -> Victims:
    """`id@rank;id@rank`."""
    pairs_of = (one.partition("@") for one in (text or "").split(";") if one)
    return tuple((victim, rank) for victim, _, rank in pairs_of)


def decode_heartbeat(fields: Mapping[str, str]) -> HeartbeatResult:
    """What a holder is answered that is alive."""
    status = RequestState(fields["status"])
    told = status == RequestState.PREEMPTING
    directive, deadline = (fields["directive"], fields["deadline"]) if told else ("continue", "")
    return HeartbeatResult(status, _optional_int(fields["lapses"]), directive or "continue", _optional_int(deadline))


def decode_event(entry_id: str, at: Mapping[str, str]) -> Event:
    """An entry of the workspace's stream."""
    return Event(
        id=entry_id,
        event=at["event"],
        request=at["request"],
        at_ms=int(at["at"]),
        component=at["component"],
        resources=amounts.decode(at["resources"]),
        from_status=RequestState(at["from"]) if at["from"] else None,
        to_status=RequestState(at["to"]),
        pool=at["pool"] or None,
        fence=_optional_int(at["fence"]),
        reason=at["reason"] or None,
        by=at["by"] or None,
        rank=at.get("rank") or None,
        by_rank=at.get("by_rank") or None,
        victims=_decode_victims(at.get("victims")),
    )


def encode_settings(changed: Mapping[str, Any]) -> str:
    """Settings as the scripts take them: nothing given is nothing changed, null is the empty text."""
    return json.dumps({name: encode_setting(value) for name, value in changed.items()})


def encode_new_settings(wanted: PoolSettings) -> str:
    """A new pool's settings, name and value in turn: every one is written, but for those that are null."""
    given = {name: encode_setting(value) for name, value in wanted.model_dump().items()}
    return json.dumps([word for pair in given.items() if pair[1] for word in pair])


def encode_account_settings(account: GroupSpec | PolicySpec) -> list[tuple[str, str]]:
    """What a group or a policy says for itself, (name, text) of every setting there is; what it does not say is empty."""
    own = [(name, encode_setting(value)) for name, value in account.settings.model_dump().items()]
    if isinstance(account, GroupSpec):
        own.append(("mode", "" if account.mode == DEFAULT_MODE else account.mode))
    return own


def encode_setting(value: Setting) -> str:
    """A setting as it is kept: null, and amounts of nothing, are the empty text, which means there is none; yes and no are 1
    and 0."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, Mapping):
        return amounts.encode(value)
    if isinstance(value, float):
        return decimals.encode(value)
    return "" if value is None else str(value)


def unset_value(name: str) -> Setting:
    """What a pool's setting is that was never written: null if it may be, else its default, for it is newer than the pool."""
    field = PoolSettings.model_fields[name]
    return None if type(None) in get_args(field.annotation) else field.default


def _decode_pool_settings(at: Mapping[str, str]) -> dict[str, Setting]:
    """A pool's settings."""
    fields = PoolSettings.model_fields.items()
    return {name: _decode_setting(at[name], field) if name in at else unset_value(name) for name, field in fields}


def _decode_account_settings(at: Mapping[str, str]) -> dict[str, Setting]:
    """The settings that a group or a policy says for itself."""
    fields = AccountSettings.model_fields.items()
    return {name: _decode_setting(at[name], field) for name, field in fields if name in at}


def _decode_setting(text: str, field: FieldInfo) -> Setting:
    if bool in (field.annotation, *get_args(field.annotation)):
        return text == "1"
    if "=" in text:
        return amounts.decode(text)
    return decimals.decode(text) if text[:1].isdigit() else text


def decode_pool(name: str, fields: Mapping[str, Any]) -> Pool:
    """A pool and its accounts out of what `get_pool` answers."""
    at = to_mapping(fields["pool"])
    columns = _amount_columns(at)
    return Pool(
        name=name,
        description=fields["description"],
        capacity=columns["limit"],
        used=columns["used"],
        used_fixed=columns["fixed"],
        on_hold=_sum_amounts(columns["kept"], columns["cleared"]),
        settings=_decode_pool_settings(at),
        queue_length=int(fields["queued"]),
        active_count=int(fields["active"]),
        groups={group: _decode_group(group, to_mapping(flat)) for group, flat in fields["groups"]},
        policies={
            component: _decode_policy(component, to_mapping(flat), int(queued))
            for component, flat, queued in fields["policies"]
        },
        holds=tuple(_decode_hold(request_id, text) for request_id, text in to_mapping(fields["holds"]).items()),
        unfinished="reviewing" in at or "unsettled" in at,
    )


def _amount_columns(at: Mapping[str, str]) -> dict[str, dict[str, int]]:
    columns: dict[str, dict[str, int]] = {name: {} for name in ("limit", "reserved", "used", "fixed", "kept", "cleared")}
    for field, value in at.items():
        column, _, key = field.partition(":")
        if key and column in columns and (column in ("limit", "reserved") or value != "0"):
            columns[column][key] = int(value)
    return columns


def _sum_amounts(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}}


def _decode_group(group: str, at: Mapping[str, str]) -> Group:
    return Group(**_account_fields(group, at, "parent"), mode=at.get("mode") or DEFAULT_MODE)


def _decode_policy(component: str, at: Mapping[str, str], queued: int) -> Policy:
    own = _account_fields(component, at, "group")
    return Policy(**own, priority=int(at["priority"]), queued=queued, profile=at.get("profile") or "batch")


def _account_fields(name: str, at: Mapping[str, str], parent: str) -> dict[str, Any]:
    columns = _amount_columns(at)
    return {
        "name": name,
        "parent": at.get(parent),
        "weight": int(at["weight"]),
        "reserved": columns["reserved"],
        "limit": columns["limit"],
        "used": columns["used"],
        "used_fixed": columns["fixed"],
        "settings": _decode_account_settings(at),
    }


def _decode_hold(request_id: str, text: str) -> PoolHold:
    kind, since_ms, *_ = text.split(" ")
    return PoolHold(request_id, kind, int(since_ms))
