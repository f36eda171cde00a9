"""A pool's queue played through once, as the rules that grant would have it if what runs ended so and so."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import erf, inf
from random import Random
from typing import NamedTuple

from app.domain.amounts import Amounts
from app.planner.estimates.pool_state import POOL, Hold, Place, Running, Scene, Waiting

ENOUGH = 5
"""Run times of a component from which on those of others do not matter."""
ALIKE = 0.95
"""How much alike those of a batch run, as a correlation: parts of one experiment end, or fail, together."""


@dataclass(frozen=True, slots=True)
class Start:
    """When somebody starts, and whether that rests on a guess."""

    seconds: float
    guessed: bool


@dataclass(slots=True)
class _Kept:
    """A hold with victims that is in force: what those leaving for it still bring, and what they have brought."""

    amounts: Amounts
    places: frozenset[Place]
    brought: Counter[Place]
    coming: Counter[Place] = field(default_factory=Counter)
    over: bool = False

    def at(self, place: Place) -> int:
        """What it keeps there."""
        return max(0, self.amounts[place[1]] - self.coming[place]) if place in self.places and not self.over else 0

    def against_earlier(self, place: Place) -> int:
        """What it keeps there from the owners of earlier ones."""
        return min(self.at(place), self.brought[place])


@dataclass(slots=True)
class _Lane:
    """Those who wait with one shape; the owner of a hold with victims is in one alone."""

    amounts: Amounts
    places: tuple[Place, ...]
    hold: int | None = None
    members: list[int] = field(default_factory=list)
    at: int = 0

    @property
    def head(self) -> int | None:
        return self.members[self.at] if self.at < len(self.members) else None


class _Stay(NamedTuple):
    """What somebody gives back as it ends, and of one who leaves when it would end if it were called back."""

    places: tuple[Place, ...]
    amounts: Amounts
    hold: int | None = None
    else_s: float = inf
    guessed: bool = False


class TooMuch(Exception):  # noqa: N818
    """It takes more work to play this through than was allowed."""


class Play:
    """One future. In one that is `dawdling` whoever leaves takes all the time that it may have."""

    def __init__(self, scene: Scene, count: int, random: Random, *, dawdling: bool = False) -> None:
        self._scene, self._random, self._dawdling = scene, random, dawdling
        self.work = len(scene.running)
        """How many have run, have ended, or were looked at as they waited."""
        self._rooms = dict(scene.rooms)
        """For those who have no hold with victims: less what these keep."""
        self._guessed = False
        self._tempers = defaultdict[int, float](lambda: random.gauss(0, ALIKE**0.5))
        self._holds = [self._kept(hold) for hold in scene.holds]
        self._patient = scene.patient if scene.patient and scene.patient.owner < count else None
        self._patiently = self._all_of(self._patient) if self._patient else {}
        """What is kept for who was passed for too long, from those behind it."""
        self._stays: dict[int, _Stay] = {}
        self._ends: list[tuple[float, int, bool]] = []
        for number, one in enumerate(scene.running):
            self._run(number, one)
        heapify(self._ends)
        for kept in self._holds:
            for place in kept.places:
                self._rooms[place] -= kept.at(place)
        self._lanes, self._owners = self._sorted(count)
        self._ready = [(head, number) for number, lane in enumerate(self._lanes) if (head := lane.head) is not None]
        """Those who may fit, the first of the queue first."""
        heapify(self._ready)
        self._parked = defaultdict[Place, list[tuple[int, int]]](list)
        """Place → those who do not fit for want of room there: how much there has to be, the least first, and who."""

    def starts(self, most: float = inf) -> Iterator[tuple[int, Start]]:
        """Who starts when, in the order in which they do; TooMuch if that takes more work."""
        now, waiting = 0.0, sum(len(lane.members) for lane in (*self._lanes, *self._owners))
        while True:
            for at in self._fitting():
                yield at, Start(now, self._guessed)
                waiting -= 1
                self._begin(at, now)
            if not waiting or not self._ends:
                return
            self.work += 1
            if self.work > most:
                raise TooMuch
            now, number, guessed = heappop(self._ends)
            self._guessed |= guessed
            self._end(number, now)

    # those who run

    def _run(self, number: int, one: Running) -> None:
        left, guessed = self._left(one, one.age_s)
        stay = _Stay(_places(one.path, one.amounts, self._rooms), one.amounts)
        if one.leaving is not None:
            hold = one.leaving.hold
            stay = _Stay(stay.places, stay.amounts, hold, left, guessed)
            left = one.leaving.gone_s if self._dawdling else min(left, self._random.random() * one.leaving.due_s)
            guessed = False
            for place in stay.places if hold is not None else ():
                if hold is not None and place in self._holds[hold].places:
                    self._holds[hold].coming[place] += one.amounts[place[1]]
        self._stays[number] = stay
        if left < inf:
            self._ends.append((left, number, guessed))

    def _left(self, one: Running | Waiting, age_s: float) -> tuple[float, bool]:
        """How much longer something runs, and whether that is a guess."""
        own = self._scene.past.get(one.component)
        past = own if own and own.total >= ENOUGH else self._scene.everybody
        rank = _below(self._tempers[one.batch] + self._random.gauss(0, (1 - ALIKE) ** 0.5))
        whole = past.draw(rank, age_s) if past.total else None
        if one.walltime_s is not None and one.walltime_s > age_s:
            drawn = whole if whole is not None and past.total >= ENOUGH else age_s + rank * (one.walltime_s - age_s)
            return min(drawn, one.walltime_s) - age_s, False
        if whole is not None:
            return whole - age_s, past.total < ENOUGH
        if not past.total and one.walltime_s is None:
            return inf, True
        return past.guess(rank, age_s) - age_s, True

    def _begin(self, at: int, now: float) -> None:
        one, number = self._scene.waiting[at], len(self._scene.running) + at
        left, guessed = self._left(one, 0.0)
        self._stays[number] = _Stay(_places(one.path, one.amounts, self._rooms), one.amounts)
        if left < inf:
            heappush(self._ends, (now + left, number, guessed))

    def _end(self, number: int, now: float) -> None:
        """Its units come back, unless the hold that it was leaving for has ended: then it is called back, and goes on."""
        stay = self._stays[number]
        kept = None if stay.hold is None else self._holds[stay.hold]
        if kept and kept.over and stay.else_s > now:
            self._stays[number] = _Stay(stay.places, stay.amounts)
            if stay.else_s < inf:
                heappush(self._ends, (stay.else_s, number, stay.guessed))
            return
        for place in stay.places:
            units = more = stay.amounts[place[1]]
            if kept and place in kept.places:
                before = kept.at(place)
                kept.coming[place] -= units
                kept.brought[place] += units
                more -= kept.at(place) - before
            self._make_room(place, more)

    # those who wait

    def _kept(self, hold: Hold) -> _Kept:
        return _Kept(self._scene.waiting[hold.owner].amounts, frozenset(self._all_of(hold)), Counter(hold.brought))

    def _all_of(self, hold: Hold) -> dict[Place, int]:
        amounts = self._scene.waiting[hold.owner].amounts
        return {place: amounts[place[1]] for place in _places(hold.path, amounts, self._rooms)}

    def _sorted(self, count: int) -> tuple[list[_Lane], list[_Lane]]:
        """By shape; and the owners of holds with victims, wherever they stand."""
        owners = {hold.owner: number for number, hold in enumerate(self._scene.holds)}
        lanes: dict[tuple[object, ...], _Lane] = {}
        for at, one in enumerate(self._scene.waiting):
            if at >= count and at not in owners:
                continue
            shape = (one.path, tuple(one.amounts.items()), owners.get(at))
            lane = lanes.get(shape)
            if lane is None:
                lane = lanes[shape] = _Lane(one.amounts, _places(one.path, one.amounts, self._rooms), owners.get(at))
            lane.members.append(at)
        found = lanes.values()
        return [lane for lane in found if lane.hold is None], [lane for lane in found if lane.hold is not None]

    def _fitting(self) -> Iterator[int]:
        """Those who can start now, one after the other; each takes its room."""
        again = True
        while again:
            self._end_spent()
            yield from self._passing()
            again = self._patience_ends()

    def _passing(self) -> Iterator[int]:
        owners = [(head, number) for number, lane in enumerate(self._owners) if (head := lane.head) is not None]
        heapify(owners)
        stuck = False
        while owners or (self._ready and not stuck):
            is_owner = bool(owners) and (stuck or not self._ready or owners[0] < self._ready[0])
            queue, lanes = (owners, self._owners) if is_owner else (self._ready, self._lanes)
            head, number = heappop(queue)
            lane, self.work = lanes[number], self.work + 1
            short = self._short(lane, head)
            if short is not None:
                stuck |= self._scene.strict and short[0] == POOL
                if not is_owner:
                    self._set_aside(number, head, short)
                continue
            self._take(lane, head)
            if lane.head is not None:
                heappush(queue, (lane.head, number))
            yield head

    def _set_aside(self, number: int, head: int, short: Place) -> None:
        """Nobody has to look at it before there is room for it where there is none now. In a strict line it stays the first."""
        if self._scene.strict and short[0] == POOL:
            heappush(self._ready, (head, number))
            return
        bound = self._patient is not None and head > self._patient.owner
        need = self._lanes[number].amounts[short[1]] + (self._patiently.get(short, 0) if bound else 0)
        heappush(self._parked[short], (need, number))

    def _make_room(self, place: Place, units: int) -> None:
        self._rooms[place] += units
        self._rouse(place, self._rooms[place])

    def _rouse(self, place: Place, room: float) -> None:
        parked = self._parked[place]
        while parked and parked[0][0] <= room:
            _, number = heappop(parked)
            head = self._lanes[number].head
            if head is not None:
                heappush(self._ready, (head, number))

    def _short(self, lane: _Lane, head: int) -> Place | None:
        """The first place on its way where it does not fit."""
        rooms, amounts = self._rooms, lane.amounts
        if lane.hold is not None:
            return next((place for place in lane.places if self._room_of_owner(lane.hold, place) < amounts[place[1]]), None)
        if self._patient and head > self._patient.owner:
            kept = self._patiently
            return next((place for place in lane.places if rooms[place] - kept.get(place, 0) < amounts[place[1]]), None)
        return next((place for place in lane.places if rooms[place] < amounts[place[1]]), None)

    def _room_of_owner(self, number: int, place: Place) -> int:
        """An earlier hold binds an owner by all that it keeps, a later one only by what its own victims have brought."""
        passed = sum(one.at(place) - one.against_earlier(place) for one in self._holds[number + 1 :])
        return self._rooms[place] + self._holds[number].at(place) + passed

    def _take(self, lane: _Lane, head: int) -> None:
        for place in lane.places:
            self._rooms[place] -= lane.amounts[place[1]]
        lane.at += 1
        if self._patient and head == self._patient.owner:
            self._end_patience()
        if lane.hold is not None:
            self._finish(lane.hold)

    def _finish(self, number: int) -> None:
        """A hold ends, and what it keeps is there for all."""
        kept = self._holds[number]
        for place in kept.places:
            self._make_room(place, kept.at(place))
        kept.over = True

    def _end_spent(self) -> None:
        """Holds end whose owners' fixed share is used up; these wait as the others do."""
        for lane in [lane for lane in self._owners if lane.hold is not None and lane.head is not None]:
            others = [place for place in lane.places if place not in self._holds[lane.hold or 0].places]
            if any(self._rooms[place] < lane.amounts[place[1]] for place in others):
                self._finish(lane.hold or 0)
                lane.hold = None
                self._owners.remove(lane)
                self._lanes.append(lane)
                heappush(self._ready, (lane.members[lane.at], len(self._lanes) - 1))

    def _patience_ends(self) -> bool:
        """The hold of patience ends if a limit keeps its owner by now."""
        if self._patient is None:
            return False
        one = self._scene.waiting[self._patient.owner]
        places = [place for place in _places(one.path, one.amounts, self._rooms) if place[0] != POOL]
        if all(self._rooms[place] >= one.amounts[place[1]] for place in places):
            return False
        self._end_patience()
        return True

    def _end_patience(self) -> None:
        self._patient = None
        for place in list(self._parked):
            self._rouse(place, inf)


def _below(value: float) -> float:
    """The part of a normal distribution that lies below."""
    return 0.5 * (1 + erf(value / 2**0.5))


def _places(path: Sequence[str], amounts: Amounts, rooms: Mapping[Place, int]) -> tuple[Place, ...]:
    return tuple((account, key) for account in path for key in amounts if (account, key) in rooms)
