"""One ask laid before the rules of fair share: what is short for it, and who could be taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from app.domain.plan_steps import Stop, Trigger, Use, Victim
from app.domain.queue_score import EXACT
from app.domain.snapshot import Allocation, Waiter
from app.planner.account_tree import POLICY
from app.planner.decisions import Verdict, Why, WhyNot
from app.planner.fair_share.rules import TRIGGERS, Fairness, Piece, Scene, Stage
from app.planner.preemption.candidates import Candidate
from app.planner.preemption.cost import Costs
from app.planner.preemption.rules import Grounds
from app.planner.projection import Deficits, Line


@dataclass(frozen=True, slots=True)
class Takable:
    """What somebody may take, in order, and what all of it brings to each need."""

    candidates: list[Candidate]
    brings: list[int]


class FairCase:
    """One waiter's ask as the pool stands now."""

    def __init__(self, fairness: Fairness, costs: Costs, waiter: Waiter, line: Line, deficits: Deficits) -> None:
        self.waiter = waiter
        self.forbidden = Why.WOULD_BE_TAKEN_BACK
        self.weighs = True
        self.takers_back = frozenset[str]()
        self.beyond: list[tuple[str, int]] | None = None
        self._fairness = fairness
        self._costs = costs
        self._tree = fairness.ground.tree
        path = self._tree.paths[waiter.component]
        self.needs = [(path.index(account), key, units) for (account, key), units in deficits.items()]
        self._scene = fairness.scene(line)
        self.stage = fairness.stage(waiter.component, self._scene)
        self._takable: Takable | None = None
        self._begun = fairness.weighed

    @property
    def may_weigh(self) -> bool:
        """Whether there is time in this pass to weigh another set for it."""
        return self._fairness.may_weigh(self._begun)

    def could_suffice(self) -> bool:
        """Whether all it may take covers what is short."""
        return all(units <= most for (_, _, units), most in zip(self.needs, self._all().brings, strict=True))

    def candidates(self) -> Iterator[Candidate]:
        """Those it may take: 1. the preemptible before the aggressively preemptible 2. the newest 3. id."""
        return iter(self._all().candidates)

    def brings(self, holder: Allocation) -> list[int]:
        """What one brings to each need."""
        meets = self._tree.meeting(self.waiter.component, holder.component)
        return [holder.amounts.get(key, 0) if at >= meets else 0 for at, key, _ in self.needs]

    def moves(self, holder: Allocation) -> list[int]:
        """No condition rests on what one brings."""
        return []

    def cost(self, holder: Allocation) -> Fraction:
        """What stopping it costs."""
        return self._costs.exact(holder)

    def allows(self, chosen: Sequence[Candidate]) -> bool:
        """Whether nobody on the victims' side would be below its fair share then and could take straight back."""
        victims = [holder for _, holder, _ in chosen]
        after = self._fairness.after(self._scene, self.waiter, victims)
        self.takers_back = frozenset(victim.component for victim in victims if self._takes_back(after, victim))
        return not self.takers_back

    def may_have(self, stray: Allocation) -> bool:
        """Whether it may take one who is leaving already."""
        if self.stage is Stage.NONE or stray.component == self.waiter.component:
            return False
        if self._fairness.is_starving(POLICY + stray.component):
            return False
        scene = self._fairness.with_back(self._scene, stray)
        return any(piece.holder is stray and self._may_take(piece) for piece in self._pieces(scene, stray.component))

    def stop(self, chosen: Sequence[Candidate]) -> Stop:
        """The step that has these stopped, and what of the pool it rests on."""
        own = POLICY + self.waiter.component
        sides = dict.fromkeys([own, *(POLICY + holder.component for _, holder, _ in chosen)])
        uses = []
        for account in sides:
            for key in self._fairness.ground.capacity:
                used = self._tree.accounts[account].used.get(key, 0)
                uses.append(Use(account, key, 0, used) if account == own else Use(account, key, used, EXACT))
        return Stop(
            waiter=self.waiter.id,
            victims=tuple(Victim(holder.id, holder.fence, grounds.trigger) for _, holder, grounds in chosen),
            uses=tuple(uses),
        )

    def verdicts(self) -> Iterator[Verdict]:
        """What the rules say about each allocation that is not leaving."""
        taken = {holder.id for _, holder, _ in self.candidates()}
        for component in self._tree.paths:
            for holder in self._fairness.books.shares.running(component):
                if holder.id in taken:
                    yield Verdict(holder.id, "starvation", TRIGGERS[self.stage], False, ())
                else:
                    yield Verdict(holder.id, None, None, False, ((None, self._why_not(holder)),))

    def _all(self) -> Takable:
        """What it may take, which is the same for all who are short of the same."""
        if self._takable is None:
            short = frozenset((at, key) for at, key, _ in self.needs)
            due = self.stage is Stage.AGGRESSIVE and self._is_due()
            alike = (self.waiter.component, self.stage, due, short, self.waiter.chain)
            found = self._scene.takable.get(alike)
            if found is None:
                found = self._scene.takable[alike] = self._take_stock()
            self._takable = found
        return self._takable

    def _take_stock(self) -> Takable:
        age = self._fairness.books.shares.age
        pieces = (piece for component in self._tree.paths for piece in self._of(component))
        ranked = [((float(piece.aggressively), 0, -age[piece.holder.id]), piece.holder) for piece in pieces]
        ranked.sort(key=lambda each: each[0])
        brings = [self.brings(holder) for _, holder in ranked]
        grounds = Grounds("starvation", TRIGGERS.get(self.stage, Trigger.STARVATION))
        return Takable(
            candidates=[(place, holder, grounds) for place, holder in ranked],
            brings=[sum(units[need] for units in brings) for need in range(len(self.needs))],
        )

    def _of(self, component: str) -> Iterator[Piece]:
        if self.stage is Stage.NONE or component == self.waiter.component or self._fairness.is_starving(POLICY + component):
            return
        yield from (piece for piece in self._pieces(self._scene, component) if self._may_take(piece))

    def _pieces(self, scene: Scene, component: str) -> list[Piece]:
        return scene.pieces(component, aggressively=self.stage is Stage.AGGRESSIVE)

    def _may_take(self, piece: Piece) -> bool:
        if self.waiter.chain is not None and self.waiter.chain == piece.holder.chain:
            return False
        if not piece.beyond & self._short(piece.holder.component):
            return False
        return not piece.aggressively or (self.stage is Stage.AGGRESSIVE and self._is_due())

    def _short(self, component: str) -> set[str]:
        meets = self._tree.meeting(self.waiter.component, component)
        return {key for at, key, _ in self.needs if at >= meets}

    def _is_due(self) -> bool:
        return self._scene.parts.fits_within(self.waiter.component, self.waiter.amounts)

    def _why_not(self, holder: Allocation) -> WhyNot:
        if holder.component == self.waiter.component:
            return WhyNot.SAME_POLICY
        if self.waiter.chain is not None and self.waiter.chain == holder.chain:
            return WhyNot.SAME_CHAIN
        if not set(holder.amounts) & self._short(holder.component):
            return WhyNot.HOLDS_NOTHING_SHORT
        if self.stage is Stage.NONE:
            return WhyNot.NOT_STARVING
        if self._fairness.is_starving(POLICY + holder.component):
            return WhyNot.STARVES
        why = self._scene.why_not(holder)
        if why is not None:
            return why
        return WhyNot.WITHIN_FAIR_SHARE if self.stage is Stage.ORDINARY or self._is_due() else WhyNot.BEYOND_FAIR_SHARE

    # Taking back

    def _takes_back(self, after: Scene, victim: Allocation) -> bool:
        path, own = self._tree.paths[victim.component][:-1], self.waiter.component
        if not any(after.parts.is_below(account) for account in path) or after.parts.is_below(POLICY + own):
            return False
        short = self._short_after(after, victim)
        if not short:
            return False
        mine = [piece for piece in after.pieces(own, aggressively=True) if self._would_take(after, victim, piece, short)]
        if not mine:
            return False
        others = (component for component in self._tree.paths if component not in (own, victim.component))
        free_to_take = [
            piece
            for component in others
            if not after.parts.is_below(POLICY + component)
            for piece in after.pieces(component, aggressively=True)
            if self._would_take(after, victim, piece, short)
        ]
        left = dict(short)
        for piece in (*mine, *free_to_take):
            meets = self._tree.meeting(victim.component, piece.holder.component)
            for (at, key), units in left.items():
                if at >= meets:
                    left[at, key] = units - piece.holder.amounts.get(key, 0)
        return all(units <= 0 for units in left.values())

    def _would_take(self, after: Scene, victim: Allocation, piece: Piece, short: dict[tuple[int, str], int]) -> bool:
        if victim.chain is not None and victim.chain == piece.holder.chain:
            return False
        meets = self._tree.meeting(victim.component, piece.holder.component)
        if not piece.beyond & {key for at, key in short if at >= meets}:
            return False
        if not piece.aggressively:
            return True
        patience = self._fairness.ground.patience[POLICY + victim.component]
        return patience.aggressive and after.parts.fits_within(victim.component, victim.amounts)

    def _short_after(self, after: Scene, victim: Allocation) -> dict[tuple[int, str], int]:
        """What it would be short of: (how far up its path, key) → units."""
        short = {}
        for at, account in enumerate(self._tree.paths[victim.component]):
            below = self._tree.below[account]
            for key, units in victim.amounts.items():
                limit = self._tree.limit(account, key)
                if limit is not None and key in self._fairness.ground.capacity:
                    lacking = sum(after.parts.uses[component][key] for component in below) + units - limit
                    if lacking > 0:
                        short[at, key] = lacking
        return short
