"""The options of a new request, and the body made from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, TypeVar

import click

from poolkeeper.cli import param_types
from poolkeeper.cli.amount_options import OPTION_BY_KEY

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--component", type=param_types.COMPONENT, required=True, help="Requester: NAME or TYPE/NAME."),
    click.option(
        "--type", "--component-type", "kind", type=param_types.ANY_NAME, help="Type of the component (default: orchestrator)."
    ),
    click.option("--name", help="Name of the request, for people: up to 100 characters."),
    click.option(
        "--resource",
        "--resources",
        "resources",
        type=param_types.Amounts(option_by_key=OPTION_BY_KEY),
        multiple=True,
        help="Amounts: gpu=2,mcpu=4000, or as JSON or YAML. May be repeated. --gpu 2 is the same as --resource gpu=2.",
    ),
    click.option(
        "--pool",
        "pools",
        type=param_types.POOL,
        multiple=True,
        help="Pool that may grant it; without one, any pool. May be repeated.",
    ),
    click.option("--gpu-count", type=click.IntRange(min=0), help="The same as gpu=N."),
    click.option("--cpu-count", type=click.FloatRange(min=0), help="CPUs and parts of them: 0.5 is mcpu=500."),
    click.option("--memory", metavar="SIZE", help="Memory, such as 16GiB or 512MB: becomes memory_mb, rounded up."),
    click.option("--fixed", is_flag=True, help="Not preemptible: granted only within the reserved units of its policy."),
    click.option(
        "--class",
        "preemption_class",
        type=click.IntRange(0, 10),
        help="Preemption class (default: 5): a higher class is preempted later, 10 never.",
    ),
    click.option(
        "--checkpoint",
        type=click.Choice(["none", "manual", "auto"]),
        help="Kind of checkpoint by which the work can be saved (default: none).",
    ),
    click.option("--checkpoint-minutes", type=click.IntRange(min=1), help="Minutes that an auto checkpoint takes."),
    click.option("--walltime", type=param_types.Duration(), help="Promised time from the grant to the end of the work."),
    click.option(
        "--retries",
        type=click.IntRange(min=-1),
        help="Number of preemptions after which it is queued again (default: 3); -1: no bound.",
    ),
    click.option(
        "--lease",
        type=param_types.Duration(none=True),
        help="Time without a heartbeat until its units are taken back (default: 60s).",
    ),
    click.option(
        "--queue-ttl",
        type=param_types.Duration(none=True),
        help="Time that it stays queued without a poll (default: 10m; run: 1m).",
    ),
    click.option(
        "--label", "labels", type=param_types.Label(), multiple=True, help="Label for people and searches. May be repeated."
    ),
)


def submit_options(command: Decorated) -> Decorated:
    """Add every option of a request, in the order of the help."""
    return reduce(lambda done, option: option(done), reversed(_OPTIONS), command)


def spec_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a submit. The service has the defaults of options that are not given. Raise UsageError without
    amounts: a request for none has to be explicit.
    """
    kind, name = param_types.full_component(values["component"], values["kind"])
    if not any(values[field] for field in ("resources", "gpu_count", "cpu_count", "memory")):
        raise click.UsageError("the request has no amounts: give one, such as --gpu 1", click.get_current_context())
    spec: dict[str, Any] = {"component": name, "component_type": kind}
    spec |= _non_null(
        {
            "resources": param_types.merge(values["resources"], "--resource"),
            "settings": _non_null({field: values[field] for field in ("gpu_count", "cpu_count", "memory")}),
            "labels": param_types.merge(values["labels"], "--label"),
            "pools": list(values["pools"]),
        },
        without=({}, []),
    )
    plain = ("name", "preemption_class", "checkpoint", "checkpoint_minutes", "retries")
    spec |= _non_null({field: values[field] for field in plain})
    durations = {"walltime_s": values["walltime"], "lease_s": values["lease"], "queue_ttl_s": values["queue_ttl"]}
    spec |= {field: param_types.seconds(value) for field, value in _non_null(durations).items()}
    return spec | ({"preemptible": False} if values["fixed"] else {})


def _non_null(fields: Mapping[str, Any], without: tuple[Any, ...] = ()) -> dict[str, Any]:
    return {field: value for field, value in fields.items() if value is not None and value not in without}
