"""The cost of dividing a pool by fair share, by the number of its policies.

There are three levels (departments, projects, policies) and four keys. A third of the policies only run, a third only wait, a
third do both. Some accounts have guarantees, some have limits, and weights go from 1 to 10.
"""

from __future__ import annotations

import time
from random import Random
from statistics import median

from app.domain.amounts import Amounts
from app.planner.fair_share.share_tree import Branch, Leaf
from app.planner.fair_share.water_filling import divide

REACH_MS = 100
"""The bound in milliseconds with 1,000 policies."""

GROWTH = 1.3
"""The bound of the growth from the fewest to the most policies, relative to growth in proportion."""

SEED = 7


def run(sizes: tuple[int, ...], rounds: int) -> None:
    """Print a line for each number of policies."""
    base = 0.0
    for policies in sizes:
        capacity, root = _tree(policies)
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            divide(capacity, root)
            times.append((time.perf_counter() - start) * 1000)
        spent = median(times)
        base = base or spent / policies
        reach = f" (reach {REACH_MS})" if policies == 1_000 else ""
        growth = f"; {spent / policies / base:4.2f} x in proportion (reach {GROWTH})"
        print(f"  {policies:>6,} policies, 4 keys: {spent:7.1f} ms{reach}{growth}")


def _tree(policies: int) -> tuple[Amounts, Branch]:
    random = Random(SEED)
    capacity = {"gpu": policies * 4, "mcpu": policies * 64_000, "memory_mb": policies * 256_000, "step_run": policies * 8}
    departments = 10
    projects = max(1, policies // departments // 10)
    left = policies
    department_branches = []
    for number in range(departments):
        policies_of_department = left // (departments - number)
        left -= policies_of_department
        department_branches.append(
            _department(random, f"d{number}", policies_of_department, min(projects, policies_of_department), capacity)
        )
    return capacity, Branch("pool", children=tuple(department_branches))


def _department(random: Random, name: str, policies: int, projects: int, capacity: Amounts) -> Branch:
    guarantee = _part(capacity, random.uniform(0.02, 0.06)) if random.random() < 0.5 else {}
    project_branches = []
    for number in range(projects):
        share = _part(guarantee, 1 / projects) if random.random() < 0.7 else {}
        policies_of_project = policies // (projects - number)
        policies -= policies_of_project
        leaves = tuple(
            _leaf(random, f"{name}.{number}.{leaf}", share, policies_of_project) for leaf in range(policies_of_project)
        )
        mode = "fifo" if random.random() < 0.1 else "fair_share"
        limit = _part(capacity, random.uniform(0.3, 1) / projects) if random.random() < 0.2 else {}
        project_branches.append(Branch(f"{name}.{number}", random.randint(1, 10), mode, leaves, share, limit))  # type: ignore[arg-type]
    return Branch(name, random.randint(1, 10), "fair_share", tuple(project_branches), guarantee)


def _leaf(random: Random, name: str, share: Amounts, siblings: int) -> Leaf:
    running, waiting = random.choice(((3, 0), (0, 6), (2, 4)))
    usage, queued = _jobs(random, running), _jobs(random, waiting)
    demand = {key: usage[key] + queued[key] for key in usage}
    guarantee = _part(share, 1 / siblings) if random.random() < 0.5 else {}
    limit = {"gpu": random.randint(4, 16)} if random.random() < 0.3 else {}
    return Leaf(name, random.randint(1, 10), usage, demand, guarantee, limit)


def _jobs(random: Random, count: int) -> dict[str, int]:
    total = dict.fromkeys(("gpu", "mcpu", "memory_mb", "step_run"), 0)
    for _ in range(count):
        total["gpu"] += random.choice((0, 1, 1, 2, 4))
        total["mcpu"] += random.choice((1_000, 4_000, 16_000, 48_000))
        total["memory_mb"] += random.choice((2_000, 16_000, 64_000, 180_000))
        total["step_run"] += 1
    return total


def _part(amounts: Amounts, part: float) -> dict[str, int]:
    return {key: int(units * part) for key, units in amounts.items() if int(units * part)}
