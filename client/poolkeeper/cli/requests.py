"""`poolkeeper request`: asks for capacity."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import click

from poolkeeper import formatting
from poolkeeper.cli import columns, explanations, options, output, param_types, request_details, suggestions
from poolkeeper.cli.command_base import Noun
from poolkeeper.cli.confirm import agreed
from poolkeeper.cli.dry_run import PATIENCE_S, show_ask
from poolkeeper.cli.error_output import Failed, say
from poolkeeper.cli.exit_codes import Exit
from poolkeeper.cli.submit_options import ask_of, ask_options
from poolkeeper.cli.wait_progress import wait_for

ID = click.argument("request", metavar="ID", type=param_types.REQUEST)
WAITER = click.argument("request", metavar="ID", type=param_types.WAITER)
HOLDER = click.argument("request", metavar="ID", type=param_types.HOLDER)
TIMEOUT = click.option("--timeout", type=param_types.Duration(), help="How long to wait at most; then the exit code is 7.")
TYPE = click.option("--type", "kind", type=param_types.PLAIN, help="Type of the component.")
FENCE = click.option(
    "--fence", type=click.IntRange(min=0), help="The fence it is held under; else the present one is read first."
)
STATUSES = ("queued", "allocated", "preempting", "preempted", "released", "expired", "cancelled", "rejected")

request = Noun("request", help="Requests: asks for several resources at once, granted whole or not at all.")


@request.command(
    "submit",
    example="poolkeeper request submit --component team-ml --resource gpu=2 --lease none\n"
    "poolkeeper request submit --component team-ml --gpu-count 1 --memory 16GiB --label owner=ana --wait --timeout 9m -o name\n"
    "poolkeeper request submit --component team-ml --gpu-count 8 --dry-run",
)
@ask_options
@click.option("--key", help="Idempotency key: the same key and the same ask give the same request back.")
@click.option("--wait", is_flag=True, help="Until it is granted, or can no longer be.")
@TIMEOUT
@click.option("--dry-run", is_flag=True, help="Say what would come of it, and do nothing; exit code 6 if it would be rejected.")
def submit(key: str | None, wait: bool, timeout: int | None, dry_run: bool, **said: Any) -> None:
    """Ask for capacity: allocated, queued or rejected (exit code 6) at once."""
    if timeout is not None and not wait:
        raise click.UsageError("--timeout is for --wait", click.get_current_context())
    if dry_run and (wait or key):
        raise click.UsageError("--dry-run goes with neither --wait nor --key", click.get_current_context())
    body, headers = ask_of(said), {"Idempotency-Key": key or secrets.token_hex(16)}
    client = options.client()
    if dry_run:
        return _try(client.call("POST", "/dry-run", body={"request": body}, timeout_s=PATIENCE_S))
    found = client.call("POST", "/requests", body=body, headers=headers)
    if wait and found["status"] == "queued":
        found = wait_for(client, found, timeout)
    return _tell(found, waited=wait)


@request.command(
    "list",
    example="poolkeeper request list --status queued --status allocated --label owner=ana\n"
    "poolkeeper request list --component team-ml -o wide",
)
@click.option("--status", type=click.Choice(STATUSES), multiple=True, help="Only with this status. May be repeated.")
@click.option("--component", type=param_types.COMPONENT, help="Only of this component.")
@TYPE
@click.option("--pool", type=param_types.POOL, help="Only queued in this pool or allocated from it.")
@click.option("--label", "labels", type=param_types.Label(), multiple=True, help="Only with this label. May be repeated.")
@columns.LIMIT
def list_(
    status: tuple[str, ...],
    component: tuple[str | None, str] | None,
    kind: str | None,
    pool: str | None,
    labels: tuple[dict[str, str], ...],
    limit: int,
) -> None:
    """List requests, newest first."""
    written, name = component or (None, None)
    query = {
        "status": status,
        "component": name,
        "component_type": written or kind,
        "pool": pool,
        "label": [f"{key}:{value}" for label in labels for key, value in label.items()],
    }
    columns.limited_requests("/requests", query, limit)


@request.command("describe", example="poolkeeper request describe 01kad5rgbxn0fg1v4f2t")
@ID
def describe(request: str) -> None:
    """Show a request and its story."""
    client = options.client()
    found = dict(client.call("GET", _path(request)))
    found["story"] = list(client.items(options.path("requests", request, "events")))
    output.one(found, request, lambda: request_details.describe(found))


@request.command("wait", example="poolkeeper request wait 01kad5rgbxn0fg1v4f2t --timeout 5m && ./train.sh")
@WAITER
@TIMEOUT
def wait(request: str, timeout: int | None) -> None:
    """Wait until a request is granted (exit code 0), or can no longer be (6, 8)."""
    client = options.client()
    found = client.call("GET", _path(request))
    if found["status"] == "queued":
        found = wait_for(client, found, timeout)
    _tell(found, waited=True)


@request.command(
    "release",
    example="poolkeeper request release 01kad5rgbxn0fg1v4f2t\n"
    "poolkeeper request release 01kad5rgbxn0fg1v4f2t --fence 7 --failed\n"
    "poolkeeper request release 01kad5rgbxn0fg1v4f2t --fence 7 --outcome vacated",
)
@HOLDER
@FENCE
@click.option("--failed", is_flag=True, help="The work has failed: --outcome failed.")
@click.option(
    "--outcome",
    type=click.Choice(["succeeded", "failed", "vacated"]),
    help="What became of the work (succeeded); vacated: it is not done, and has left because it was told to.",
)
def release(request: str, fence: int | None, failed: bool, outcome: str | None) -> None:
    """Give a request's units back; who can be granted with them is granted at once."""
    if failed and outcome not in (None, "failed"):
        raise click.UsageError(f"--failed and --outcome {outcome} exclude each other", click.get_current_context())
    client = options.client()
    fence = _present_fence(client.call("GET", _path(request))) if fence is None else fence
    body = {"fence": fence, "outcome": outcome or ("failed" if failed else "succeeded")}
    found = client.call("POST", options.path("requests", request, "release"), body=body)
    output.done(found, request, sentence(found))


