"""What people may ask, and the first thing every ask meets: nothing malformed gets past here, so none of it reaches Lua.

Only what is wrong in itself is refused here; what is wrong beside other things (a `reserved` beyond its `limit`, a key the pool
lacks) is against the rules, and the ledger says so. A new setting is one more field with a line of description.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic.config import JsonDict

from app.domain.amounts import MAX_CPUS, MAX_KEYS, MEMORY_PATTERN, memory_mb, merge_resources
from app.domain.decimals import require_exact
from app.domain.names import PATTERN_TEXTS, LabelKey, Name, ResourceKey
from app.domain.queue_score import CLASSES, EXACT, PRIORITIES

TEN_YEARS_S = 10 * 365 * 24 * 3600
"""The longest duration: a time in milliseconds with it added is still an exact number."""

MAX_LABELS = 32
MAX_RETRIES = 1_000_000
MAX_WEIGHT = 10_000
MAX_THRESHOLD = 10
MAX_FIELD_ERRORS = 20
"""How many faults of one ask are told."""

Units = Annotated[int, Field(ge=1, le=EXACT)]
Quantity = Annotated[int, Field(ge=0, le=EXACT)]
Seconds = Annotated[int, Field(ge=0, le=TEN_YEARS_S)]
Duration = Annotated[int, Field(ge=1, le=TEN_YEARS_S)]
Weight = Annotated[int, Field(ge=1, le=MAX_WEIGHT)]
Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), AfterValidator(require_exact)]
Threshold = Annotated[float, Field(ge=0, le=MAX_THRESHOLD, allow_inf_nan=False), AfterValidator(require_exact)]
RequestedUnits = Annotated[Mapping[ResourceKey, Units], Field(max_length=MAX_KEYS)]
Capacity = Annotated[Mapping[ResourceKey, Units], Field(min_length=1, max_length=MAX_KEYS)]
Quantities = Annotated[Mapping[ResourceKey, Quantity], Field(max_length=MAX_KEYS)]
Labels = Annotated[Mapping[LabelKey, Annotated[str, Field(max_length=255)]], Field(max_length=MAX_LABELS)]
Description = Annotated[str, Field(max_length=1000)]
Profile = Literal["batch", "training", "service", "sensitive", "interactive"]
SharingMode = Literal["fair_share", "fifo"]
OverLimit = Literal["keep", "evict"]


class StrictModel(BaseModel):
    """Strict: no unknown fields, and no value made into another type."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True)


class SettingsModel(StrictModel):
    """Settings with their defaults; in a change, only those that were given count."""

    def explicit_values(self) -> dict[str, Any]:
        """The settings that were given, null ones included."""
        return self.model_dump(exclude_unset=True)


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
    resources: RequestedUnits = Field(default={}, examples=[{"gpu": 2}])
    """Resource key → units. `step_run: 1` is always added; with nothing else asked, it is all that is."""
    settings: ResourceSettings = Field(default_factory=ResourceSettings)
    """Instead of or along with `resources`."""
    preemptible: bool = True
    """Whether it may borrow beyond its policy's reserved, and be stopped for the owner of what it borrowed."""
    preemption_class: Annotated[int, Field(ge=0, le=CLASSES - 1)] = 5
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

    def amounts(self) -> dict[str, int]:
        """What it asks of a pool, `resources` and `settings` in one."""
        return merge_resources(self.resources, self.settings)


