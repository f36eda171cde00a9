"""Who may take from whom by fair shares: who has been short of its part for too long, from who has more than its own.

A waiter may take if its policy, or a group above it, starves, and would still be below its fair share if all who have holds
had what those bring. What it may take is judged in the state of the pool when all who are leaving have left (`Parts`):

1. of another policy that does not starve itself
2. what is `preemptible` there, if it lies wholly beyond the policy's fair share on a short key
3. for who starves aggressively also what is `aggressively_preemptible`, if it lies partly beyond it, and if the waiter then
   lies within its own fair share
4. no set after which somebody of the victims' side would be below its fair share and could take straight back

Fair shares move with what runs, which is why 4 is judged by the division of the pool after the exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from typing import Any, TypeAlias

from app.domain.plan_steps import Trigger
from app.domain.snapshot import Allocation, Waiter
from app.planner.account_tree import POLICY
from app.planner.decisions import WhyNot
from app.planner.fair_share import satisfaction
from app.planner.fair_share.pool_shares import Parts, Uses, moved
from app.planner.fair_share.preemptible_split import Split
from app.planner.fair_share.starvation import State, Status
from app.planner.projection import Books, Line

Guard: TypeAlias = Callable[[Allocation], WhyNot | None]


class Stage(IntEnum):
    """How urgently somebody may take."""

    NONE = 0
    ORDINARY = 1
    AGGRESSIVE = 2


STAGES = {Status.NON_STARVING: Stage.NONE, Status.STARVING: Stage.ORDINARY, Status.AGGRESSIVELY_STARVING: Stage.AGGRESSIVE}
TRIGGERS = {Stage.ORDINARY: Trigger.STARVATION, Stage.AGGRESSIVE: Trigger.AGGRESSIVE_STARVATION}


WORK, LEAST_WEIGHED, MOST_WEIGHED = 20_000, 8, 400
"""In one pass so many exchanges are weighed that their divisions are of so many policies in all; at least and at most."""

KNUTH = 2_654_435_761
"""Multiplied by it, moments that follow each other lie far apart."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Somebody who runs, as far as it may be taken at all."""

    holder: Allocation
    aggressively: bool
    """Only by who starves aggressively."""
    beyond: frozenset[str]
    """The keys it holds on which it lies so far beyond its policy's fair share."""


