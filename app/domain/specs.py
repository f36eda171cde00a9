"""What people may ask, and the first thing every ask meets: nothing malformed gets past here, so none of it reaches Lua.

Only what is wrong in itself is refused here; what is wrong beside other things (a `reserved` beyond its `limit`, a key the pool
lacks) is against the rules, and the ledger says so. A new setting is one more field with a line of description.
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
from app.domain.pool_settings import (
    DEFAULT_MODE,
    DEFAULT_PRIORITY,
    DEFAULT_PROFILE,
    DEFAULT_WEIGHT,
    AccountSettings,
    GroupSettings,
    PoolSettings,
)
from app.domain.queue_score import CLASS_COUNT, PRIORITY_COUNT
from app.domain.request_origin import ORIGIN_LABELS
from app.domain.workspace_limits import MAX_COMPONENT_LIMITS, WORKSPACE_LIMITS

MAX_RETRIES = 1_000_000
Profile = Literal["batch", "training", "service", "sensitive", "interactive"]
SharingMode = Literal["fair_share", "fifo"]

MEMORY_SCHEMA: JsonDict = {"pattern": f"^{MEMORY_PATTERN}$", "examples": ["16GiB", "512MB"]}
"""Told in the schema; checked with better words by the validator."""


class ResourceSettings(StrictModel):
    """The typed way to ask for resources: it wins over `resources`, and 0 takes a key out."""

    gpu_count: Quantity | None = None
    """Becomes `gpu`; 0 removes `gpu`."""
    cpu_count: Annotated[float, Field(ge=0, le=MAX_CPUS, allow_inf_nan=False)] | None = None
    """Becomes `mcpu`, thousandths of a CPU rounded up; 0 removes `mcpu`."""
    memory: Annotated[str, Field(max_length=64, json_schema_extra=MEMORY_SCHEMA)] | None = None
    """A number with KB, KiB, MB, MiB, GB … PiB; becomes `memory_mb` (10^6 bytes) rounded up; `0MB` removes it."""
    pool_resources: RequestedUnits = Field(default={})
    """Any other keys; wins over `resources`."""

    @field_validator("memory")
    @classmethod
    def _check_memory(cls, memory: str | None) -> str | None:
        if memory is not None:
            memory_mb(memory)
        return memory


class RequestSpec(StrictModel):
    """One ask for several resources at once: all of them or none."""

    component: Name
    """Who asks."""
    component_type: Name = "orchestrator"
    """What kind of component asks."""
    name: Title | None = Field(default=None, examples=["nightly training"])
    """The name of the request, for people: any visible text of at most 100 characters. It need not be unique."""
    pools: PoolNames | None = Field(default=None, examples=[["gpus"]])
    """The pools that may grant it; null is every pool with a policy for its component. Their order means nothing."""
    resources: RequestedUnits = Field(default={}, examples=[{"gpu": 2}])
    """Resource key → units. `step_run: 1` is always added; with nothing else asked, it is all that is."""
    settings: ResourceSettings = Field(default_factory=ResourceSettings)
    """Instead of or along with `resources`."""
    preemptible: bool = True
    """Whether it may borrow beyond its policy's reserved, and be stopped for the owner of what it borrowed."""
    preemption_class: Annotated[int, Field(ge=0, le=CLASS_COUNT - 1)] = 5
    """How dear it is to stop; 10 is never stopped and needs the permission `sensitive`."""
    checkpoint: Literal["none", "manual", "auto"] = "none"
    """Whether the work can save its state before it leaves."""
    checkpoint_minutes: Annotated[int, Field(ge=1, le=TEN_YEARS_S // 60)] | None = None
    """How long an `auto` checkpoint takes; it means nothing with the others."""
    walltime_s: Duration | None = None
    """A promise to be done this long after the grant; null promises nothing."""
    retries: Annotated[int, Field(ge=-1, le=MAX_RETRIES)] = 3
    """How often it may go back to the queue after preemption; -1 is without bound."""
    lease_s: Duration | None = 60
    """How long after the last heartbeat its units are taken back; null is never."""
    queue_ttl_s: Duration | None = 600
    """How long it stays queued with nobody asking for it; null is for ever."""
    labels: Labels = Field(default={})
    """For people, and searchable."""

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
        """What it asks of a pool, `resources` and `settings` in one."""
        return merge_resources(self.resources, self.settings)


class PoolSpec(StrictModel):
    """A new pool."""

    name: Name
    """What it is called; it stays."""
    description: Description = ""
    """For people."""
    capacity: Capacity = Field(examples=[{"gpu": 8}])
    """Resource key → units."""
    settings: PoolSettings = PoolSettings()
    """How it settles contention."""


class PoolUpdate(StrictModel):
    """A change of a pool: what is not given stays."""

    description: Description | None = None
    """For people; null leaves it."""
    capacity: Quantities = Field(default={}, examples=[{"gpu": 16, "tpu": 0}])
    """Resource key → units from now on; 0 removes the key, keys not given stay."""
    settings: PoolSettings = PoolSettings()
    """Those given are changed, the others stay; the defaults shown are those of a new pool."""


class GroupSpec(StrictModel):
    """A group of a pool, as it shall be."""

    parent: Name | None = None
    """The group it is part of; null is directly below the pool."""
    reserved: Quantities = Field(default={})
    """Resource key → units that are its own; keys not given 0."""
    limit: Quantities = Field(default={})
    """Resource key → the most it may use; keys not given are limited by the pool alone."""
    weight: Weight = DEFAULT_WEIGHT
    """Its part among its siblings."""
    mode: SharingMode = DEFAULT_MODE
    """In discipline `fair_share`: whether its children share what it has by their weights, or are served one after the other
    (`fifo`): the greatest weight first, then the eldest."""
    settings: GroupSettings = GroupSettings()
    """What it says for itself and all below it; the rest is inherited."""


class PolicySpec(StrictModel):
    """A component's policy in a pool, as it shall be."""

    priority: Annotated[int, Field(ge=0, le=PRIORITY_COUNT - 1)] = DEFAULT_PRIORITY
    """The higher, the sooner."""
    reserved: Quantities = Field(default={})
    """Resource key → units that are its own; keys not given 0."""
    limit: Quantities = Field(default={})
    """Resource key → the most it may use; keys not given are limited by the pool alone."""
    weight: Weight = DEFAULT_WEIGHT
    """Its part among its siblings."""
    group: Name | None = None
    """The group it is part of; null is directly below the pool."""
    profile: Profile = DEFAULT_PROFILE
    """What its work is, in discipline `classes`. `training`: dearer to stop, as a checkpoint counts three times; `interactive`:
    half as dear; `service`: only what it borrows is taken; `sensitive`: never stopped."""
    settings: AccountSettings = AccountSettings()
    """What it says for itself; the rest is inherited."""


class ComponentLimitSettings(StrictModel):
    """The limits of one component in a workspace, whatever tokens submit its requests; null is no limit."""

    max_waiting: Quantity | None = None
    """Limit of the requests that wait, delayed tasks included."""
    max_shapes: Quantity | None = None
    """Limit of the different shapes that wait."""


def _default(name: str) -> int:
    return WORKSPACE_LIMITS[name].default


class WorkspaceSettings(SettingsModel):
    """Settings of a whole workspace. Beyond a limit a new request, pool or policy is answered 429; null is no limit."""

    unmanaged: Literal["reject", "allow"] = "reject"
    """What becomes of a component without any policy: refused, or allocated at once and tied to no pool."""
    max_waiting: Quantity | None = _default("max_waiting")
    """Limit of the requests that wait, delayed tasks included."""
    max_shapes: Quantity | None = _default("max_shapes")
    """Limit of the different shapes that wait. Requests of one component, amounts, preemptible and `pools` have one shape."""
    max_running: Quantity | None = _default("max_running")
    """Limit of the allocations. Beyond it every new request is refused; waiters are still granted."""
    max_pools: Quantity | None = _default("max_pools")
    """Limit of the pools."""
    max_policies: Quantity | None = _default("max_policies")
    """Limit of the policies of all pools together."""
    max_ended: Quantity | None = _default("max_ended")
    """Limit of the ended requests that are kept. Beyond it the oldest are deleted, and nothing is refused."""
    max_bytes: Quantity | None = _default("max_bytes")
    """Limit of the bytes in the bodies of all requests and tasks that are kept."""
    component_limits: Annotated[
        Mapping[FullComponent, ComponentLimitSettings | None], Field(max_length=MAX_COMPONENT_LIMITS)
    ] = Field(default={}, examples=[{"orchestrator/team-ml": {"max_waiting": 500}}])
    """Limits of single components, by `type/name`. Null removes those of a component; a component not named keeps its own."""


def body_digest(spec: StrictModel) -> str:
    """Equal for asks that say the same, different for others: what goes without saying does not count, nor does order."""
    values = spec.model_dump(mode="json", exclude_defaults=True)
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def request_digest(spec: RequestSpec) -> str:
    """Return the digest of a request. The labels of its origin do not count: the next run of a key is another process."""
    labels = {key: value for key, value in spec.labels.items() if key not in ORIGIN_LABELS}
    return body_digest(spec if len(labels) == len(spec.labels) else spec.model_copy(update={"labels": labels}))
