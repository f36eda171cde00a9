"""The codec of records in Redis: hashes are decoded to models, and specs encoded to hashes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from app.domain import amounts, decimals
from app.domain.models import Event, Group, HeartbeatResult, Policy, Pool, PoolHold, Request, Setting, TimelineEntry, Victims
from app.domain.names import component_id, short_component
from app.domain.pool_setting import PoolSetting
from app.domain.pool_setting_models import PoolSettings
from app.domain.pool_settings import ACCOUNT_SETTINGS, DEFAULT_MODE, DEFAULT_PROFILE, SETTINGS, unset_value
from app.domain.queue_score import MAX_AMOUNT
from app.domain.reasons import CUT_MARK, KeyPools, PoolRefusal, Reason, ReasonCode
from app.domain.request_fields import REQUEST_FIELDS, FieldKind
from app.domain.request_filter import RequestFilter
from app.domain.specs import GroupSpec, PolicySpec, RequestSpec, request_digest
from app.domain.states import HOLDING_STATES, RequestState
from app.store import origin_codec

NEVER_LAPSES = str(MAX_AMOUNT)
"""The time at which a lease of null lapses."""

PREEMPTION_GROUP_LABEL = "preemption_group"
"""The label of requests that never preempt each other."""

FlatHash = Sequence[str]
"""A hash as a flat list, name and value in turn, like the replies of HGETALL and of the scripts."""


def to_mapping(flat: FlatHash) -> dict[str, str]:
    """Return a flat hash as a mapping. The last value of a repeated name counts."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def encode_request(
    request_id: str, spec: RequestSpec, key: str | None, subject: Mapping[str, str | int] | None = None
) -> dict[str, Any]:
    """Return a row of the script `submit`: id, fields to write; with an idempotency key also the key and the digest.

    `subject` is the token that submits the request, if its limits count the request while it waits.
    """
    fields = [
        "component", component_id(spec.component_type, spec.component),
        "resources", amounts.encode(spec.amounts()),
        "preemptible", "1" if spec.preemptible else "0",
        "class", str(spec.preemption_class),
        "checkpoint", spec.checkpoint,
        "retries", str(spec.retries),
    ]  # fmt: skip
    for name in _OPTIONAL_SPEC_FIELDS:
        if (value := getattr(spec, name)) is not None:
            fields += [name, str(value)]
    if spec.pools:
        fields += ["shape", _encode_shape(spec.pools)]
    if PREEMPTION_GROUP_LABEL in spec.labels:
        fields += ["preemption_group", hashlib.sha256(spec.labels[PREEMPTION_GROUP_LABEL].encode()).hexdigest()[:16]]
    if spec.labels:
        fields += ["labels", json.dumps(spec.labels, sort_keys=True)]
    if origin := origin_codec.encode(spec.name, spec.labels):
        fields += ["origin", origin]
    if subject:
        fields += ["limited_by", str(subject["name"])]
    fields += ["bytes", str(len("".join(fields).encode()))]
    row: dict[str, Any] = {"id": request_id, "fields": fields}
    if subject:
        row["limits"] = subject
    return {**row, "key": key, "digest": request_digest(spec)} if key else row


def decode_request(fields: Mapping[str, str], lapses: str = "", places: FlatHash | None = None) -> Request:
    """Return a request from its hash and the end of its lease. With queue positions given, it has its timeline too."""
    values: dict[str, Any] = {"labels": {}}  # its own dictionary, because the record's default cannot be written as JSON
    for attribute, decode, name in _REQUIRED_FIELDS:
        values[attribute] = decode(fields[name])
    for attribute, decode, name in _OPTIONAL_FIELDS:
        if text := fields.get(name):
            values[attribute] = decode(text)
    values["component_type"], _, values["component"] = fields["component"].partition("/")
    values["position"] = {pool: int(place) for pool, place in to_mapping(places or ()).items()}
    if values["status"] in HOLDING_STATES:
        values["directive"] = "continue"
    if values["status"] is RequestState.PREEMPTING:
        values["directive"] = fields.get("directive") or "continue"
        values["deadline_ms"] = _optional_int(fields.get("deadline_ms"))
    if fields.get("reason"):
        values["reason"] = _decode_reason(fields)
    if lapses and lapses != NEVER_LAPSES:
        values["lease_expires_ms"] = int(lapses)
    if places is not None:
        values["timeline"] = tuple(_decode_timeline(fields))
    return Request(**values)


def _encode_shape(pools: Sequence[str]) -> str:
    return "pools=" + ",".join(pools)


def decode_shape_pools(shape: str) -> list[str] | None:
    """Return the pools that the end of a shape names; None if it names none."""
    return next((part.removeprefix("pools=").split(",") for part in shape.split("|") if part.startswith("pools=")), None)