class Scene:
    """One state of a pool: everybody's part, who runs, and what of it may be taken."""

    def __init__(self, parts: Parts, running: Mapping[str, Sequence[Allocation]], guard: Guard) -> None:
        self.parts = parts
        self._running = running
        self._guard = guard
        self._pieces: dict[tuple[str, bool], list[Piece]] = {}
        self._splits: dict[str, Split] = {}
        self.takable: dict[object, Any] = {}
        """What those may take who are short of the same, as far as it was asked."""

    def pieces(self, component: str, *, aggressively: bool) -> list[Piece]:
        """What of a policy may be taken, in order of grant: the preemptible, or also the aggressively preemptible."""
        found = self._pieces.get((component, aggressively))
        if found is None:
            found = self._pieces[component, aggressively] = list(self._cut(component, aggressively))
        return found

    def why_not(self, holder: Allocation) -> WhyNot | None:
        """What keeps one who runs from being taken, be the waiter who it may; None if there may be one who takes it."""
        protected = self._guard(holder)
        if protected is not None:
            return protected
        pieces = self.pieces(holder.component, aggressively=True)
        return None if any(piece.holder is holder for piece in pieces) else WhyNot.WITHIN_FAIR_SHARE

    def _cut(self, component: str, aggressively: bool) -> Iterator[Piece]:
        running = self._running.get(component, ())
        if not running:
            return
        cut = self._splits.get(component)
        if cut is None:
            cut = self._splits[component] = self.parts.split(component, running)
        patience = self.parts.ground.patience[POLICY + component]
        graded = dict.fromkeys(cut.preemptible, False)
        if aggressively and patience.allow_aggressive:
            graded |= dict.fromkeys(cut.aggressively_preemptible, True)
        bound = self._bound(POLICY + component, patience.threshold)
        for holder in running if graded else ():
            if holder.id in graded and self._guard(holder) is None:
                beyond = self._beyond(holder, cut.before[holder.id], bound, partly=graded[holder.id])
                if beyond:
                    yield Piece(holder, graded[holder.id], beyond)

    def _bound(self, account: str, threshold: Fraction) -> list[int]:
        fair = self.parts.node(account).fair
        return [due * threshold.numerator // threshold.denominator for due in fair]

    def _beyond(self, holder: Allocation, before: Sequence[int], bound: Sequence[int], *, partly: bool) -> frozenset[str]:
        slack, own = self.parts.scale // satisfaction.EQUAL, self.parts.share(holder.amounts)
        rows = zip(self.parts.division.keys, before, own, bound, strict=True)
        if partly:
            return frozenset(key for key, below, units, most in rows if units and below + units > most + slack)
        return frozenset(key for key, below, units, most in rows if units and below + slack >= most)


class Fairness:
    """The fair shares of one pool as it is judged, through all the steps that are planned."""

    def __init__(self, books: Books, parts: Parts, found: Mapping[str, State], guard: Guard) -> None:
        self.books = books
        self.ground = parts.ground
        self._as_it_is = parts
        self._found = found
        self._guard = guard
        self._scene: tuple[int, Scene] | None = None
        self.weighed = 0
        """How many exchanges were weighed so far."""
        self._divided: dict[object, Parts] = {}
        """The division for each state that was looked at, after some exchange."""
        self._most = max(LEAST_WEIGHED, min(MOST_WEIGHED, WORK // max(1, len(self.ground.tree.paths))))

    def scene(self, line: Line) -> Scene:
        """The pool when all who are leaving have left, and all who have holds have what those are for."""
        if line is not self.books.end:
            return self._make(line)
        if self._scene is None or self._scene[0] != self.books.version:
            self._scene = self.books.version, self._make(line)
        return self._scene[1]

    def is_starving(self, account: str) -> bool:
        """Whether it has been below its fair share for too long."""
        return STAGES[self._found[account].status] is not Stage.NONE

    def stage(self, component: str, scene: Scene) -> Stage:
        """How urgent a policy's want is: its own or that of a group above it, if those are below their fair share here, too."""
        path = self.ground.tree.paths[component][:-1]
        stages = ((STAGES[self._found[account].status], account) for account in path)
        return max((stage for stage, account in stages if stage and scene.parts.is_below(account)), default=Stage.NONE)

    def may_weigh(self, begun: int) -> bool:
        """Whether there is time in this pass to weigh another exchange, for somebody who began when so many had been weighed.

        An eighth of all is for one."""
        return self.weighed < self._most and self.weighed - begun < max(2, self._most // 8)

    def in_order(self, waiters: Iterable[Waiter], now_ms: int) -> Iterator[Waiter]:
        """1. the more urgent 2. the least satisfied policy 3. the higher class 4. the older 5. id.

        When half of what a pass may weigh was weighed in vain, it goes on with anybody as urgent, each time with another, so
        that those who are refused at every look keep nobody from ever being heard.
        """
        ordered = self._ordered(waiters)
        scene = self.scene(self.books.end)
        for at, waiter in enumerate(ordered):
            if self.weighed * 2 > self._most:
                stage = self._stage_of(waiter, scene)
                rest = [other for other in ordered[at:] if self._stage_of(other, scene) is stage]
                first = now_ms * KNUTH % 2**32 % len(rest)
                yield from rest[first:] + rest[:first] + ordered[at + len(rest) :]
                return
            yield waiter

    def _stage_of(self, waiter: Waiter, scene: Scene) -> Stage:
        return self.stage(waiter.component, scene) if waiter.component in self.ground.tree.paths else Stage.NONE

    def _ordered(self, waiters: Iterable[Waiter]) -> list[Waiter]:
        scene = self.scene(self.books.end)
        stages = {component: self.stage(component, scene) for component in self.ground.tree.paths}
        worth = {component: self._satisfaction(component, scene) for component, stage in stages.items() if stage}
        return sorted(
            waiters,
            key=lambda waiter: (
                -stages.get(waiter.component, Stage.NONE),
                worth.get(waiter.component, (1, Fraction(0))),
                -waiter.preemption_class,
                waiter.number,
                waiter.id,
            ),
        )

    def after(self, scene: Scene, waiter: Waiter, victims: Sequence[Allocation]) -> Scene:
        """The state when these have left and the waiter runs."""
        self.weighed += 1
        uses = moved(scene.parts.uses, waiter.component, waiter.amounts, 1)
        for victim in victims:
            uses = moved(uses, victim.component, victim.amounts, -1)
        sides = dict.fromkeys([waiter.component, *(victim.component for victim in victims)])
        state = (scene, tuple((component, tuple(uses[component].values())) for component in sorted(sides)))
        parts = self._divided.get(state)
        if parts is None:
            parts = self._divided[state] = Parts(self.ground, uses)
        gone, running = {victim.id for victim in victims}, self._running()
        for component in dict.fromkeys(victim.component for victim in victims):
            running[component] = [holder for holder in running[component] if holder.id not in gone]
        running[waiter.component].append(granted(waiter))
        return Scene(parts, running, self._lasting)

    def with_back(self, scene: Scene, stray: Allocation) -> Scene:
        """The state with one who was leaving among those who run; it is counted in what its policy uses as it is."""
        running = self._running()
        running[stray.component] = sorted([*running[stray.component], stray], key=lambda holder: holder.fence)
        return Scene(scene.parts, running, self._lasting)

    def _lasting(self, holder: Allocation) -> WhyNot | None:
        """What protects somebody that time does not change."""
        protected = self._guard(holder)
        return None if protected in (WhyNot.NEAR_COMPLETION, WhyNot.JUST_STARTED) else protected

    def _make(self, line: Line) -> Scene:
        books, keys = self.books, list(self.ground.capacity)
        uses: Uses = {
            component: {key: max(0, books.used_then(POLICY + component, key, line)) for key in keys}
            for component in self.ground.tree.paths
        }
        parts = self._as_it_is if uses == self._as_it_is.uses else Parts(self.ground, uses)
        return Scene(parts, self._running(), self._guard)

    def _running(self) -> dict[str, list[Allocation]]:
        return {component: self.books.shares.running(component) for component in self.ground.tree.paths}

    def _satisfaction(self, component: str, scene: Scene) -> tuple[int, Fraction]:
        ratio = satisfaction.satisfaction(scene.parts.node(POLICY + component), scene.parts.scale)
        return (1, Fraction(0)) if ratio is None else (0, ratio)


def granted(waiter: Waiter) -> Allocation:
    """A waiter as it would run, the newest of all."""
    return Allocation(
        id=waiter.id,
        component=waiter.component,
        amounts=waiter.amounts,
        fence=1 << 62,
        preemptible=waiter.preemptible,
        preemption_class=waiter.preemption_class,
        checkpoint="none",
        checkpoint_minutes=None,
        walltime_s=None,
        granted_ms=0,
        chain=waiter.chain,
    )
