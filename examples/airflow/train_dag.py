"""A DAG that waits for two GPUs without a worker slot, trains, and releases them."""

import time

from airflow.exceptions import AirflowFailException
from airflow.sdk import dag, task
from poolkeeper_requests import GrantError, holding
from poolkeeper_sensor import PoolkeeperRelease, PoolkeeperSensor


@task
def train(grant):
    """Work for five seconds under the grant."""
    try:
        with holding(grant):
            print(f"training with {grant['resources']['gpu']} GPUs of {grant['pool']} under fence {grant['fence']}")
            time.sleep(5)
    except GrantError as error:  # another try of this task would have no units either
        raise AirflowFailException(f"{error}; clear this task, so that the sensor waits again") from error


@dag(schedule=None)
def training():
    """Wait, train, release."""
    wait = PoolkeeperSensor(task_id="wait", component="vision", amounts={"gpu": 2}, timeout=3600)
    release = PoolkeeperRelease(task_id="release", grant=wait.output)
    wait.as_setup() >> train(wait.output) >> release.as_teardown(setups=wait)


training()
