"""The rules of preemption, written independently of the planner: slow, one allocation at a time, without a memory.

Only the disciplines `reserved` and `classes`; `fairly` has the third. The cost of an allocation and the choice of the better
victim are not judged here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tests.properties.oracle import NO_OWNER, Hold, Model, Request
from tests.properties.snapshot import Snapshot


@dataclass
class Law:
    """The rules of one pool at one moment: the model, and further facts of requests and policies."""

    model: Model
    snapshot: Snapshot
    pool: str

    def __post_init__(self) -> None:
        self.place = self.model.pools[self.pool]
        self.settings = self.place.settings
        self.by_class = self.settings["discipline"] == "classes"
        self.shares = self.place.shared()

    def _of(self, request: Request, field: str) -> str:
        return str(self.snapshot.get("request", request.id).get(field) or "")

    def _profile(self, request: Request) -> str:
        return str(self.snapshot.get("policy", self.pool, request.component).get("profile") or "batch") if self.by_class else ""

    def _number(self, setting: str, of_classes: int) -> int:
        return int(self.settings.get(setting) or (of_classes if self.by_class else 0))

    # stacks

    def borrowed(self, allocation: Request, account: str) -> set[str]:
        """Return the share keys on which an allocation lies at least partly beyond the reserved units of an account."""
        keys, reserved = set[str](), self.place.accounts[account].reserved
        for key in self.shares & allocation.amounts.keys():
            end = 0
            for other in self._stack(account):
                end += other.amounts.get(key, 0)
                if other is allocation:
                    break
            keys |= {key} if end > reserved.get(key, 0) else set()
        return keys

    def _stack(self, account: str) -> list[Request]:
        """Return the allocations in order: fixed work, in a group then the work in share at its own policy, then by grant."""
        running = [allocation for allocation in self.model.holders(self.pool) if allocation.status == "allocated"]
        inside = [allocation for allocation in running if account in self.place.path(allocation.component)]
        group = account.startswith("group:")

        def place(allocation: Request) -> tuple[bool, bool, int]:
            return (
                allocation.preemptible,
                group and not self._in_share(allocation, f"policy:{allocation.component}"),
                allocation.fence,
            )

        return sorted(inside, key=place)

    def _in_share(self, allocation: Request, account: str) -> bool:
        return bool(self.shares & allocation.amounts.keys()) and not self.borrowed(allocation, account)

    def _is_borrowed(self, waiter: Request, allocation: Request, short: set[str]) -> bool:
        """True if it holds a short share key that is borrowed, or a short key that is no share key while it is not in share.

        Both are judged at its policy and at the child of the lowest common ancestor.
        """

        def is_borrowed_at(account: str) -> bool:
            other = short & allocation.amounts.keys() - self.shares
            return bool(self.borrowed(allocation, account) & short) or (bool(other) and not self._in_share(allocation, account))

        return all(is_borrowed_at(account) for account in self._sides(allocation, waiter))

    def _sides(self, request: Request, other: Request) -> set[str]:
        """Return the policy of a request, and the account of its path just below the first one in common with the other."""
        path, other_path = self.place.path(request.component), self.place.path(other.component)
        below = [account for account in path if account not in other_path]
        return {path[0], below[-1] if below else path[0]}

    # the waiter

    def short(self, waiter: Request, allocation: Request) -> set[str]:
        """Return the keys that the waiter will lack at an account above both."""
        shared = self.model.shared_path(self.pool, waiter.component, allocation.component)
        return {key for account, key in self.model.will_lack(self.pool, waiter) if account in shared}

    def unused(self, waiter: Request, accounts: set[str]) -> bool:
        """True if it fits into the unused share of the accounts; units that holds of others keep count as used."""
        keys = self.shares & waiter.amounts.keys()
        return bool(keys) and all(
            waiter.amounts[key] <= self._left(waiter, account, key) for account in accounts for key in keys
        )

    def _left(self, waiter: Request, account: str, key: str) -> int:
        used = self.model.used(self.pool, fixed=not waiter.preemptible)[account][key]
        own = self.model.hold(self.pool, waiter)
        for hold in self.model.clearings[self.pool].values():
            owner = self.model.requests[hold.owner]
            if hold is own or account not in self.place.path(owner.component):
                continue
            if waiter.preemptible:
                used += self.model.hold_units(self.pool, hold)[account, key]
            elif not owner.preemptible:
                used += owner.amounts.get(key, 0)
        return self.place.accounts[account].reserved.get(key, 0) - used

    def within(self, waiter: Request, victims: Sequence[Request]) -> bool:
        """True if the waiter lies entirely within its policy's reserved after these and all present victims have left, and the
        owners of other holds have the units that are kept for them.
        """
        policy, keys = f"policy:{waiter.component}", self.shares & waiter.amounts.keys()
        owners_by_victim = self.model.leaving[self.pool]
        going = [self.model.requests[id_] for id_, owner in owners_by_victim.items() if owner != NO_OWNER]
        leaving_requests = [request for request in (*going, *victims) if request.component == waiter.component]
        owners = [self.model.requests[id_] for id_ in self.model.clearings[self.pool] if id_ != waiter.id]
        coming = [request for request in owners if request.component == waiter.component]
        used = self.model.used(self.pool)[policy]
        return bool(keys) and all(
            used[key]
            - sum(request.amounts.get(key, 0) for request in leaving_requests)
            + sum(request.amounts.get(key, 0) for request in (waiter, *coming))
            <= self.place.accounts[policy].reserved.get(key, 0)
            for key in keys
        )

    # the rules

    def protected(self, waiter: Request, allocation: Request) -> str:
        """Return the reason why no waiter may take the units of this allocation, or ""."""
        ran_ms = self.model.now_ms - allocation.granted_ms
        left_ms = allocation.walltime_s * 1000 - ran_ms if allocation.walltime_s else -1
        chain = self._of(waiter, "preemption_group")
        reasons = {
            "is not running": allocation.status != "allocated",
            "is not preemptible": not allocation.preemptible,
            "is of class 10": allocation.rank == 10,
            "cannot save its work": self.by_class and allocation.rank >= 7 and self._of(allocation, "checkpoint") == "none",
            "is sensitive": self._profile(allocation) == "sensitive",
            "is nearly done": 0 <= left_ms < self._number("near_completion_s", 300) * 1000,
            "has just begun": ran_ms < self._number("min_runtime_s", 0) * 1000,
            "is of its own chain": bool(chain) and chain == self._of(allocation, "preemption_group"),
        }
        return next((reason for reason, holds in reasons.items() if holds), "")

    def triggers(self, waiter: Request, allocation: Request, victims: Sequence[Request] | None = None) -> set[str]:
        """Return the triggers by which a waiter may preempt; conditions on the whole set are judged only if the set is
        given."""
        if self.protected(waiter, allocation):
            return set()
        short, first = self.short(waiter, allocation), self.settings["order"] == "priority_first"
        mine, allocation_rank = self._rank(waiter), self._rank(allocation)
        borrowed, service = self._is_borrowed(waiter, allocation, short), self._profile(allocation) == "service"
        free = borrowed or (first and not service)
        allowed = set()
        if waiter.component != allocation.component:
            if borrowed and self.unused(waiter, self._sides(waiter, allocation)) and (not first or allocation_rank <= mine):
                allowed.add("reclaim")
            if (
                mine > allocation_rank
                and self._later(waiter, allocation)
                and (free or (self.by_class and waiter.rank == 10 and not service))
            ):
                allowed.add("priority")
        elif self._later(waiter, allocation):
            whole = victims is not None and not service and self.within(waiter, victims)
            if mine > allocation_rank and (free or whole):
                allowed.add("priority")
            fixed = not waiter.preemptible and self.unused(waiter, {f"policy:{waiter.component}"})
            if fixed and allocation_rank <= mine and (borrowed or not service):
                allowed.add("reclaim")
        if not short & allocation.amounts.keys():
            return set()
        return {"sensitive"} if allowed and waiter.rank == 10 else allowed

    def _rank(self, request: Request) -> tuple[int, ...]:
        policy = self.place.policy(request.component)
        assert policy
        return (request.rank,) if self.by_class else (policy.priority, request.rank)

    def _later(self, waiter: Request, allocation: Request) -> bool:
        """True if the time of the grant allows it: in `classes`, a preempted waiter takes by rank only from later grants."""
        since = self._of(waiter, "preempted_fence")
        return not self.by_class or not since or allocation.fence > int(since)

    # decisions

    def faults(self, waiter: Request, reasons: dict[str, str]) -> Iterator[str]:
        """Yield the faults of a decision that preempted these for the waiter, each for its reason."""
        model, victims = self.model, [self.model.requests[id_] for id_ in reasons]
        most = self._number("max_victims", 3)
        if most and len(victims) > most:
            yield f"{sorted(reasons)} are more than {most}"
        if self.stands_behind(waiter, doubt=False):
            yield f"{waiter.id} asks behind one that lacks capacity"
        if model.blocked(self.pool, waiter) == "" and not model.cleared_away(self.pool, waiter):
            yield f"{waiter.id} lacks nothing"
        for victim in victims:
            allowed = self.triggers(waiter, victim, victims)
            if reasons[victim.id] not in allowed:
                why = self.protected(waiter, victim) or f"{sorted(allowed)}, short {sorted(self.short(waiter, victim))}"
                yield f"{waiter.id} may not take from {victim.id} by {reasons[victim.id]}: {why}"
            elif reasons[victim.id] == "priority" and "reclaim" in allowed:
                yield f"{waiter.id} takes from {victim.id} by priority, and could reclaim"

    def overlooked(self) -> Iterator[str]:
        """Yield waiters that could fit by preempting every allowed allocation: without bounds on decisions, a pass leaves
        none."""
        if self.model.is_fair(self.pool):
            return
        bounds = ("max_preemptions_per_minute", "value_per_class", "max_victims")
        if any(self.settings.get(bound) for bound in bounds) or self.by_class or self.settings.get("backoff_s", "0") != "0":
            return
        owners = {owner for holds in self.model.clearings.values() for owner in holds}
        if owners and self.settings["queueing"] == "strict":  # until they are granted, no waiter that lacks capacity preempts
            return
        for waiter in self.model.queue(self.pool):
            if waiter.id in owners or self.stands_behind(waiter) or not list(self.model.will_lack(self.pool, waiter)):
                continue
            if self._used_up(waiter):
                continue
            victims = [allocation for allocation in self.model.holders(self.pool) if self.triggers(waiter, allocation)]
            if victims and enough(self.model, self.pool, waiter, victims):
                ids = [allocation.id for allocation in victims]
                yield f"{waiter.id} may take from {ids} in {self.pool}, and none was preempted"

    def _used_up(self, waiter: Request) -> bool:
        """True if the fixed share of the request is used up, with other owners of holds."""
        keys = [] if waiter.preemptible else waiter.amounts.keys() & self.place.capacity.keys()
        policy = f"policy:{waiter.component}"
        return any(waiter.amounts[key] > self._left(waiter, policy, key) for key in keys)

    def stands_behind(self, waiter: Request, *, doubt: bool = True) -> bool:
        """True if the queue is strict and a waiter before this one is blocked by capacity."""
        if self.settings["queueing"] != "strict" or self.model.hold(self.pool, waiter):
            return False
        for other in self.model.queue(self.pool):
            if other is waiter:
                return False
            if self.model.by_capacity(self.pool, other, doubt=doubt):
                return True
        return False


def fitting(model: Model, pool: str, waiter: Request, victims: list[Request]) -> bool:
    """True if the waiter will fit when these victims have left as well, and would not without any one of them."""
    candidates = [other for other in victims if other.status == "allocated" and other.preemptible]
    if len(candidates) < len(victims) or not _fits(model, pool, waiter, candidates):
        return False
    return not any(_fits(model, pool, waiter, [rest for rest in candidates if rest is not other]) for other in candidates)


def enough(model: Model, pool: str, waiter: Request, running: list[Request]) -> list[Request]:
    """Return the shortest prefix of the running allocations that lets the waiter fit; [] if there is none."""
    victims: list[Request] = []
    for other in running:
        if _fits(model, pool, waiter, victims):
            break
        victims += [other] if other.status == "allocated" and other.preemptible else []
    if not _fits(model, pool, waiter, victims):
        return []
    for other in list(reversed(victims)):
        fewer = [rest for rest in victims if rest is not other]
        victims = fewer if _fits(model, pool, waiter, fewer) else victims
    return victims


def _fits(model: Model, pool: str, waiter: Request, victims: list[Request]) -> bool:
    holds = dict(model.clearings[pool])
    last = max([0, *(hold.number for hold in holds.values())])
    holds.setdefault(waiter.id, Hold(waiter.id, last + 1, model.brings(pool, waiter, replace(waiter, amounts={}))))
    leaving = {**model.leaving[pool], **{other.id: waiter.id for other in victims}}
    then = replace(model, clearings={**model.clearings, pool: holds}, leaving={**model.leaving, pool: leaving})
    return not list(then.will_lack(pool, waiter))
