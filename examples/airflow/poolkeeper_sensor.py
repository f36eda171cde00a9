"""Airflow 3: a sensor that waits for units of Poolkeeper without a worker slot, and the operator that releases them.

Copy this file and `poolkeeper_requests.py` into the folder of the DAGs. The environment of the workers and of the triggerer has
POOLKEEPER_URL and POOLKEEPER_TOKEN.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any

import poolkeeper_requests as requests
from airflow.exceptions import AirflowException, AirflowFailException
from airflow.sdk import BaseOperator, BaseSensorOperator
from airflow.triggers.base import BaseTrigger, TriggerEvent
from poolkeeper import Client


def task_try(context: Mapping[str, Any]) -> requests.TaskTry:
    """Return the try that an Airflow context belongs to."""
    ti = context["ti"]
    return requests.TaskTry(ti.dag_id, ti.run_id, ti.task_id, str(ti.id), ti.map_index)


class PoolkeeperTrigger(BaseTrigger):
    """A poll loop for one request, in the triggerer, until it is no longer queued."""

    def __init__(self, request_id: str, poll_s: float) -> None:
        super().__init__()
        self.request_id, self.poll_s = request_id, poll_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments by which the triggerer makes this trigger again."""
        return "poolkeeper_sensor.PoolkeeperTrigger", {"request_id": self.request_id, "poll_s": self.poll_s}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: the grant, or the reason why there is none."""
        client = Client()
        try:
            while (grant := await asyncio.to_thread(requests.poll, client, self.request_id)) is None:
                await asyncio.sleep(self.poll_s)
            yield TriggerEvent({"grant": grant})
        except requests.GrantError as error:
            yield TriggerEvent({"error": str(error), "may_retry": error.may_retry})


class PoolkeeperSensor(BaseSensorOperator):
    """A sensor that submits one request for each try, and defers until it is granted. Its XCom is the grant.

    `component`, `amounts`: the requester and the units of each key. `request_options`: other fields of the request, such as
    `pools`, `walltime_s` or `preemptible`. `poke_interval`: seconds between two polls. `timeout`: seconds of the wait, after
    which the request is cancelled.
    """

    template_fields = ("component", "amounts")

    def __init__(
        self, *, component: str, amounts: dict[str, int], request_options: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**{"poke_interval": 5} | kwargs)
        self.component, self.amounts, self.request_options = component, amounts, request_options or {}
        self._task_try: requests.TaskTry | None = None

    def execute(self, context: Mapping[str, Any]) -> None:
        """Submit the request and free the worker slot."""
        self._task_try = task_try(context)
        request_id = requests.submit(Client(), self._task_try, self.component, self.amounts, **self.request_options)
        self.log.info("request %s is submitted; the triggerer waits for its grant", request_id)
        self.defer(
            trigger=PoolkeeperTrigger(request_id, self.poke_interval),
            method_name="receive_grant",
            timeout=timedelta(seconds=self.timeout),
        )

    def receive_grant(self, context: Mapping[str, Any], event: dict[str, Any]) -> dict[str, Any]:
        """Return the grant. If the request has ended, fail the task: without a retry, unless another request may be granted."""
        if "error" in event:
            raise (AirflowException if event["may_retry"] else AirflowFailException)(event["error"])
        return event["grant"]

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Mapping[str, Any]) -> Any:
        """Continue after the wait. If the wait has timed out or failed, end the request."""
        self._task_try = task_try(context)
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except BaseException:
            requests.give_up(self._task_try)
            raise

    def on_kill(self) -> None:
        """End the request if the task is killed while it has a worker slot."""
        if self._task_try:
            requests.give_up(self._task_try)


class PoolkeeperRelease(BaseOperator):
    """The release of the grant of a sensor. As the teardown of the sensor it also runs if the work fails."""

    template_fields = ("grant",)

    def __init__(self, *, grant: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.grant = grant

    def execute(self, context: Mapping[str, Any]) -> bool:
        """Release the units. Return False if they were lost before."""
        return requests.release(Client(), self.grant)
