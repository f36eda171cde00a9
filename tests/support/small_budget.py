"""Commands with a small work budget, so that a test needs little work to exceed it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from app.domain.ledger_limits import MAX_STEPS
from app.store.lua_linker import LuaCommand, load_commands
from app.store.scripts import Scripts
from tests.support.world import World


@cache
def commands_with_budget(budget: int) -> Mapping[str, LuaCommand]:
    """Return all commands with this work budget, except `submit`: a batch of submits is not made in parts."""
    return {name: command if name == "submit" else _with_budget(command, budget) for name, command in load_commands().items()}


def give_small_budget(world: World, budget: int) -> None:
    """Give the commands of the ledger and of the planner a small budget."""
    world.ledger._scripts = world.plan_store._scripts = Scripts(world.client, commands_with_budget(budget))


def _with_budget(command: LuaCommand, budget: int) -> LuaCommand:
    text = command.text.replace(f"server_calls.count >= {MAX_STEPS}", f"server_calls.count >= {budget}")
    return replace(command, text=text, sha=hashlib.sha1(text.encode()).hexdigest())