@request.command("heartbeat", example="poolkeeper request heartbeat 01kad5rgbxn0fg1v4f2t --fence 7")
@HOLDER
@FENCE
def heartbeat(request: str, fence: int | None) -> None:
    """Prolong the lease of a request, from a shell script that holds it; told is what it has to do."""
    client = options.client()
    fence = _present_fence(client.call("GET", _path(request))) if fence is None else fence
    beat = client.call("POST", options.path("requests", request, "heartbeat"), body={"fence": fence})
    output.done(beat, request, _heard(beat))


@request.command(
    "checkpoint",
    example="poolkeeper request checkpoint 01kad5rgbxn0fg1v4f2t --fence 7 --state started\n"
    "poolkeeper request checkpoint 01kad5rgbxn0fg1v4f2t --fence 7 --state defer --for 2m\n"
    "poolkeeper request checkpoint 01kad5rgbxn0fg1v4f2t --fence 7 --state completed --reference s3://runs/42/step-9000",
)
@HOLDER
@FENCE
@click.option(
    "--state",
    type=click.Choice(["started", "progress", "defer", "completed", "failed"]),
    required=True,
    help="How far it is: at it (started, progress), not now (defer), all is saved (completed), it cannot be (failed).",
)
@click.option("--for", "seconds", type=param_types.Duration(), help="With defer: by how long.")
@click.option("--reference", help="With completed: where the work is to go on from.")
def checkpoint(request: str, fence: int | None, state: str, seconds: int | None, reference: str | None) -> None:
    """Say how far the saving of the work is; who completes it because it had to leave has left with that."""
    if (seconds is None) == (state == "defer"):
        raise click.UsageError("--for goes with --state defer, and is needed there", click.get_current_context())
    client = options.client()
    fence = _present_fence(client.call("GET", _path(request))) if fence is None else fence
    given = {"fence": fence, "state": state, "seconds": seconds, "reference": reference}
    body = {field: value for field, value in given.items() if value is not None}
    beat = client.call("POST", options.path("requests", request, "checkpoint"), body=body)
    output.done(beat, request, _heard(beat))


