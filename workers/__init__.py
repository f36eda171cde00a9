"""Celery's side of Poolkeeper: what happens by the clock. Beat ticks, a worker does one round of what the tick says.

Where a decision may be needed at once nobody waits for the clock: the workers hear of it, and one sends itself a task. They
also hear what is granted of people's own tasks, and send it to the brokers of those (`dispatching.py`, `publishing.py`).

Grants never wait for any of it. Beats and workers may be none, one or many: a round is idempotent and bounded, and each
workspace is left to whoever has its lease. A tick carries nothing, so one that is lost, late or doubled does no harm.
"""
