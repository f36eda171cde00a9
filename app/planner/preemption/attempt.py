"""One ask laid before the rules: what is short for it, how its waiter stands to each policy, and who could be taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial

from app.domain.plan_steps import StillBorrowed, Stop, Victim
from app.domain.queue_score import CLASSES
from app.domain.snapshot import Allocation, Waiter
from app.planner.decisions import Verdict, Why, WhyNot
from app.planner.preemption.candidates import Candidate, Court, Takable
from app.planner.preemption.protection import HIGHEST
from app.planner.preemption.rules import Answers, Grounds, Standing, grounds, preference, verdict
from app.planner.projection import Deficits, Line


class Case:
    """One waiter's ask as the pool stands now."""

    def __init__(self, court: Court, waiter: Waiter, line: Line, deficits: Deficits) -> None:
        self.court = court
        self.waiter = waiter
        self.deficits = deficits
        self._tree = court.books.tree
        self._shares = court.books.shares
        self._policy = self._tree.policy(waiter.component)
        self.forbidden = Why.NOT_WITHIN
        self.takers_back = frozenset[str]()
        self.weighs, self.may_weigh = False, True
        self.path = self._tree.paths[waiter.component]
        self.needs = [(self.path.index(account), key, units) for (account, key), units in deficits.items()]
        """(How far up its path, key, units) of what is short."""
        self.beyond = court.books.beyond_reserved(waiter, line)
        """What of its own policy has to leave for it to lie within its reserved."""
        self._unused = [court.books.has_unused(waiter, account, line) for account in self.path[:-1]]
        self._standings: dict[tuple[int, int, int], Standing] = {}
        self._takable: dict[str, Takable] = {}
        self._seen: list[Candidate] = []
        self._waiting: Iterator[Candidate] | None = None

    def standing(self, component: str) -> Standing:
        """How the waiter stands to a policy."""
        meets = self._tree.meeting(self.waiter.component, component)
        level = self._tree.meeting(component, self.waiter.component) - 1
        return self._standing(meets, max(0, level), self._tree.policy(component).priority)

    def _standing(self, meets: int, level: int, priority: int) -> Standing:
        found = self._standings.get((meets, level, priority))
        if found is None:
            found = self._standings[meets, level, priority] = self._stand(meets, level, priority)
        return found

    def _stand(self, meets: int, level: int, priority: int) -> Standing:
        waiter, own = self.waiter, meets == 0
        lower, not_higher = self._ranks(priority)
        sides = (0,) if own else (0, meets - 1)
        return Standing(
            own=own,
            level=level,
            short=self._shares.mask(key for at, key, _ in self.needs if at >= meets),
            unused=all(self._unused[side] for side in sides),
            within=own and self.beyond is not None,
            lower=lower,
            not_higher=not_higher,
            fixed=own and not waiter.preemptible,
            free=self.court.by_class and waiter.preemption_class == HIGHEST,
            sensitive=waiter.preemption_class == HIGHEST,
            after=waiter.preempted_fence if self.court.by_class else None,
            chain=waiter.chain if waiter.chain in self.court.chains else None,
        )

    def _ranks(self, priority: int) -> tuple[int, int]:
        """Below which class holders of a policy rank lower, and do not rank higher."""
        mine, ours = self.waiter.preemption_class, self._policy.priority
        if self.court.by_class:
            return mine, mine + 1 if priority <= ours else mine
        if priority != ours:
            return (CLASSES, CLASSES) if priority < ours else (0, 0)
        return mine, mine + 1

    def could_suffice(self) -> bool:
        """Whether all it may take, its own policy's conditions left aside, covers what is short."""
        left = list(self.needs)
        for meets, total in self._totals():
            left = [(at, key, short - total(key) if at >= meets else short) for at, key, short in left]
            left = [need for need in left if need[2] > 0]
            if not left:
                return True
        return False

    def _totals(self) -> Iterator[tuple[int, Callable[[str], int]]]:
        """What it may take of its own policy, and of all those at once to whom it stands alike: how far up its path they meet,
        and how many units of a key."""
        yield 0, self.takable(self.waiter.component).total
        for meets in range(1, len(self.path)):
            for between, priority in self.court.benches(self.path[meets]):
                yield meets, partial(self._total, meets, between, priority)

    def _total(self, meets: int, between: int, priority: int, key: str) -> int:
        """What all of a bench bring, but for those whom it meets further down its path."""
        court, standing = self.court, self._standing(meets, between, priority)
        total = court.total(self.path[meets], (between, priority), standing, key)
        if meets > 1:
            return total - court.total(self.path[meets - 1], (between - 1, priority), standing, key)
        if between == 0 and priority == self._policy.priority:
            return total - court.takable(self.waiter.component, standing).total(key)
        return total

    def takable(self, component: str) -> Takable:
        """What it may take of a policy."""
        found = self._takable.get(component)
        if found is None:
            found = self._takable[component] = self.court.takable(component, self.standing(component))
        return found

    def candidates(self) -> Iterator[Candidate]:
        """Those it may take, in order, worked out as far as they are asked for."""
        if self._waiting is None:
            self._waiting = self.court.candidates(self.takable)
        at = 0
        while True:
            if at == len(self._seen):
                following = next(self._waiting, None)
                if following is None:
                    return
                self._seen.append(following)
            yield self._seen[at]
            at += 1

    def brings(self, holder: Allocation) -> list[int]:
        """What one brings to each need."""
        meets = self._tree.meeting(self.waiter.component, holder.component)
        return [holder.amounts.get(key, 0) if at >= meets else 0 for at, key, _ in self.needs]

    def moves(self, holder: Allocation) -> list[int]:
        """What one brings towards lying within its policy's reserved."""
        own = holder.component == self.waiter.component
        return [holder.amounts.get(key, 0) if own else 0 for key, _ in self.beyond or ()]

    def cost(self, holder: Allocation) -> Fraction:
        """What stopping it costs."""
        return self.court.costs.exact(holder)

    def allows(self, chosen: Sequence[Candidate]) -> bool:
        """Whether those among them who may be taken only on a condition may be."""
        if not any(grounds.within for _, _, grounds in chosen):
            return True
        beyond = [units for _, units in self.beyond or ()]
        for _, holder, _ in chosen:
            beyond = [units - moved for units, moved in zip(beyond, self.moves(holder), strict=True)]
        return all(units <= 0 for units in beyond)

    def may_have(self, stray: Allocation) -> bool:
        """Whether it may take one who is leaving already."""
        kind = self._shares.placed_back(stray)
        said = grounds(self.court.rules, self.standing(stray.component), kind)
        lasting = (ground for ground in said if ground.after is None or stray.fence > ground.after)
        return any(self.allows([((0, 0, 0), stray, ground)]) for ground in lasting)

    def stop(self, chosen: Sequence[Candidate]) -> Stop:
        """The step that has these stopped, and what of the pool it rests on."""
        unused = (account for _, holder, grounds in chosen if grounds.unused for account in self.shares_used(holder))
        borrowed = (each for _, holder, grounds in chosen if grounds.borrowed for each in self.still_borrowed(holder))
        within = any(grounds.within for _, _, grounds in chosen)
        return Stop(
            waiter=self.waiter.id,
            victims=tuple(Victim(holder.id, holder.fence, grounds.trigger) for _, holder, grounds in chosen),
            unused=tuple(dict.fromkeys(unused)),
            within=self.path[:1] if within else (),
            borrowed=tuple(borrowed),
        )

    def shares_used(self, holder: Allocation) -> tuple[str, str]:
        """The accounts in whose unused share it has to fit to reclaim from a holder."""
        return self.path[0], self.path[max(0, self._tree.meeting(self.waiter.component, holder.component) - 1)]

    def still_borrowed(self, holder: Allocation) -> Iterator[StillBorrowed]:
        """What the holder's being borrowed rests on: at each account that matters, the key on which it is so by most."""
        standing = self.standing(holder.component)
        path = self._tree.paths[holder.component]
        held = self._shares.mask(holder.amounts)
        any_key = bool(standing.short & held & ~self._shares.keys)
        for account in dict.fromkeys((path[0], path[standing.level])):
            over = self._shares.beyond(holder, account)
            matter = [(-units, key) for key, units in over.items() if any_key or standing.short & self._shares.mask([key])]
            if matter:
                units, key = min(matter)
                yield StillBorrowed(account, key, self.court.books.back(account, key) - units - 1)

    def verdicts(self) -> Iterator[Verdict]:
        """What the rules say about each allocation that is not leaving."""
        for component in self._tree.paths:
            for kind in self._shares.holdings(component).kinds:
                said = verdict(self.court.rules, self.standing(component), kind.traits)
                yield from (_verdict(holder, said) for holder in kind.members.values())


def _verdict(holder: Allocation, said: Answers | WhyNot) -> Verdict:
    if isinstance(said, WhyNot):
        return Verdict(holder.id, None, None, False, ((None, said),))
    allowed = [answer for _, answer in said if isinstance(answer, Grounds)]
    for best in sorted(allowed, key=preference):
        if best.after is None or holder.fence > best.after:
            return Verdict(holder.id, best.rule, best.trigger, best.within, ())
    refusals = ((rule.name, WhyNot.GRANTED_BEFORE if isinstance(answer, Grounds) else answer) for rule, answer in said)
    return Verdict(holder.id, None, None, False, tuple(refusals))