@request.command("cancel", example="poolkeeper request cancel 01kad5rgbxn0fg1v4f2t")
@WAITER
def cancel(request: str) -> None:
    """Take a request out of the queue."""
    found = options.call("POST", options.path("requests", request, "cancel"))
    output.done(found, request, sentence(found))


@request.command("delete", example="poolkeeper request delete 01kad5rgbxn0fg1v4f2t --yes")
@ID
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def delete(request: str, yes: bool) -> None:
    """Drop a request whatever its state: a waiter is cancelled, a holder loses its units at once. For operators."""
    client = options.client()
    if not yes and not agreed(lambda: f"drop it? {sentence(client.call('GET', _path(request)))}"):
        raise Failed("nothing was dropped")
    found = client.call("DELETE", _path(request))
    output.done(found, request, sentence(found or {"id": request, "status": "gone"}))


request.add_command(explanations.explain)


def sentence(found: Mapping[str, Any]) -> str:
    """How a request stands, in a line."""
    status, where = found["status"], f" in {found['pool']}" if found.get("pool") else ""
    told = f"request {found['id']}: {status}"
    if status in ("allocated", "preempting"):
        held = f"{told}{where or ', tied to no pool,'} under fence {found['fence']}"
        return held + (f": {formatting.directive(found)}" if formatting.directive(found) else "")
    if status == "queued":
        place = formatting.position(found)
        return told + (f", position {place}" if place else "")
    why = formatting.why(found)
    return told + (f": {why}" if why else "")


def _heard(beat: Mapping[str, Any]) -> str:
    """What a holder was answered, in a line."""
    if beat["directive"] is None:
        return f"request {beat['id']}: {beat['status']}, it has left"
    lease = f"lease until {formatting.clock(beat['lease_expires_at'])}" if beat["lease_expires_at"] else "without a lease"
    return f"request {beat['id']}: {formatting.directive(beat) or 'continue'}, {lease}"


def _tell(found: Mapping[str, Any], *, waited: bool) -> None:
    """Say how it stands; the exit code says so too."""
    output.done(found, str(found["id"]), sentence(found))
    status = found["status"]
    if status == "allocated" and found["lease_s"] and not options.said().for_programs:
        say(f"its lease lapses in {formatting.duration(found['lease_s'])} unless a heartbeat prolongs it (--lease none: never)")
    if status == "rejected" and options.said().output not in ("json", "yaml"):
        for hint in suggestions.hints_of(found):
            say(f"  {hint}")
    code = {
        "queued": Exit.TIMED_OUT if waited else Exit.OK,
        "allocated": Exit.OK,
        "preempting": Exit.OK,
        "rejected": Exit.REJECTED,
    }
    click.get_current_context().exit(code.get(status, Exit.ENDED if waited else Exit.OK))


def _try(told: Mapping[str, Any]) -> None:
    """Say what would come of a submit; the exit code says so too."""
    show_ask(told)
    if told["outcome"] == "rejected":
        click.get_current_context().exit(Exit.REJECTED)


def _present_fence(found: Mapping[str, Any]) -> int:
    if found["fence"] is None:
        raise Failed(f"{sentence(found)}; it holds nothing", hints=_instead(found))
    return int(found["fence"])


def _instead(found: Mapping[str, Any]) -> list[str]:
    return [f"to leave the queue: poolkeeper request cancel {found['id']}"] if found["status"] == "queued" else []


def _path(request: str) -> str:
    return options.path("requests", request)
