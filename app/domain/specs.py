"""The inputs of the service, validated: no malformed value gets past here, so none reaches a Lua script.

Only values that are wrong by themselves are refused here. A value that is wrong beside other values (a `reserved` beyond its
`limit`, a key that the pool lacks) breaks a rule, and the ledger refuses it. A new setting is one more field with a
description.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic.config import JsonDict

from app.domain.amounts import MAX_CPUS, MEMORY_PATTERN, memory_mb, merge_resources
from app.domain.field_types import (
    TEN_YEARS_S,
    Capacity,
    Description,
    Duration,
    Labels,
    PoolNames,
    Quantities,
    Quantity,
    RequestedUnits,
    SettingsModel,
    StrictModel,
    Weight,
)
from app.domain.names import FullComponent, Name, Title
from app.domain.pool_setting_models import AccountSettings, GroupSettings, PoolSettings
from app.domain.pool_settings import DEFAULT_MODE, DEFAULT_PRIORITY, DEFAULT_PROFILE, DEFAULT_WEIGHT
from app.domain.queue_score import CLASS_COUNT, PRIORITY_COUNT
from app.domain.request_origin import ORIGIN_LABELS
from app.domain.workspace_limits import MAX_COMPONENT_LIMITS, WORKSPACE_LIMITS

MAX_RETRIES = 1_000_000
Profile = Literal["batch", "training", "service", "sensitive", "interactive"]
SharingMode = Literal["fair_share", "fifo"]

MEMORY_SCHEMA: JsonDict = {"pattern": f"^{MEMORY_PATTERN}$", "examples": ["16GiB", "512MB"]}
"""The schema of `memory`. The validator checks it with a better message."""


class ResourceSettings(StrictModel):
    """The resources of a request as typed fields. They override `resources`."""

    gpu_count: Quantity | None = None
    """Units of the key `gpu`; 0 removes it."""
    cpu_count: Annotated[float, Field(ge=0, le=MAX_CPUS, allow_inf_nan=False)] | None = None
    """CPUs, as units of the key `mcpu` (thousandths, rounded up); 0 removes it."""
    memory: Annotated[str, Field(max_length=64, json_schema_extra=MEMORY_SCHEMA)] | None = None
    """Memory as a number with KB, KiB, MB, MiB, GB … PiB. It becomes `memory_mb` (10^6 bytes, rounded up); `0MB` removes it."""
    pool_resources: RequestedUnits = Field(default={})
    """Resource key → units, for any key. They override `resources`."""

    @field_validator("memory")
    @classmethod
    def _check_memory(cls, memory: str | None) -> str | None:
        if memory is not None:
            memory_mb(memory)
        return memory


class RequestSpec(StrictModel):
    """A request for units of several resources at once. It is granted all of them or none."""

    component: Name
    """The name of the component that asks."""
    component_type: Name = "orchestrator"
    """The type of the component that asks."""
    name: Title | None = Field(default=None, examples=["nightly training"])
    """The name of the request, for people: any visible text of at most 100 characters. It need not be unique."""
    pools: PoolNames | None = Field(default=None, examples=[["gpus"]])
    """The pools that may grant it; null means every pool with a policy for its component. Their order has no meaning."""
    resources: RequestedUnits = Field(default={}, examples=[{"gpu": 2}])
    """Resource key → units. `step_run: 1` is always added, and may be the only key."""
    settings: ResourceSettings = Field(default_factory=ResourceSettings)
    """The resources as typed fields, instead of or along with `resources`."""
    preemptible: bool = True
    """True if the request may borrow beyond its policy's reserved units, and may be preempted for their owner."""
    preemption_class: Annotated[int, Field(ge=0, le=CLASS_COUNT - 1)] = 5
    """The preemption class: the higher, the later it is preempted. 10 is never preempted and needs the permission
    `sensitive`."""
    checkpoint: Literal["none", "manual", "auto"] = "none"
    """The way the work saves its state before it leaves: not at all, by hand or automatically."""
    checkpoint_minutes: Annotated[int, Field(ge=1, le=TEN_YEARS_S // 60)] | None = None
    """Minutes that an `auto` checkpoint takes; null is the default of 5. Other checkpoints ignore it."""
    walltime_s: Duration | None = None
    """Seconds after the grant in which the work promises to end; null is no promise."""
    retries: Annotated[int, Field(ge=-1, le=MAX_RETRIES)] = 3
    """The number of times that it may return to the queue after a preemption; -1 is no bound."""
    lease_s: Duration | None = 60
    """Seconds after the last heartbeat until its units are taken back; null is never."""
    queue_ttl_s: Duration | None = 600
    """Seconds that it stays queued without a poll; null is for ever."""
    labels: Labels = Field(default={})
    """Label → text, for people and for searches."""

    @field_validator("settings")
    @classmethod
    def _check_merge(cls, settings: ResourceSettings, info: ValidationInfo) -> ResourceSettings:
        merge_resources(info.data.get("resources", {}), settings)
        return settings

    @field_validator("pools")
    @classmethod
    def _sort_pools(cls, pools: list[str] | None) -> list[str] | None:
        return pools and sorted(set(pools))

    def amounts(self) -> dict[str, int]:
        """Return the amounts of the request: `resources` and `settings` merged."""
        return merge_resources(self.resources, self.settings)


class PoolSpec(StrictModel):
    """The spec of a new pool."""

    name: Name
    """The name of the pool; it cannot be changed."""
    description: Description = ""
    """A description for people, as plain text."""
    capacity: Capacity = Field(examples=[{"gpu": 8}])
    """Resource key → units of the pool."""
    settings: PoolSettings = PoolSettings()
    """The settings by which the pool settles contention."""


class PoolUpdate(StrictModel):
    """A change of a pool. A field that is not given keeps its value."""

    description: Description | None = None
    """A description for people; null keeps the present one."""
    capacity: Quantities = Field(default={}, examples=[{"gpu": 16, "tpu": 0}])
    """Resource key → the new units; 0 removes the key. A key that is not given keeps its units."""
    settings: PoolSettings = PoolSettings()
    """The settings to change; settings that are not given keep their values. The defaults shown are those of a new pool."""


class GroupSpec(StrictModel):
    """A group of a pool, complete."""

    parent: Name | None = None
    """The group above this one; null is directly below the pool."""
    reserved: Quantities = Field(default={})
    """Resource key → units of its reserved share; a key that is not given has 0."""
    limit: Quantities = Field(default={})
    """Resource key → the most units it may use; a key that is not given is bounded by the pool alone."""
    weight: Weight = DEFAULT_WEIGHT
    """The weight among its siblings, for fair share."""
    mode: SharingMode = DEFAULT_MODE
    """In discipline `fair_share`: its children share by their weights (`fair_share`), or are served one after the other
    (`fifo`): the greatest weight first, then the oldest."""
    settings: GroupSettings = GroupSettings()
    """The settings of the group and of all accounts below it; settings that are not given are inherited."""


class PolicySpec(StrictModel):
    """The policy of a component in a pool, complete."""

    priority: Annotated[int, Field(ge=0, le=PRIORITY_COUNT - 1)] = DEFAULT_PRIORITY
    """The priority of its requests: the higher, the earlier they are served."""
    reserved: Quantities = Field(default={})
    """Resource key → units of its reserved share; a key that is not given has 0."""
    limit: Quantities = Field(default={})
    """Resource key → the most units it may use; a key that is not given is bounded by the pool alone."""
    weight: Weight = DEFAULT_WEIGHT
    """The weight among its siblings, for fair share."""
    group: Name | None = None
    """The group above the policy; null is directly below the pool."""
    profile: Profile = DEFAULT_PROFILE
    """The kind of its work, in discipline `classes`. `training`: a checkpoint costs three times as much; `interactive`: a
    preemption costs half; `service`: only borrowed allocations are preempted; `sensitive`: never preempted."""
    settings: AccountSettings = AccountSettings()
    """The settings of the policy; settings that are not given are inherited."""


class ComponentLimitSettings(StrictModel):
    """The limits of one component in a workspace, whatever tokens submit its requests; null is no limit."""

    max_waiting: Quantity | None = None
    """The most waiting requests of the component, delayed tasks included; null is no limit."""
    max_shapes: Quantity | None = None
    """The most different shapes of its waiting requests; null is no limit."""


def _default(name: str) -> int:
    return WORKSPACE_LIMITS[name].default


class WorkspaceSettings(SettingsModel):
    """The settings of a whole workspace. Beyond a limit, a new request, pool or policy is refused with 429; null is no
    limit."""

    unmanaged: Literal["reject", "allow"] = "reject"
    """The answer to a request of a component without any policy: rejected, or allocated at once without a pool."""
    max_waiting: Quantity | None = _default("max_waiting")
    """The most waiting requests of the workspace, delayed tasks included; null is no limit."""
    max_shapes: Quantity | None = _default("max_shapes")
    """The most different shapes of waiting requests; null is no limit. Requests with the same component, amounts, `preemptible`
    and `pools` have the same shape."""
    max_running: Quantity | None = _default("max_running")
    """The most allocations of the workspace; null is no limit. Beyond it new requests are refused, but waiters are granted."""
    max_pools: Quantity | None = _default("max_pools")
    """The most pools of the workspace; null is no limit."""
    max_policies: Quantity | None = _default("max_policies")
    """The most policies of all pools together; null is no limit."""
    max_ended: Quantity | None = _default("max_ended")
    """The most ended requests that are kept; null is no limit. Beyond it the oldest are deleted, and no call is refused."""
    max_bytes: Quantity | None = _default("max_bytes")
    """The most bytes in the bodies of all kept requests and tasks; null is no limit."""
    component_limits: Annotated[
        Mapping[FullComponent, ComponentLimitSettings | None], Field(max_length=MAX_COMPONENT_LIMITS)
    ] = Field(default={}, examples=[{"orchestrator/team-ml": {"max_waiting": 500}}])
    """Component (`type/name`) → its own limits. Null removes the limits of a component; a component not named keeps its
    limits."""


def body_digest(spec: StrictModel) -> str:
    """Return a digest that is equal for equal specs. Default values and the order of keys do not count."""
    values = spec.model_dump(mode="json", exclude_defaults=True)
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def request_digest(spec: RequestSpec) -> str:
    """Return the digest of a request. The labels of its origin do not count, because a repeated run is another process."""
    labels = {key: value for key, value in spec.labels.items() if key not in ORIGIN_LABELS}
    return body_digest(spec if len(labels) == len(spec.labels) else spec.model_copy(update={"labels": labels}))
