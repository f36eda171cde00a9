"""The score that the scripts pack sorts waiters in the order of its definition."""

from __future__ import annotations

import json
import random
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from app.domain.pool_settings import DISCIPLINES
from app.domain.queue_score import CLASS_COUNT, MAX_AMOUNT, MAX_SUBMISSIONS, PRIORITY_COUNT, queue_key
from app.store.connection import RedisClient
from app.store.lua_linker import FOLDER, load_commands
from app.store.scripts import Scripts

COMMAND = """\
-- Return the queue scores of waiters.
-- @use amounts queue_order
-- @args pool waiters
-- @reply scored scores

local pool, scores = {fields = cjson.decode(args.pool)}, {}
for i, waiter in ipairs(cjson.decode(args.waiters)) do
  local lane_score = queue_order.lane_score(waiter.preemption_class, waiter.submission_number)
  local rank_score = queue_order.rank_score(pool, {fields = {priority = waiter.priority}}, lane_score)
  local fair = pool.fields.discipline == 'fair_share'
  scores[i] = amounts.format(fair and queue_order.in_tier(waiter.tier, lane_score)
    or queue_order.with_share_flag(pool, rank_score, waiter.in_share))
end
return reply.scored(scores)
"""
LIBRARIES = ("amounts", "dirty_pools", "fair_share_order", "queue_order")
WAITERS = 400
MAX_TIER = 8191


def some_waiters(seed: int) -> list[dict[str, Any]]:
    """Return random waiters. Many of them have equal values, and some the least or greatest possible ones."""
    rng = random.Random(seed)
    return [
        {
            "in_share": rng.random() < 0.5,
            "tier": rng.choice((0, 1, rng.randint(0, MAX_TIER), MAX_TIER)),
            "priority": rng.choice((0, 5, 6, rng.randrange(PRIORITY_COUNT), PRIORITY_COUNT - 1)),
            "preemption_class": rng.randrange(CLASS_COUNT),
            "submission_number": rng.choice((1, 2, rng.randrange(1, MAX_SUBMISSIONS), MAX_SUBMISSIONS - 1)),
        }
        for _ in range(WAITERS)
    ]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("order", ["share_first", "priority_first"])
@pytest.mark.parametrize("discipline", DISCIPLINES)
def test_scores_sort_as_the_definition_does(
    client: RedisClient, tmp_path: Path, discipline: str, order: str, seed: int
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "score.lua").write_text(COMMAND, encoding="utf-8")
    for library in LIBRARIES:
        shutil.copy(FOLDER / "lib" / f"{library}.lua", tmp_path / "lib")
    waiters = some_waiters(seed)
    pool = json.dumps({"discipline": discipline, "order": order})
    reply = Scripts(client, load_commands(tmp_path)).call("score", "w", pool=pool, waiters=json.dumps(waiters))
    scores = [int(score) for score in reply.fields["scores"]]
    assert all(abs(score) <= MAX_AMOUNT + 1 for score in scores), "exact as a double"
    keys = [queue_key(discipline, order, **waiter) for waiter in waiters]
    ranked = sorted(zip(keys, scores, strict=True))
    for (key, score), (next_key, next_score) in pairwise(ranked):
        assert (key < next_key, key == next_key) == (score < next_score, score == next_score), (key, next_key)
