"""The facts that client and server both state, as they share no code: fields, states, codes, calls and limits."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from poolkeeper import Client, config, failures, http_client, models, request_spec, variable_names
from poolkeeper import client as client_module
from poolkeeper.celery import message, publish_hook, task_options, worker_request
from poolkeeper.cli import error_output, groups, param_types, policies, pools, request_details, requests, submit_options
from poolkeeper.models import Record
from poolkeeper.runner import checkpoint_files, origin_labels, process_run, secret_arguments
from pydantic import BaseModel

from app.api.error_codes import ERROR_CODES
from app.api.routes import PREFIX, ROUTES
from app.api.schemas import declarations, events, inputs, over_limit, pool_shares, tasks, workspaces
from app.api.schemas import pools as pool_schemas
from app.api.schemas import requests as request_schemas
from app.domain import explanations, field_types, names, reasons, specs, states
from app.domain.request_origin import ORIGIN_LABELS
from app.domain.tasks import TaskStatus
from app.domain.tokens import Permission
from app.settings import Settings
from tests.support.paths import ROOT

RESPONSES: dict[type[Record], type[BaseModel]] = {
    models.Caller: workspaces.WhoamiResponse,
    models.Change: declarations.DeclarationChangeResponse,
    models.Group: pool_schemas.GroupResponse,
    models.Heartbeat: request_schemas.HeartbeatResponse,
    models.LimitHolder: over_limit.LimitHolderResponse,
    models.OverLimit: over_limit.OverLimitResponse,
    models.Plan: declarations.DeclarationPlanResponse,
    models.Policy: pool_schemas.PolicyResponse,
    models.Pool: pool_schemas.PoolResponse,
    models.PreemptibleSplit: pool_shares.PreemptibleSplitResponse,
    models.Rank: events.RankResponse,
    models.Reason: request_schemas.ReasonResponse,
    models.Request: request_schemas.SubmitResponse,
    models.ShareAccount: pool_shares.AccountSharesResponse,
    models.Task: tasks.TaskResponse,
    models.TimelineEntry: events.TimelineEntryResponse,
    models.Victim: events.VictimResponse,
    models.Waits: request_schemas.WaitResponse,
}
"""Record of the client → response of the server."""


def compared_codes(path: Path) -> Iterator[str]:
    """Yield the texts that a file of the client compares with `code`."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(getattr(side, "attr", getattr(side, "id", "")) == "code" for side in sides):
                yield from (part.value for side in sides for part in ast.walk(side)
                            if isinstance(part, ast.Constant) and isinstance(part.value, str))  # fmt: skip


def choices(command: click.Command, name: str) -> list[str]:
    """Return the words that an option or argument of a command may be."""
    (param,) = (param for param in command.params if param.name == name)
    assert isinstance(param.type, click.Choice)
    return list(param.type.choices)


def literals(model: type[BaseModel], field: str) -> tuple[str, ...]:
    """Return the words that a field of a body may be."""
    words: tuple[str, ...] = get_args(model.model_fields[field].annotation)
    return words


def test_every_record_is_compared() -> None:
    records = {name for name, kind in vars(models).items() if isinstance(kind, type) and issubclass(kind, Record)}
    assert records - {"Record"} == {record.__name__ for record in RESPONSES}, "add the record and its response to RESPONSES"


@pytest.mark.parametrize("record", RESPONSES, ids=lambda record: record.__name__)
def test_a_record_has_the_fields_of_its_response(record: Any) -> None:
    assert {field.name for field in fields(record)} == set(RESPONSES[record].model_fields), (
        "the record is in client/poolkeeper/models.py"
    )


def test_a_request_may_have_every_field_of_the_server() -> None:
    parameters = inspect.signature(request_spec).parameters
    assert set(parameters) - {"amounts"} == set(specs.RequestSpec.model_fields), "add the field to request_spec of the client"
    for method in (Client.submit, Client.allocation):
        assert set(parameters) <= set(inspect.signature(method).parameters)
    options = {name.replace("preemption_retries", "retries") for name in task_options.OPTIONS} - {"redeliveries"}
    expiry, name_of_task = "queue_ttl_s", "name"  # the rest of a task's time is its expiry; its label `task` is its name
    assert options == set(specs.RequestSpec.model_fields) - {expiry, name_of_task}


def test_states() -> None:
    assert set(models.ALLOCATED_STATES) == set(states.HOLDING_STATES)
    assert models.QUEUED_STATE == states.RequestState.QUEUED
    assert set(requests.STATUSES) == set(states.RequestState)
    assert set(process_run.TAKEN_BACK_STATES) < set(states.RequestState)
    assert {*publish_hook.ENDING_STATES, *worker_request.WAITING_STATES} < set(TaskStatus)
    starving = get_args(pool_shares.AccountSharesResponse.model_fields["status"].annotation)
    assert set(models.STARVING_STATES) == {status for status in starving if status != "non_starving"}


