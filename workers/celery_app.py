"""The Celery app, made from the settings: `celery -A workers.celery_app worker`, and `beat`."""

from __future__ import annotations

import gc
import logging
import os
import warnings
from importlib import import_module
from threading import Event, Thread
from typing import Any

from celery import Celery, signals
from celery.exceptions import CPendingDeprecationWarning, SecurityWarning

from app import celery_brokers, logging_config
from app.bootstrap import make_task_store
from app.domain.errors import StoreUnavailable
from app.domain.setting_kinds import InvalidSetting
from app.settings import Settings
from app.store.celery_url import celery_broker
from app.store.child_process import end_with_parent
from app.store.connection import StoreMisconfigured, connect
from app.store.master_watch import watch_master
from app.store.nudges import Nudges
from app.store.schema import check_schema
from workers.nudge_listener import NudgeListener
from workers.outbox_dispatcher import BrokerRoute, OutboxDispatcher, broker_routes
from workers.schedule import CLOCK_SKEW_S, schedule

log = logging.getLogger(__name__)

QUEUE = "poolkeeper"

warnings.simplefilter("ignore", SecurityWarning)  # `poolkeeperd` warns of a start as root by a line in the log

RETRY_S = 1.0
"""Seconds until another try if Redis is unavailable at the start."""


def make_celery_app(settings: Settings) -> Celery:
    """Return the app for these settings. Raise StoreMisconfigured if there is no broker."""
    url = settings.broker_url or settings.redis_url
    if not url:
        raise StoreMisconfigured("set POOLKEEPER_REDIS_URL (or let `poolkeeperd up` start a Redis and the workers)")
    address = celery_broker(url)
    celery = Celery("poolkeeper", broker=address.url, include=["workers.tasks"], set_as_current=False)
    celery.conf.update(
        _configuration(settings), broker_transport_options=dict(address.options), broker_use_ssl=dict(address.ssl) or None
    )
    return celery


def _configuration(settings: Settings) -> dict[str, Any]:
    return {
        "task_default_queue": QUEUE,
        "task_ignore_result": True,
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_acks_late": True,
        "task_soft_time_limit": 330,  # longer than a job takes; it interrupts a call that hangs
        "task_time_limit": 360,
        "task_publish_retry_policy": {"max_retries": 1, "interval_start": 0.1},  # the next tick is as good as this one
        "worker_prefetch_multiplier": 1,
        "worker_concurrency": settings.worker_processes,
        # The subscription of remote control notices a lost connection. Without it, a busy worker, which fetches nothing
        # meanwhile, fails to acknowledge, and then neither fetches a task nor notices the loss.
        "worker_enable_remote_control": True,
        "worker_consumer": "workers.consumer:ReconnectingConsumer",
        "worker_cancel_long_running_tasks_on_connection_loss": False,  # jobs do not need the broker
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_connection_timeout": 2,
        "beat_scheduler": "workers.schedule:BoundedScheduler",
        "beat_max_loop_interval": 5,
        "beat_schedule": schedule(settings),
    }


@signals.setup_logging.connect
def _set_up_logging(**_: object) -> None:
    logging_config.configure_logging(_settings)


@signals.worker_ready.connect  # after Celery's own set-up, which enables all of these warnings
def _spare_warnings(**_: object) -> None:
    warnings.simplefilter("ignore", CPendingDeprecationWarning)  # at each outage, that tasks continue without the broker


@signals.worker_init.connect
def _find_brokers(**_: object) -> None:
    _main_process.append(os.getpid())
    try:
        _senders.update(broker_routes(celery_brokers.read_brokers(_settings)))
    except InvalidSetting as wrong:  # for any other error Celery only writes a line to the log, and continues
        raise SystemExit(f"poolkeeperd worker: {wrong}") from wrong


def prepare_before_fork() -> None:
    """Load the tasks and build the common parts of worker and beat, once for both."""
    app.loader.import_default_modules()
    app.finalize()
    app.amqp.queues  # noqa: B018 - it is made when it is read


@signals.worker_before_create_process.connect  # in the main process
def _share_memory(**_: object) -> None:
    """Keep the garbage collector from writing to memory that the children share."""
    gc.collect()
    gc.freeze()


@signals.worker_process_init.connect  # in each child, before its first task
def _prepare_child(**_: object) -> None:
    if _main_process and _main_process[0] != os.getpid():  # else the pool has threads instead of children
        end_with_parent(_main_process[0])
    if _settings.traces:
        import_module("workers.tasks").traces()


@signals.worker_ready.connect  # in the main process only, when its children are ready
def _begin(**_: object) -> None:
    Thread(target=_start_threads, name="begin", daemon=True).start()


def _start_threads() -> None:
    while not _stopping.is_set():
        try:
            client = connect(str(_settings.redis_url), _settings.redis_timeout_s, _settings.replicas_acknowledge)
            check_schema(client)
        except StoreUnavailable as away:  # the client of a cluster needs a reachable cluster
            log.warning("no nudge is claimed and no task is dispatched until Redis is available: %s", away)
            _stopping.wait(RETRY_S)
            continue
        watch_master(client)
        _threads.extend((NudgeListener(Nudges(client), _send), OutboxDispatcher(make_task_store(client, _settings), _senders)))
        for each in _threads:
            each.start()
        return


@signals.worker_shutdown.connect
def _end(**_: object) -> None:
    _stopping.set()
    while _threads:
        _threads.pop().stop()


def _send(workspace: str) -> None:
    app.send_task("workers.tasks.reconcile_workspace", (workspace,), expires=CLOCK_SKEW_S)


_senders: dict[str, BrokerRoute] = {}
_threads: list[NudgeListener | OutboxDispatcher] = []
_stopping = Event()
_main_process: list[int] = []  # the id of the worker's main process; its children are forks and read it here
_settings = Settings.read()
app = make_celery_app(_settings)