class PoolSettings(SettingsModel):
    """How a pool settles contention."""

    discipline: Literal["reserved", "classes", "fair_share"] = "reserved"
    """Who goes first: by the policy's priority (`reserved`), by the preemption class (`classes`), or who lacks most of its
    fair share (`fair_share`)."""
    order: Literal["share_first", "priority_first"] = "share_first"
    """Whether those within their unused share go before a higher rank, or after it."""
    queueing: Literal["best_effort", "strict"] = "best_effort"
    """Whether others may pass the first one that is blocked by capacity."""
    patience_s: Seconds | None = 300
    """How long a waiter blocked by capacity is passed before capacity is held for it; null is for ever."""
    grace_s: Seconds = 30
    """How long who has to leave is given between being told to terminate and being forced; 0: it is stopped at once, and not
    asked to save its work either."""
    checkpoint_timeout_s: Seconds = 600
    """How long who has to leave may take to save its work, if it can; half as long again if it is seen to be at it."""
    max_deferral_s: Seconds = 300
    """How long who has to leave may put that off, in all."""
    requeue_failed_checkpoint: bool = True
    """Whether who had to leave and did not save its work, or did not leave in time, may go back to the queue."""
    near_completion_s: Seconds | None = None
    """Who has so little left of its walltime is not stopped; null is as the discipline has it: 300 in `classes`, else 0."""
    min_runtime_s: Seconds = 0
    """Who has not yet run for so long is not stopped."""
    max_victims: Quantity | None = None
    """How many may be stopped for one waiter; 0 is without bound, null as the discipline has it: 3 in `classes`, else 0."""
    max_preemptions_per_minute: Quantity | None = None
    """How many may be stopped in a minute; 0 is nobody, ever, null without bound."""
    backoff_s: Seconds | None = None
    """How long after somebody was stopped nobody else is; null is as the discipline has it: 5 in `fair_share`, else 0."""
    cost_key: ResourceKey = "gpu"
    """In `classes`: the key whose units, at least 1, tell what it costs to stop somebody."""
    value_per_class: Units | None = None
    """In `classes`: what it may cost at most, in minutes for each class of the waiter and each unit it asks; null: no bound."""
    over_limit: OverLimit | None = None
    """What becomes of what is beyond a lowered limit: it stays (`keep`), or as much as is beyond, the newest first, is
    stopped (`evict`); null is as the discipline has it: `evict` in `fair_share`, else `keep`."""
    over_limit_after_s: Seconds = 30
    """How long who is beyond its limit is left alone before anything of it is stopped."""
    fair_share_tolerance: Ratio = 0.8
    """In `fair_share`: who uses less than this part of its fair share, and wants more, is below it."""
    starvation_timeout_s: Seconds = 30
    """In `fair_share`: who is below its fair share for longer is starving, and may have preemptible work stopped."""
    aggressive_starvation: bool = False
    """In `fair_share`: whether who goes on starving may in the end have more stopped than that."""
    aggressive_starvation_timeout_s: Seconds = 120
    """In `fair_share`: how long it has to be below its fair share for that."""
    allow_aggressive_preemption: bool = True
    """In `fair_share`: whether that may be stopped here for who is aggressively starving."""
    aggressive_preemption_threshold: Threshold = 0.2
    """In `fair_share`: the part of its fair share up to which nothing of anybody is stopped."""
    preemption_threshold: Threshold = 1
    """In `fair_share`: the part of its fair share beyond which what somebody runs is preemptible."""
    non_preemptible_usage_threshold: Quantities = Field(default={}, examples=[{"gpu": 1}])
    """In `fair_share`: resource key → units of everybody that are never stopped; keys not given do not count, none given
    protects nothing."""


