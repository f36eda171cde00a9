"""`poolkeeper request`: requests for capacity."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import click

from poolkeeper import formatting, request_origin
from poolkeeper.cli import columns, explanations, options, output, param_types, request_details, request_watch, suggestions
from poolkeeper.cli.amount_options import AmountCommand
from poolkeeper.cli.command_base import NounGroup
from poolkeeper.cli.confirm import is_confirmed
from poolkeeper.cli.dry_run import TIMEOUT_S, show_submit
from poolkeeper.cli.error_output import CommandError, print_message
from poolkeeper.cli.exit_codes import ExitCode
from poolkeeper.cli.request_ids import id_argument
from poolkeeper.cli.request_watch import DEFAULT_INTERVAL_S, MIN_INTERVAL_S
from poolkeeper.cli.submit_options import spec_of, submit_options
from poolkeeper.cli.wait_progress import submit_and_wait, wait_for

ID = id_argument(param_types.REQUEST)
QUEUED_ID = id_argument(param_types.QUEUED_REQUEST)
ALLOCATED_ID = id_argument(param_types.ALLOCATED_REQUEST)
TIMEOUT = click.option("--timeout", type=param_types.Duration(), help="Longest wait; after it the exit code is 7.")
TYPE = click.option("--type", "--component-type", "kind", type=param_types.ANY_NAME, help="Type of the component.")
FENCE = click.option(
    "--fence", type=click.IntRange(min=0), help="Fence of the allocation; without it, the present one is read first."
)
LIVE_STATUSES = ("queued", "allocated", "preempting")
STATUSES = (*LIVE_STATUSES, "preempted", "released", "expired", "cancelled", "rejected")

request = NounGroup("request", help="Requests for amounts of one or more keys, granted as a whole or not at all.")


@request.command(
    "submit",
    cls=AmountCommand,
    example="poolkeeper request submit --component team-ml --gpu 2 --lease none\n"
    "poolkeeper request submit --component team-ml --gpu 1 --memory 16GiB --label owner=ana --wait --timeout 9m -o name\n"
    "poolkeeper request submit --component team-ml --gpu 8 --dry-run",
)
@submit_options
@click.option("--key", help="Idempotency key: a repeated submit with the same key and options returns the same request.")
@click.option("--wait", is_flag=True, help="Wait until it is granted or has ended.")
@TIMEOUT
@click.option("--dry-run", is_flag=True, help="Show the outcome without submitting; exit code 6 if it would be rejected.")
def submit(key: str | None, wait: bool, timeout: int | None, dry_run: bool, **values: Any) -> None:
    """Submit a request for units of pools. It is allocated, queued or rejected (exit code 6) at once.

    --KEY N asks for an amount: --gpu 2, --mcpu 4000, --seats=3.
    """
    if timeout is not None and not wait:
        raise click.UsageError("--timeout needs --wait", click.get_current_context())
    if dry_run and (wait or key):
        raise click.UsageError("--dry-run excludes --wait and --key", click.get_current_context())
    body, key = spec_of(values), key or secrets.token_hex(16)
    client = options.client()
    if dry_run:
        return _show_dry_run(client.call("POST", "/dry-run", body={"request": body}, timeout_s=TIMEOUT_S))
    document = submit_and_wait(client, body, key, timeout) if wait else client.submit_document(body, key)
    return _show_and_exit(document, waited=wait)


@request.command(
    "list",
    example="poolkeeper request list --watch\npoolkeeper request list --all --search resnet\n"
    "poolkeeper request list --status rejected --label owner=ana --component team-ml -o wide",
)
@click.option("--all", "every_status", is_flag=True, help="Also list requests that have ended.")
@click.option("--status", type=click.Choice(STATUSES), multiple=True, help="Only requests with this status. May be repeated.")
@click.option("--component", type=param_types.COMPONENT, help="Only requests of this component.")
@TYPE
@click.option("--pool", type=param_types.POOL, help="Only requests that are queued in this pool, or were granted in it.")
@click.option(
    "--label", "labels", type=param_types.Label(), multiple=True, help="Only requests with this label. May be repeated."
)
@click.option(
    "--search", metavar="TEXT", help="Only requests with this text in the id, the name, the component or a label (user=ana)."
)
@columns.LIMIT
@click.option("--watch", "-w", is_flag=True, help="Keep the list up to date on a terminal, until q or Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=MIN_INTERVAL_S),
    metavar="SECONDS",
    help="With --watch: seconds between two reads (default: 2).",
)
def list_(
    every_status: bool,
    status: tuple[str, ...],
    component: tuple[str | None, str] | None,
    kind: str | None,
    pool: str | None,
    labels: tuple[dict[str, str], ...],
    search: str | None,
    limit: int,
    watch: bool,
    interval: float | None,
) -> None:
    """List queued and allocated requests, newest first. With --all or --status it lists others, too."""
    if interval is not None and not watch:
        raise click.UsageError("--interval needs --watch", click.get_current_context())
    written_kind, name = component or (None, None)
    query = {
        "status": status or (() if every_status else LIVE_STATUSES),
        "component": name,
        "component_type": written_kind or kind,
        "pool": pool,
        "label": [f"{key}:{value}" for label in labels for key, value in label.items()],
        "search": search,
        "positions": True,
    }
    if watch:
        return request_watch.watch("/requests", query, limit, interval or DEFAULT_INTERVAL_S)
    return columns.limited_requests("/requests", query, limit)


@request.command("describe", example="poolkeeper request describe 1v4f2t\npoolkeeper request describe --last")
@ID
def describe(request: str) -> None:
    """Show a request and its events."""
    client = options.client()
    document = dict(client.call("GET", _path(request)))
    document["timeline"] = list(client.items(options.path("requests", request, "events")))
    output.show_item(document, request, lambda: request_details.describe(document))


@request.command("wait", example="poolkeeper request wait 01kad5rgbxn0fg1v4f2t --timeout 5m && ./train.sh")
@QUEUED_ID
@TIMEOUT
def wait(request: str, timeout: int | None) -> None:
    """Wait until a request is granted or has ended. Exit code: 0 if it is granted, 6 or 8 if it has ended."""
    client = options.client()
    document = client.call("GET", _path(request))
    if document["status"] == "queued":
        document = wait_for(client, document, timeout)
    _show_and_exit(document, waited=True)


@request.command(
    "release",
    example="poolkeeper request release 01kad5rgbxn0fg1v4f2t\n"
    "poolkeeper request release 01kad5rgbxn0fg1v4f2t --fence 7 --failed\n"
    "poolkeeper request release 01kad5rgbxn0fg1v4f2t --fence 7 --outcome vacated",
)
@ALLOCATED_ID
@FENCE
@click.option("--failed", is_flag=True, help="Short for --outcome failed.")
@click.option(
    "--outcome",
    type=click.Choice(["succeeded", "failed", "vacated"]),
    help="Outcome of the work (default: succeeded). vacated: it has left unfinished because of a directive.",
)
def release(request: str, fence: int | None, failed: bool, outcome: str | None) -> None:
    """Release the units of a request. Waiters that fit are granted at once."""
    if failed and outcome not in (None, "failed"):
        raise click.UsageError(f"--failed and --outcome {outcome} exclude each other", click.get_current_context())
    client = options.client()
    fence = _current_fence(client.call("GET", _path(request))) if fence is None else fence
    body = {"fence": fence, "outcome": outcome or ("failed" if failed else "succeeded")}
    document = client.call("POST", options.path("requests", request, "release"), body=body)
    output.show_result(document, request, sentence(document))


@request.command("heartbeat", example="poolkeeper request heartbeat 01kad5rgbxn0fg1v4f2t --fence 7")
@ALLOCATED_ID
@FENCE
def heartbeat(request: str, fence: int | None) -> None:
    """Prolong the lease of a request, and print its directive. This is for shell scripts."""
    client = options.client()
    fence = _current_fence(client.call("GET", _path(request))) if fence is None else fence
    document = client.call("POST", options.path("requests", request, "heartbeat"), body={"fence": fence})
    output.show_result(document, request, _heartbeat_sentence(document))


@request.command(
    "checkpoint",
    example="poolkeeper request checkpoint 01kad5rgbxn0fg1v4f2t --fence 7 --state started\n"
    "poolkeeper request checkpoint 01kad5rgbxn0fg1v4f2t --fence 7 --state defer --for 2m\n"
    "poolkeeper request checkpoint 01kad5rgbxn0fg1v4f2t --fence 7 --state completed --reference s3://runs/42/step-9000",
)
@ALLOCATED_ID
@FENCE
@click.option(
    "--state",
    type=click.Choice(["started", "progress", "defer", "completed", "failed"]),
    required=True,
    help="State of the work: being saved (started, progress), saved later (defer), saved (completed), not saved (failed).",
)
@click.option("--for", "seconds", type=param_types.Duration(), help="With defer: time until the work can be saved.")
@click.option("--reference", help="With completed: reference to resume from.")
def checkpoint(request: str, fence: int | None, state: str, seconds: int | None, reference: str | None) -> None:
    """Report the progress of a checkpoint. A completed one releases the units if the request was told to leave."""
    if (seconds is None) == (state == "defer"):
        raise click.UsageError("--for is for --state defer, which needs it", click.get_current_context())
    client = options.client()
    fence = _current_fence(client.call("GET", _path(request))) if fence is None else fence
    fields = {"fence": fence, "state": state, "seconds": seconds, "reference": reference}
    body = {field: value for field, value in fields.items() if value is not None}
    document = client.call("POST", options.path("requests", request, "checkpoint"), body=body)
    output.show_result(document, request, _heartbeat_sentence(document))


@request.command("cancel", example="poolkeeper request cancel 1v4f2t")
@QUEUED_ID
def cancel(request: str) -> None:
    """Cancel a queued request."""
    document = options.call("POST", options.path("requests", request, "cancel"))
    output.show_result(document, request, sentence(document))


@request.command("delete", example="poolkeeper request delete 01kad5rgbxn0fg1v4f2t --yes")
@ID
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def delete(request: str, yes: bool) -> None:
    """Drop a request in any state (for operators). A queued one is cancelled, an allocation loses its units at once."""
    client = options.client()
    if not yes and not is_confirmed(lambda: _drop_question(client.call("GET", _path(request)))):
        raise CommandError("nothing was dropped")
    document = client.call("DELETE", _path(request))
    output.show_result(document, request, sentence(document or {"id": request, "status": "gone"}))


request.add_command(explanations.explain)


def sentence(request: Mapping[str, Any]) -> str:
    """Return the state of a request in one line."""
    status, where = request["status"], f" in {request['pool']}" if request.get("pool") else ""
    text = f"request {request['id']}: {status}"
    if status in ("allocated", "preempting"):
        text_with_fence = f"{text}{where or ', tied to no pool,'} under fence {request['fence']}"
        return text_with_fence + (f": {formatting.directive(request)}" if formatting.directive(request) else "")
    if status == "queued":
        position = formatting.position(request)
        return text + (f", position {position}" if position else "") + formatting.waits(request)
    reason = formatting.reason(request)
    return text + (f": {reason}" if reason else "")


def _drop_question(request: Mapping[str, Any]) -> str:
    """Return the question before a drop: the state of the request, its owner and its amounts."""
    labels = request["labels"]
    origin = [request_origin.owner(labels), formatting.shorten(request_origin.title(request.get("name"), labels))]
    facts = [formatting.component(request), *filter(None, origin), formatting.requested_amounts(request)]
    return f"drop it? {sentence(request)} ({', '.join(facts)})"


def _heartbeat_sentence(heartbeat: Mapping[str, Any]) -> str:
    """Return the answer to a heartbeat in one line."""
    if heartbeat["directive"] is None:
        return f"request {heartbeat['id']}: {heartbeat['status']}, it has left"
    lease = (
        f"lease until {formatting.timestamp(heartbeat['lease_expires_at'])}"
        if heartbeat["lease_expires_at"]
        else "without a lease"
    )
    return f"request {heartbeat['id']}: {formatting.directive(heartbeat) or 'continue'}, {lease}"


def _show_and_exit(request: Mapping[str, Any], *, waited: bool) -> None:
    """Print the request, and exit with the code of its state."""
    output.show_result(request, str(request["id"]), sentence(request))
    status = request["status"]
    if status == "allocated" and request["lease_s"] and not options.current_options().for_programs:
        lease = formatting.duration(request["lease_s"])
        print_message(f"its lease lapses in {lease} unless a heartbeat prolongs it (--lease none: never)")
    if status == "rejected" and options.current_options().output not in ("json", "yaml"):
        for hint in suggestions.hints_of(request):
            print_message(f"  {hint}")
    code = {
        "queued": ExitCode.TIMED_OUT if waited else ExitCode.OK,
        "allocated": ExitCode.OK,
        "preempting": ExitCode.OK,
        "rejected": ExitCode.REJECTED,
    }
    click.get_current_context().exit(code.get(status, ExitCode.ENDED if waited else ExitCode.OK))


def _show_dry_run(outcome: Mapping[str, Any]) -> None:
    """Print the outcome of a dry run, and exit with its code."""
    show_submit(outcome)
    if outcome["outcome"] == "rejected":
        click.get_current_context().exit(ExitCode.REJECTED)


def _current_fence(request: Mapping[str, Any]) -> int:
    if request["fence"] is None:
        raise CommandError(f"{sentence(request)}; it holds no units", hints=_cancel_hint(request))
    return int(request["fence"])


def _cancel_hint(request: Mapping[str, Any]) -> list[str]:
    return [f"to leave the queue: poolkeeper request cancel {request['id']}"] if request["status"] == "queued" else []


def _path(request: str) -> str:
    return options.path("requests", request)
