"""The names of events: transitions, and notes that go with none. `app/api/schemas/events.py` says what each means."""

from __future__ import annotations

EVENT_NAMES = (
    *("submitted", "allocated", "started", "released", "rejected", "expired", "cancelled", "preempting", "preempted", "forced"),
    *("reprieved", "terminating", "passed_on", "clearing"),
)