class AccountSettings(StrictModel):
    """What a group or a policy says for itself of its pool's settings; what it does not say, or is null, is inherited.

    A group overrides what it inherits. A policy does, too, but of `fair_share_tolerance`, both timeouts,
    `aggressive_starvation` and `non_preemptible_usage_threshold` that counts which is the more patient.
    """

    over_limit: OverLimit | None = None
    """Whether what is beyond its limit stays (`keep`) or is stopped, the newest first (`evict`); null is inherited."""
    over_limit_after_s: Seconds | None = None
    """How long it is left alone beyond its limit before anything of it is stopped; null is inherited."""
    fair_share_tolerance: Ratio | None = None
    """With less than this part of its fair share it is below it; null is inherited, of a policy's the lower counts."""
    starvation_timeout_s: Seconds | None = None
    """Below its fair share for longer it is starving; null is inherited, of a policy's the longer counts."""
    aggressive_starvation: bool | None = None
    """Whether it may starve aggressively; null is inherited, a policy does if it and what it inherits say so."""
    aggressive_starvation_timeout_s: Seconds | None = None
    """How long it has to be below its fair share for that; null is inherited, of a policy's the longer counts."""
    allow_aggressive_preemption: bool | None = None
    """Whether it gives way to who is aggressively starving as well; null is inherited."""
    aggressive_preemption_threshold: Threshold | None = None
    """The part of its fair share up to which nothing of it is stopped; null is inherited."""
    preemption_threshold: Threshold | None = None
    """The part of its fair share beyond which what it runs is preemptible; null is inherited."""
    non_preemptible_usage_threshold: Quantities | None = Field(default=None, examples=[{"gpu": 1}])
    """Resource key → units of it that are never stopped; null or empty is inherited, of a policy's the lower of each key."""

    @field_validator("non_preemptible_usage_threshold")
    @classmethod
    def _empty_is_null(cls, threshold: Mapping[str, int] | None) -> Mapping[str, int] | None:
        return threshold or None


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
    weight: Weight = 1
    """Its part among its siblings."""
    mode: SharingMode = "fair_share"
    """In discipline `fair_share`: whether its children share what it has by their weights, or are served one after the other
    (`fifo`): the greatest weight first, then the eldest."""
    settings: AccountSettings = AccountSettings()
    """What it says for itself and all below it; the rest is inherited."""


class PolicySpec(StrictModel):
    """A component's policy in a pool, as it shall be."""

    priority: Annotated[int, Field(ge=0, le=PRIORITIES - 1)] = 0
    """The higher, the sooner."""
    reserved: Quantities = Field(default={})
    """Resource key → units that are its own; keys not given 0."""
    limit: Quantities = Field(default={})
    """Resource key → the most it may use; keys not given are limited by the pool alone."""
    weight: Weight = 1
    """Its part among its siblings."""
    group: Name | None = None
    """The group it is part of; null is directly below the pool."""
    profile: Profile = "batch"
    """What its work is, in discipline `classes`. `training`: dearer to stop, as a checkpoint counts three times; `interactive`:
    half as dear; `service`: only what it borrows is taken; `sensitive`: never stopped."""
    settings: AccountSettings = AccountSettings()
    """What it says for itself; the rest is inherited."""


class WorkspaceSettings(SettingsModel):
    """Settings of a whole workspace."""

    unmanaged: Literal["reject", "allow"] = "reject"
    """What becomes of a component without any policy: refused, or allocated at once and tied to no pool."""


def body_digest(ask: StrictModel) -> str:
    """Equal for asks that say the same, different for others: what goes without saying does not count, nor does order."""
    said = ask.model_dump(mode="json", exclude_defaults=True)
    return hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def field_errors(error: ValidationError) -> list[tuple[str, str]]:
    """Each fault as (field, reason) for people, the field dotted: `("resources.gpu", "must be a whole number")`."""
    faults = error.errors(include_url=False, include_input=False)
    return [(_field_name(fault["loc"]), _error_text(fault)) for fault in faults[:MAX_FIELD_ERRORS]]


_ERROR_TEXTS = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be an object",
    "enum": "must be {expected}",
    "extra_forbidden": "is not a field here",
    "finite_number": "must be a finite number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "int_type": "must be a whole number",
    "json_invalid": "is no JSON: {error}",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list",
    "literal_error": "must be {expected}",
    "missing": "is required",
    "model_type": "must be an object",
    "string_too_short": "must have at least {min_length} character",
    "string_too_long": "must have at most {max_length} characters",
    "string_type": "must be a text",
    "string_unicode": "must be valid Unicode",
    "too_long": "must have at most {max_length} entries",
    "too_short": "must have at least {min_length} entry",
    "value_error": "{error}",
}


def _field_name(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part)[:64] for part in location if part != "[key]")


def _error_text(fault: Mapping[str, Any]) -> str:
    context = fault.get("ctx", {})
    if fault["type"] == "string_pattern_mismatch":
        return PATTERN_TEXTS.get(context["pattern"], f"must match {context['pattern']}")
    reason = _ERROR_TEXTS.get(fault["type"])
    bounds = {name: int(of) if isinstance(of, float) and of.is_integer() else of for name, of in context.items()}
    return str(fault["msg"]) if reason is None else reason.format(**bounds)