_DECODERS: Mapping[FieldKind, Callable[[str], Any]] = {
    FieldKind.TEXT: str,
    FieldKind.INTEGER: int,
    FieldKind.FLAG: "1".__eq__,
    FieldKind.TIME: int,
    FieldKind.AMOUNTS: amounts.decode,
    FieldKind.LABELS: json.loads,
    FieldKind.SHAPE: decode_shape_pools,
    FieldKind.STATE: RequestState,
}
_PLAIN_FIELDS = [field for field in REQUEST_FIELDS if field.attribute and not field.is_computed]
_OPTIONAL_SPEC_FIELDS = [
    field.name
    for field in _PLAIN_FIELDS
    if field.kind in (FieldKind.INTEGER, FieldKind.TEXT) and not field.is_required and field.name in RequestSpec.model_fields
]
_REQUIRED_FIELDS = [(field.attribute, _DECODERS[field.kind], field.name) for field in _PLAIN_FIELDS if field.is_required]
_OPTIONAL_FIELDS = [(field.attribute, _DECODERS[field.kind], field.name) for field in _PLAIN_FIELDS if not field.is_required]


def _optional_int(text: str | None) -> int | None:
    return int(text) if text else None


def _decode_reason(fields: Mapping[str, str]) -> Reason | None:
    if not fields.get("reason"):
        return None
    refusals = [text.split(" ") for text in fields.get("reasons", "").split(";") if text]
    code = ReasonCode(fields["reason"])
    return Reason(
        code,
        tuple(
            PoolRefusal(pool, ReasonCode(code), "" if key == "-" else key, int(requested), int(bound), account)
            for pool, code, key, requested, bound, account in refusals
        ),
        by=fields.get("preempted_by") or None,
        by_origin=origin_codec.decode(fields.get("by_origin")),
        component=short_component(fields["component"]) if code is ReasonCode.NO_POLICY else None,
        key_pools=_decode_key_pools(fields),
    )


def _decode_key_pools(fields: Mapping[str, str]) -> KeyPools | None:
    if not fields.get("key_pools"):
        return None
    rows = [row.partition("=") for row in fields["key_pools"].split(";")]
    names = {key: tuple(name for name in text.split(",") if name) for key, _, text in rows}
    all_pools, complete_row = names.pop("*"), names.pop("+")
    complete = tuple(name for name in complete_row if name != CUT_MARK)
    return KeyPools(all_pools, complete, names, read_all=complete == complete_row, is_named=bool(fields.get("shape")))


def _decode_timeline(fields: Mapping[str, str]) -> Iterable[TimelineEntry]:
    for number in range(1, int(fields.get("events", 0)) + 1):
        if line := fields.get(f"e{number}"):
            entry, event, at_ms, *rest = (*line.split(" "), "-")
            at_ms = fields["submitted_ms"] if at_ms == "-" else at_ms
            words = [None if word in ("", "-") else word for word in (*rest, *"-------")[:7]]
            pool, reason, by, rank, by_rank, victims, by_origin = words
            origin = origin_codec.decode(by_origin)
            end = (fields.get("outcome"), _optional_int(fields.get("exit_code"))) if event == "released" else (None, None)
            victim_ranks = _decode_victims(victims)
            yield TimelineEntry(entry, event, int(at_ms), pool, reason, by, rank, by_rank, victim_ranks, origin, *end)


def _decode_victims(text: str | None) -> Victims:
    """Return the victims of a text `id@rank;id@rank`."""
    entries = (entry.partition("@") for entry in (text or "").split(";") if entry)
    return tuple((victim, rank) for victim, _, rank in entries)


def decode_heartbeat(fields: Mapping[str, str]) -> HeartbeatResult:
    """Return the result of a heartbeat with a valid fence."""
    status = RequestState(fields["status"])
    is_preempting = status == RequestState.PREEMPTING
    directive, deadline = (fields["directive"], fields["deadline"]) if is_preempting else ("continue", "")
    return HeartbeatResult(status, _optional_int(fields["lapses"]), directive or "continue", _optional_int(deadline))


def decode_event(entry_id: str, fields: Mapping[str, str]) -> Event:
    """Return an event from an entry of the workspace's stream."""
    return Event(
        id=entry_id,
        event=fields["event"],
        request=fields["request"],
        at_ms=int(fields["at"]),
        component=fields["component"],
        resources=amounts.decode(fields["resources"]),
        from_status=RequestState(fields["from"]) if fields["from"] else None,
        to_status=RequestState(fields["to"]),
        pool=fields["pool"] or None,
        fence=_optional_int(fields["fence"]),
        reason=fields["reason"] or None,
        by=fields["by"] or None,
        rank=fields.get("rank") or None,
        by_rank=fields.get("by_rank") or None,
        victims=_decode_victims(fields.get("victims")),
        origin=origin_codec.decode(fields.get("origin")),
        by_origin=origin_codec.decode(fields.get("by_origin")),
        outcome=fields.get("outcome") or None,
        exit_code=_optional_int(fields.get("exit_code")),
    )


