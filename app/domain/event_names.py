"""The names of events: transitions, and notes during a state. `app/api/schemas/events.py` has their meanings."""

from __future__ import annotations

EVENT_NAMES = (
    *("submitted", "allocated", "started", "released", "rejected", "expired", "cancelled", "preempting", "preempted", "forced"),
    *("reprieved", "terminating", "passed_on", "clearing"),
)
