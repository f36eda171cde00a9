"""The Celery side of Poolkeeper: periodic jobs. Beat sends ticks, and a worker runs one job for each tick.

If a decision may be needed at once, no tick is awaited: a nudge reaches the workers, and one of them sends itself a task. The
workers also dispatch granted tasks of other Celery apps to their brokers (`outbox_dispatcher.py`, `broker_publisher.py`).

Grants do not depend on any of this. There may be none, one or many beats and workers: a job is idempotent and bounded, and its
lock keeps it to one worker per workspace. A tick carries no data, so a lost, late or doubled tick does no harm.
"""