def encode_filter(conditions: RequestFilter) -> str:
    """Return the conditions of a filter that count, as JSON for the script `list_requests`."""
    fields = {
        "status": dict.fromkeys(map(str, conditions.status), True),
        "name": conditions.component,
        "kind": conditions.component_type,
        "pool": conditions.pool,
        "labels": dict(conditions.labels or {}),
        "id": conditions.id_fragment,
        "text": conditions.text,
    }
    visible = {} if conditions.visible is None else {"visible": list(conditions.visible)}
    return json.dumps({name: value for name, value in fields.items() if value} | visible)


def encode_settings(changed: Mapping[str, Any]) -> str:
    """Return changed settings in the form of the scripts; null is the empty text."""
    return json.dumps({name: encode_setting(value) for name, value in changed.items()})


def encode_new_settings(settings: PoolSettings) -> str:
    """Return the settings of a new pool, name and value in turn. Settings that are null are left out."""
    texts = {name: encode_setting(value) for name, value in settings.model_dump().items()}
    return json.dumps([word for pair in texts.items() if pair[1] for word in pair])


def encode_account_settings(account: GroupSpec | PolicySpec) -> list[tuple[str, str]]:
    """Return (name, text) of every setting of a group or policy; an inherited setting has an empty text."""
    rows = [(name, encode_setting(value)) for name, value in account.settings.model_dump().items()]
    if isinstance(account, GroupSpec):
        rows.append(("mode", "" if account.mode == DEFAULT_MODE else account.mode))
    return rows


def encode_setting(value: Setting) -> str:
    """Return the stored text of a setting. Null and empty amounts are the empty text, which means unset; booleans are 1 and
    0."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, Mapping):
        return amounts.encode(value)
    if isinstance(value, float):
        return decimals.encode(value)
    return "" if value is None else str(value)


def _decode_pool_settings(texts: Mapping[str, str]) -> dict[str, Setting]:
    """Return a pool's settings."""
    return {name: _decode_setting(texts[name], row) if name in texts else unset_value(name) for name, row in SETTINGS.items()}


def _decode_account_settings(texts: Mapping[str, str]) -> dict[str, Setting]:
    """Return the own settings of a group or a policy."""
    return {name: _decode_setting(texts[name], row) for name, row in ACCOUNT_SETTINGS.items() if name in texts}


def _decode_setting(text: str, row: PoolSetting) -> Setting:
    if row.values is bool:
        return text == "1"
    if "=" in text:
        return amounts.decode(text)
    return decimals.decode(text) if text[:1].isdigit() else text


def decode_pool(name: str, fields: Mapping[str, Any]) -> Pool:
    """Return a pool and its accounts from the reply of `get_pool`."""
    account = to_mapping(fields["pool"])
    columns = _amount_columns(account)
    return Pool(
        name=name,
        description=fields["description"],
        capacity=columns["limit"],
        used=columns["used"],
        used_fixed=columns["fixed"],
        on_hold=_sum_amounts(columns["patience_held"], columns["victim_held"]),
        settings=_decode_pool_settings(account),
        queue_length=int(fields["queued"]),
        active_count=int(fields["active"]),
        groups={group: _decode_group(group, to_mapping(flat)) for group, flat in fields["groups"]},
        policies={
            component: _decode_policy(component, to_mapping(flat), int(queued), _optional_int(policies))
            for component, flat, queued, policies in fields["policies"]
        },
        holds=tuple(_decode_hold(request_id, text) for request_id, text in to_mapping(fields["holds"]).items()),
        unfinished="reviewing" in account or "unsettled" in account,
    )


def _amount_columns(fields: Mapping[str, str]) -> dict[str, dict[str, int]]:
    columns: dict[str, dict[str, int]] = {
        name: {} for name in ("limit", "reserved", "used", "fixed", "patience_held", "victim_held")
    }
    for field, value in fields.items():
        column, _, key = field.partition(":")
        if key and column in columns and (column in ("limit", "reserved") or value != "0"):
            columns[column][key] = int(value)
    return columns


def _sum_amounts(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {key: left.get(key, 0) + right.get(key, 0) for key in {**left, **right}}


def _decode_group(group: str, fields: Mapping[str, str]) -> Group:
    return Group(**_account_fields(group, fields, "parent"), mode=fields.get("mode") or DEFAULT_MODE)


def _decode_policy(component: str, fields: Mapping[str, str], queued: int, policies: int | None) -> Policy:
    account = _account_fields(component, fields, "group")
    return Policy(
        **account,
        priority=int(fields["priority"]),
        queued=queued,
        profile=fields.get("profile") or DEFAULT_PROFILE,
        template=fields.get("template"),
        policies=policies,
    )


def _account_fields(name: str, fields: Mapping[str, str], parent: str) -> dict[str, Any]:
    columns = _amount_columns(fields)
    return {
        "name": name,
        "parent": fields.get(parent),
        "weight": int(fields["weight"]),
        "reserved": columns["reserved"],
        "limit": columns["limit"],
        "used": columns["used"],
        "used_fixed": columns["fixed"],
        "settings": _decode_account_settings(fields),
    }


def _decode_hold(request_id: str, text: str) -> PoolHold:
    kind, since_ms, *_ = text.split(" ")
    return PoolHold(request_id, kind, int(since_ms))
