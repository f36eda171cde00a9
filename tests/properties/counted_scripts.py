"""Commands that count their elementary steps on the server: the reads and writes of a script, and not its time."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from app.domain.ledger_limits import MAX_STEPS
from app.store.connection import RedisClient
from app.store.lua_linker import LuaCommand, load_commands
from app.store.scripts import EvalArgs, Scripts

BYTES_A_STEP = 1024
BUDGET = 40
"""The work budget of the counted commands, in Redis commands: so small that it ends before the smaller size does."""

_PRELUDE = f"""
local _redis, _steps = redis, 0
local SIZES = {{zset = 'ZCARD', hash = 'HLEN', set = 'SCARD', list = 'LLEN', stream = 'XLEN'}}
local REMOVES = {{ZREMRANGEBYSCORE = true, ZREMRANGEBYRANK = true, ZREMRANGEBYLEX = true}}
local function _elements(value)
  if type(value) == 'string' then return 1 + math.floor(#value / {BYTES_A_STEP}) end
  if type(value) ~= 'table' then return 1 end
  local count = 0
  for _, element in ipairs(value) do count = count + _elements(element) end
  return count
end
local function _counted(run, name, ...)
  _steps = _steps + 1 + _elements({{...}})
  if name == 'DEL' then
    for _, key in ipairs({{...}}) do
      local size = SIZES[_redis.call('TYPE', key).ok]
      if size then _steps = _steps + _redis.call(size, key) end
    end
  end
  local answer = run(name, ...)
  _steps = _steps + (REMOVES[name] and answer or _elements(answer))
  return answer
end
local redis = {{
  call = function(name, ...) return _counted(_redis.call, name, ...) end,
  pcall = function(name, ...) return _counted(_redis.pcall, name, ...) end,
}}
local function _command()
"""
"""A step is a call, an argument, an element of a reply, an element that a call removes; a long text counts by its length."""

_END = """
end
local answer = _command()
return {answer, _steps}
"""


def counted(command: LuaCommand) -> LuaCommand:
    """Return the command with a counter: it replies what the command replies, and the number of steps."""
    small_budget = command.text.replace(f"server_calls.count >= {MAX_STEPS}", f"server_calls.count >= {BUDGET}")
    text = _PRELUDE + small_budget + _END
    return replace(command, text=text, sha=hashlib.sha1(text.encode()).hexdigest())


class CountedScripts(Scripts):
    """Calls counted commands, and keeps the most steps that a call of each took."""

    def __init__(self, client: RedisClient) -> None:
        super().__init__(client, {name: counted(command) for name, command in load_commands().items()})
        self.steps: dict[str, int] = {}

    def _evaluate(self, command: LuaCommand, tail: EvalArgs) -> object:
        answer: Any = super()._evaluate(command, tail)
        if isinstance(answer, Exception):
            return answer
        reply, steps = answer
        self.steps[command.name] = max(self.steps.get(command.name, 0), int(steps))
        return reply


def growing(small: Mapping[str, int], large: Mapping[str, int], allowance: int) -> dict[str, tuple[int, int]]:
    """Return the commands whose steps are more than doubled, beyond an allowance, and both numbers."""
    return {name: (small[name], steps) for name, steps in sorted(large.items()) if steps > 2 * small.get(name, 0) + allowance}