def test_reasons_and_verdicts_have_words() -> None:
    assert set(request_details.REASON_SENTENCES) == set(reasons.ReasonCode), (
        "add a sentence to REASON_SENTENCES in client/poolkeeper/cli/request_details.py"
    )


def test_words_that_options_may_be() -> None:
    submit = {option.name: option.type for option in submit_options.submit_options(click.command()(lambda: None)).params}
    assert isinstance(submit["checkpoint"], click.Choice)
    assert tuple(submit["checkpoint"].choices) == literals(specs.RequestSpec, "checkpoint")
    assert set(choices(requests.checkpoint, "state")) == set(literals(inputs.CheckpointBody, "state"))
    assert set(checkpoint_files.SUFFIXES) < set(literals(inputs.CheckpointBody, "state"))
    released = set(literals(inputs.ReleaseBody, "outcome"))
    assert set(choices(requests.release, "outcome")) == released - {"lost"}, "a lost process can report nothing"
    assert tuple(choices(pools.requests, "view")) == literals(inputs.PoolRequestsQuery, "view")
    assert tuple(choices(policies.attach, "profile")) == get_args(specs.Profile)
    assert tuple(choices(groups.create, "mode")) == get_args(specs.SharingMode)


def test_codes_that_the_client_knows() -> None:
    client_codes = {code for path in (ROOT / "client/poolkeeper").rglob("*.py") for code in compared_codes(path)}
    hinted = error_output.HINTS_BY_CODE.keys() - {failures.UNREACHABLE, failures.NO_TLS, failures.NOT_HTTP}
    texts = {"code", ""} | set(reasons.ReasonCode) | set(explanations.WaitReason)
    assert hinted | {"stale_fence", "not_leaving", "task_exists"} <= client_codes | hinted, "these are found in the source"
    assert (client_codes | hinted) - texts - ERROR_CODES.keys() == set(), (
        "the client compares with a code that the server never answers"
    )


def test_calls_that_may_be_repeated() -> None:
    posts = {route.path: route for route in ROUTES if route.method == "POST"}
    keyed = {rule for rule, route in posts.items() if "Idempotency-Key" in route.request_headers}
    assert keyed == http_client.IDEMPOTENT_POSTS, "client/poolkeeper/http_client.py lists the routes with an idempotency key"
    reads = {rule for rule, route in posts.items() if route.permission is Permission.READ}
    assert reads == {rule for rule in posts if rule.endswith(http_client.READ_ONLY_POSTS)}
    assert {rule for rule in posts if not rule.endswith(http_client.REPEATABLE_POSTS)} == keyed, "every call can be retried"
    for suffix in http_client.REPEATABLE_POSTS:
        assert any(rule.endswith(suffix) for rule in posts), suffix


def test_limits_and_names() -> None:
    assert config.PREFIX == PREFIX
    assert client_module.BATCH_SIZE == inputs.LONGEST_BATCH
    assert f"^{param_types._NAME.pattern}$" == names.NAME_PATTERN
    assert f"^{message._NAME.pattern}$" == names.TASK_PATTERN
    assert origin_labels.MAX_LABELS == field_types.MAX_LABELS
    assert secret_arguments.MAX_LENGTH == field_types.MAX_LABEL_LENGTH
    assert set(origin_labels.with_origin({}, ["a"], has_arguments=True, has_pid=True)["labels"]) == set(ORIGIN_LABELS)
    key, value = f"k{'e' * 62}", str(param_types.LARGEST)
    assert specs.RequestSpec(component="a", resources={key: int(value)}).resources[key] == param_types.LARGEST
    with pytest.raises(ValueError, match=str(param_types.LARGEST)):
        specs.RequestSpec(component="a", resources={"gpu": param_types.LARGEST + 1})


def test_variable_names() -> None:
    assert Path(variable_names.__file__).read_text("utf-8") == (ROOT / "app/domain/variable_names.py").read_text("utf-8"), (
        "copy app/domain/variable_names.py to client/poolkeeper"
    )
    assert set(variable_names.SETTINGS) == {field.name.upper() for field in fields(Settings)}, (
        "add the variable to app/domain/variable_names.py"
    )
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "client/poolkeeper").rglob("*.py"))
    read = set(re.findall(r"""(?:environ(?:\.get\(|\[)|envvar=)"POOLKEEPER_(\w+)\"""", sources))
    assert read - set(variable_names.RUN) == set(variable_names.CLIENT)
