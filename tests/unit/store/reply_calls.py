"""The replies that a single call brings about."""

from __future__ import annotations

from typing import Any

from tests.support import limit_replies
from tests.support.reply_acts import ABSENT, ACTS, NOWHERE, register_call

ACTS.update(limit_replies.ACTS)
NUMBERS: dict[str, Any] = {"op": "o", "reserved": "", "limit": "", "weight": 1, "settings": "[]"}
POLICY: dict[str, Any] = {"component": "x/y", "priority": 1, "profile": "batch", "group": "", **NUMBERS}
PAGE: dict[str, Any] = {"cursor": "0", "count": 10, "repair": False}

for command in (
    "read_counters",
    "read_deadlines",
    "get_last_event_id",
    "read_clock",
    "list_pools",
    "list_tokens",
    "get_workspace",
):
    register_call(command, "found")
register_call("read_usage_history", "found", pool="p", cursor="0", count=100)
register_call("list_components", "found", pool="p", cursor="0", count=10)
register_call("list_lanes", "found", component="orchestrator/t", cursor="0", count=10)
register_call("audit_holds", "audited", pool="p", kind="holds", owner="", **PAGE)
register_call("audit_holds", "not_found", pool=NOWHERE, kind="holds", owner="", **PAGE)
register_call("start_sums", "started", pool="p")
register_call("start_sums", "not_found", pool=NOWHERE)
register_call("read_sum_rows", "read", pool="p", kind="allocations", cursor="0", count=10)
register_call("read_sum_changes", "not_found", pool=NOWHERE, event="0-0", number=0, rules="0", most=9)
register_call("read_sum_changes", "moved", pool="p", event="0-0", number=0, rules="0", most=9)
register_call("repair_sums", "moved", pool="p", rules="0", corrections="[]")
register_call("count_subject_waiters", "counted", subject="token/a")
register_call("resume_unfinished", "advanced")
register_call("list_active", "page", pool="p", after=0, count=10)
register_call("list_active", "not_found", pool=NOWHERE, after=0, count=10)
register_call("audit_index", "audited", kind="leases", part="", **PAGE)
register_call("audit_lanes", "audited", pool="p", lanes="[]", **PAGE)
register_call("audit_lanes", "not_found", pool=NOWHERE, lanes="[]", **PAGE)
register_call("audit_requests", "audited", after=-1, count=10, repair=False)
register_call("cancel", "not_found", id=ABSENT)
register_call("checkpoint", "not_found", op="o", id=ABSENT, fence=1, state="progress", seconds=0, reference=None, routine="")
register_call("list_component_pools", "found", component="orchestrator/t")
register_call("enforce_deadlines", "enforced")
register_call("drop", "not_found", id=ABSENT)
register_call("read_events", "found", after="0", count=10)
register_call("explain", "not_found", id=ABSENT)
register_call("get_requests", "found", ids='["absent"]')
register_call("delete_group", "deleted", op="o", pool="p", group="h")
register_call("delete_group", "in_use", op="o", pool="p", group="g")
register_call("delete_group", "not_found", op="o", pool="p", group=NOWHERE)
register_call("set_group", "set", pool="p", group="new", parent="g", **NUMBERS)
register_call("set_group", "refused", pool="p", group="new", parent="", **NUMBERS | {"reserved": "gpu=3"})
register_call("set_group", "not_found", pool="p", group="new", parent=NOWHERE, **NUMBERS)
register_call("heartbeat", "not_found", id=ABSENT, fence=1)
register_call("end_hold", "stale", pool="p", owner=ABSENT)
register_call("read_usage_history", "not_found", pool=NOWHERE, cursor="0", count=100)
register_call("read_latest_events", "found", last="+", count=10)
register_call("count_requests", "counted")
register_call("count_matching_requests", "counted", before=1, scan=10, filter="{}")
register_call("read_queue_positions", "found", ids='["absent"]')
register_call("release_job_lock", "given_back", job="audit", token="a")
register_call("take_job_lock", "taken", job="audit", token="a", ttl_ms=1000)
register_call("list_requests", "page", before=1, count=10, scan=10, filter="{}")
register_call("get_request", "not_found", id=ABSENT, poll=False)
register_call("begin_reconcile", "seen", token="a", ttl_ms=1000, why="missed")
register_call("finish_reconcile", "done", token="a", next=None, ttl_ms=1000, took_ms=1, found="nothing")
PARTS = {"cursor": "0", "components": "[]", "count": 10}
register_call("read_pool_metrics", "measured", pool="p", **PARTS)
register_call("read_pool_metrics", "not_found", pool=NOWHERE, **PARTS)
PATIENCE: dict[str, Any] = {"pool": "p", "first": 0, "best": "", "count": 2}
register_call("give_patience_hold", "none", **PATIENCE)
register_call("record_refused_poll", "ignored", id=ABSENT, components="")
