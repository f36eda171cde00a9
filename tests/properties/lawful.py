"""Who may take from whom (SPEC 7), written from the words: slow, one allocation at a time, and without a memory.

Only the disciplines `reserved` and `classes`; `fairly` has the third. What an allocation costs, and who is the better victim,
is not judged here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tests.properties.oracle import NOBODY, Hold, Model, Request
from tests.properties.snapshot import Snapshot


@dataclass
class Law:
    """The rules of one pool at one moment: the model, and what is told of requests and policies besides."""

    model: Model
    seen: Snapshot
    pool: str

    def __post_init__(self) -> None:
        self.place = self.model.pools[self.pool]
        self.settings = self.place.settings
        self.by_class = self.settings["discipline"] == "classes"
        self.shares = self.place.shared()

    def _of(self, one: Request, field: str) -> str:
        return str(self.seen.get("request", one.id).get(field) or "")

    def _profile(self, one: Request) -> str:
        return str(self.seen.get("policy", self.pool, one.component).get("profile") or "batch") if self.by_class else ""

    def _number(self, setting: str, of_classes: int) -> int:
        return int(self.settings.get(setting) or (of_classes if self.by_class else 0))

    # stacks

    def borrowed(self, one: Request, account: str) -> set[str]:
        """Share keys on which one who runs lies at least partly beyond what an account has reserved."""
        keys, reserved = set[str](), self.place.accounts[account].reserved
        for key in self.shares & one.amounts.keys():
            end = 0
            for other in self._stack(account):
                end += other.amounts.get(key, 0)
                if other is one:
                    break
            keys |= {key} if end > reserved.get(key, 0) else set()
        return keys

    def _stack(self, account: str) -> list[Request]:
        """Fixed work first, in a group then what is in share at its own policy, then in order of grant."""
        running = [one for one in self.model.holders(self.pool) if one.status == "allocated"]
        inside = [one for one in running if account in self.place.path(one.component)]
        group = account.startswith("group:")

        def place(one: Request) -> tuple[bool, bool, int]:
            return (one.preemptible, group and not self._in_share(one, f"policy:{one.component}"), one.fence)

        return sorted(inside, key=place)

    def _in_share(self, one: Request, account: str) -> bool:
        return bool(self.shares & one.amounts.keys()) and not self.borrowed(one, account)

    def _is_borrowed(self, waiter: Request, one: Request, short: set[str]) -> bool:
        """On a short share key it holds; or it holds a short key that is none, and is not in share: at its policy, and at the
        child of the lowest account that both are below."""

        def at(account: str) -> bool:
            other = short & one.amounts.keys() - self.shares
            return bool(self.borrowed(one, account) & short) or (bool(other) and not self._in_share(one, account))

        return all(at(account) for account in self._sides(one, waiter))

    def _sides(self, one: Request, other: Request) -> set[str]:
        """The policy of one, and the account on its path just below where it meets the path of the other."""
        path, others = self.place.path(one.component), self.place.path(other.component)
        below = [account for account in path if account not in others]
        return {path[0], below[-1] if below else path[0]}

    # the waiter

    def short(self, waiter: Request, one: Request) -> set[str]:
        """Keys that the waiter will lack at an account which both are below."""
        shared = self.model.shared_path(self.pool, waiter.component, one.component)
        return {key for account, key in self.model.will_lack(self.pool, waiter) if account in shared}

    def unused(self, waiter: Request, accounts: set[str]) -> bool:
        """Whether it fits into the unused share of accounts: what holds with victims of others keep counts as used."""
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
                used += self.model.kept(self.pool, hold)[account, key]
            elif not owner.preemptible:
                used += owner.amounts.get(key, 0)
        return self.place.accounts[account].reserved.get(key, 0) - used

    def within(self, waiter: Request, victims: Sequence[Request]) -> bool:
        """Whether it lies entirely within its policy's reserved when these have left, and all who are leaving for somebody; and
        the owners of other holds have what is kept for them."""
        policy, keys = f"policy:{waiter.component}", self.shares & waiter.amounts.keys()
        told = self.model.leaving[self.pool]
        going = [self.model.requests[id_] for id_, whom in told.items() if whom != NOBODY]
        gone = [one for one in (*going, *victims) if one.component == waiter.component]
        owners = [self.model.requests[id_] for id_ in self.model.clearings[self.pool] if id_ != waiter.id]
        coming = [one for one in owners if one.component == waiter.component]
        used = self.model.used(self.pool)[policy]
        return bool(keys) and all(
            used[key] - sum(one.amounts.get(key, 0) for one in gone) + sum(one.amounts.get(key, 0) for one in (waiter, *coming))
            <= self.place.accounts[policy].reserved.get(key, 0)
            for key in keys
        )

    # the rules

    def protected(self, waiter: Request, one: Request) -> str:
        """What keeps somebody from being taken by anybody."""
        ran_ms = self.model.now_ms - one.granted_ms
        left_ms = one.walltime_s * 1000 - ran_ms if one.walltime_s else -1
        chain = self._of(waiter, "preemption_group")
        reasons = {
            "is not running": one.status != "allocated",
            "is not preemptible": not one.preemptible,
            "is of class 10": one.rank == 10,
            "cannot save its work": self.by_class and one.rank >= 7 and self._of(one, "checkpoint") == "none",
            "is sensitive": self._profile(one) == "sensitive",
            "is nearly done": 0 <= left_ms < self._number("near_completion_s", 300) * 1000,
            "has just begun": ran_ms < self._number("min_runtime_s", 0) * 1000,
            "is of its own chain": bool(chain) and chain == self._of(one, "preemption_group"),
        }
        return next((reason for reason, holds in reasons.items() if holds), "")

    def triggers(self, waiter: Request, one: Request, victims: Sequence[Request] | None = None) -> set[str]:
        """By which triggers a waiter may take from somebody; what is judged on the whole set only if that is given."""
        if self.protected(waiter, one):
            return set()
        short, first = self.short(waiter, one), self.settings["order"] == "priority_first"
        mine, others = self._rank(waiter), self._rank(one)
        borrowed, service = self._is_borrowed(waiter, one, short), self._profile(one) == "service"
        free = borrowed or (first and not service)
        allowed = set()
        if waiter.component != one.component:
            if borrowed and self.unused(waiter, self._sides(waiter, one)) and (not first or others <= mine):
                allowed.add("reclaim")
            if mine > others and self._later(waiter, one) and (free or (self.by_class and waiter.rank == 10 and not service)):
                allowed.add("priority")
        elif self._later(waiter, one):
            whole = victims is not None and not service and self.within(waiter, victims)
            if mine > others and (free or whole):
                allowed.add("priority")
            fixed = not waiter.preemptible and self.unused(waiter, {f"policy:{waiter.component}"})
            if fixed and others <= mine and (borrowed or not service):
                allowed.add("reclaim")
        if not short & one.amounts.keys():
            return set()
        return {"sensitive"} if allowed and waiter.rank == 10 else allowed

    def _rank(self, one: Request) -> tuple[int, ...]:
        policy = self.place.policy(one.component)
        assert policy
        return (one.rank,) if self.by_class else (policy.priority, one.rank)

    def _later(self, waiter: Request, one: Request) -> bool:
        """In `classes` who was preempted takes by rank only from what was granted since."""
        since = self._of(waiter, "preempted_fence")
        return not self.by_class or not since or one.fence > int(since)

    # decisions

    def faults(self, waiter: Request, reasons: dict[str, str]) -> Iterator[str]:
        """What is against the rules in a decision: for the waiter, each of these was told to leave for its reason."""
        model, victims = self.model, [self.model.requests[id_] for id_ in reasons]
        most = self._number("max_victims", 3)
        if most and len(victims) > most:
            yield f"{sorted(reasons)} are more than {most}"
        if self.stands_behind(waiter, doubt=False):
            yield f"{waiter.id} asks behind one that lacks capacity"
        if model.blocked(self.pool, waiter) == "" and not model.cleared_away(self.pool, waiter):
            yield f"{waiter.id} lacks nothing"
        for one in victims:
            allowed = self.triggers(waiter, one, victims)
            if reasons[one.id] not in allowed:
                why = self.protected(waiter, one) or f"{sorted(allowed)}, short {sorted(self.short(waiter, one))}"
                yield f"{waiter.id} may not take from {one.id} by {reasons[one.id]}: {why}"
            elif reasons[one.id] == "priority" and "reclaim" in allowed:
                yield f"{waiter.id} takes from {one.id} by priority, and could reclaim"

    def overlooked(self) -> Iterator[str]:
        """Who may ask, and would fit if all left who may be taken from it by themselves: where nothing bounds decisions, a pass
        leaves nobody like this."""
        if self.model.is_fair(self.pool):
            return
        bounds = ("max_preemptions_per_minute", "value_per_class", "max_victims")
        if any(self.settings.get(bound) for bound in bounds) or self.by_class or self.settings.get("backoff_s", "0") != "0":
            return
        owners = {owner for holds in self.model.clearings.values() for owner in holds}
        if owners and self.settings["queueing"] == "strict":  # until they are granted, nobody who lacks capacity is asked
            return
        for waiter in self.model.queue(self.pool):
            if waiter.id in owners or self.stands_behind(waiter) or not list(self.model.will_lack(self.pool, waiter)):
                continue
            if self._used_up(waiter):
                continue
            victims = [one for one in self.model.holders(self.pool) if self.triggers(waiter, one)]
            if victims and enough(self.model, self.pool, waiter, victims):
                yield f"{waiter.id} may take from {[one.id for one in victims]} in {self.pool}, and nobody was told to leave"

    def _used_up(self, waiter: Request) -> bool:
        """Whether its fixed share is, other owners of holds included."""
        keys = [] if waiter.preemptible else waiter.amounts.keys() & self.place.capacity.keys()
        policy = f"policy:{waiter.component}"
        return any(waiter.amounts[key] > self._left(waiter, policy, key) for key in keys)

    def stands_behind(self, waiter: Request, *, doubt: bool = True) -> bool:
        """Whether in a strict queue somebody before it is blocked by capacity."""
        if self.settings["queueing"] != "strict" or self.model.hold(self.pool, waiter):
            return False
        for other in self.model.queue(self.pool):
            if other is waiter:
                return False
            if self.model.by_capacity(self.pool, other, doubt=doubt):
                return True
        return False


def fitting(model: Model, pool: str, one: Request, victims: list[Request]) -> bool:
    """Whether somebody will fit when these have left as well, and would not without any of them."""
    told = [other for other in victims if other.status == "allocated" and other.preemptible]
    if len(told) < len(victims) or not _fits(model, pool, one, told):
        return False
    return not any(_fits(model, pool, one, [rest for rest in told if rest is not other]) for other in told)


def enough(model: Model, pool: str, one: Request, running: list[Request]) -> list[Request]:
    """Of those who run as many, taken in this order, as it takes for somebody to fit; nobody if that is impossible."""
    victims: list[Request] = []
    for other in running:
        if _fits(model, pool, one, victims):
            break
        victims += [other] if other.status == "allocated" and other.preemptible else []
    if not _fits(model, pool, one, victims):
        return []
    for other in list(reversed(victims)):
        fewer = [rest for rest in victims if rest is not other]
        victims = fewer if _fits(model, pool, one, fewer) else victims
    return victims


def _fits(model: Model, pool: str, one: Request, victims: list[Request]) -> bool:
    holds = dict(model.clearings[pool])
    last = max([0, *(hold.number for hold in holds.values())])
    holds.setdefault(one.id, Hold(one.id, last + 1, model.brings(pool, one, replace(one, amounts={}))))
    leaving = {**model.leaving[pool], **{other.id: one.id for other in victims}}
    then = replace(model, clearings={**model.clearings, pool: holds}, leaving={**model.leaving, pool: leaving})
    return not list(then.will_lack(pool, one))
