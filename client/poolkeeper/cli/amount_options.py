"""The shorthand `--KEY N` for an amount: `--gpu 2` is `--resource gpu=2` for a request, and `--capacity gpu=2` for a pool."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click

from poolkeeper.cli.command_base import VerbCommand

OPTION_BY_KEY = {
    "cpu": "--cpu-count",
    "cpus": "--cpu-count",
    "mcpu": "--cpu-count",
    "mem": "--memory",
    "memory": "--memory",
    "memory_mb": "--memory",
}
"""Keys whose amounts people give with a unit or a fraction → the option for such an amount."""
_OPTION = re.compile(r"--([a-z][a-z0-9_.-]{0,62})(?:=(.*))?", re.DOTALL)
_QUANTITY = re.compile(r"[+-]?[0-9]*[.,]?[0-9]+[A-Za-z%]{0,5}")
"""A number, also with a sign, a fraction or a unit: such an argument is meant as an amount."""
_FRACTION = re.compile(r"[+]?([0-9]*)[.,]([0-9]+)")


class AmountCommand(VerbCommand):
    """A verb for which `--KEY N` is an amount, unless `--KEY` is an option. `amounts` is the option that takes all amounts."""

    def __init__(self, *words: Any, amounts: str = "--resource", **settings: Any) -> None:
        super().__init__(*words, **settings)
        self.amounts = amounts

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments as click does, with each `--KEY N` rewritten to the option that takes all amounts."""
        if not ctx.resilient_parsing and not asks_for_help(args):
            args = self.rewrite(ctx, args)
        return super().parse_args(ctx, args)

    def rewrite(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return the arguments for click. Raise UsageError for a wrong amount."""
        own, rest = split_arguments(args)
        return [*AmountShorthand(ctx, self.get_params(ctx), self.amounts).rewrite(own), *rest]

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the usage line with the amounts."""
        return ["[--KEY N]…", *super().collect_usage_pieces(ctx)]


class AmountShorthand:
    """The rewriting of arguments, one by one. `check_word` gets each that is neither an option nor the value of one."""

    def __init__(
        self,
        ctx: click.Context,
        params: Sequence[click.Parameter],
        amounts: str,
        check_word: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._ctx, self._amounts, self._check_word = ctx, amounts, check_word
        options = [param for param in params if isinstance(param, click.Option)]
        self._takes_a_value: Mapping[str, bool] = {
            name: not (option.is_flag or option.count) for option in options for name in (*option.opts, *option.secondary_opts)
        }

    def rewrite(self, arguments: Sequence[str]) -> Iterator[str]:
        """Yield the arguments with every `--KEY N` as the option that takes all amounts."""
        keys, has_unknown_option, rest = set[str](), False, iter(arguments)
        for argument in rest:
            option = _OPTION.fullmatch(argument)
            if option and f"--{option[1]}" not in self._takes_a_value:
                if option[1] in keys:
                    raise self._error(f"--{option[1]} is given twice")
                keys.add(option[1])
                yield from (self._amounts, self._amount(option[1], option[2], rest))
                continue
            if not (argument.startswith("-") or has_unknown_option):
                self._check_word(argument)
            yield argument
            # click refuses an unknown option later; here the next word may be its value
            has_unknown_option = has_unknown_option or argument.partition("=")[0] not in self._takes_a_value
            if self._takes_a_value.get(argument):
                yield from (value for value in [next(rest, None)] if value is not None)

    def _amount(self, key: str, value: str | None, rest: Iterator[str]) -> str:
        """Return `gpu=2` for `--gpu 2` or `--gpu=2`."""
        similar = self._similar_options(key)
        value = next(rest, None) if value is None else value
        is_whole = value is not None and value.isascii() and value.isdigit()
        if is_whole and not similar:
            return f"{key}={value}"
        if similar:
            as_amount = f" As an amount it is {self._amounts} {key}={value}" if is_whole else ""
            raise self._error(f"No such option '--{key}'. Did you mean {' or '.join(map(repr, similar))}?{as_amount}")
        if value is not None and _QUANTITY.fullmatch(value):
            option = OPTION_BY_KEY.get(key)
            advice = f"; {option} takes it" if option in self._takes_a_value else _advice_on_parts(key, value)
            raise self._error(f"--{key} takes a whole number, not {value}{advice}")
        text = "nothing" if value is None else value
        raise self._error(f"--{key} is no option, and an amount needs a whole number, not {text}")

    def _similar_options(self, key: str) -> list[str]:
        max_distance = 1 if len(key) <= 5 else 2
        names = sorted(name for name in self._takes_a_value if name.startswith("--"))
        return [name for name in names if edit_distance(key, name[2:]) <= max_distance]

    def _error(self, message: str) -> click.UsageError:
        return click.UsageError(message, self._ctx)


def _advice_on_parts(key: str, value: str) -> str:
    """Return the advice for parts of a unit: thousandths in a key of their own, as `mcpu` is for a CPU."""
    part = _FRACTION.fullmatch(value)
    if part is None:
        return ""
    thousandths = int(part[1] or 0) * 1000 + int(f"{part[2]:0<3}"[:3])
    example = f", and ask --m{key} {thousandths}" if thousandths else ""
    return f". For parts of a {key} let the pool count thousandths in a key of their own, such as m{key}=8000 for 8{example}"


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments before the first `--`, and the others with it."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return list(arguments[:end]), list(arguments[end:])


def asks_for_help(arguments: Sequence[str]) -> bool:
    """True if `--help` is for the verb, not for a command after `--`."""
    return any(word in ("-h", "--help") for word in split_arguments(arguments)[0])


def edit_distance(word: str, other: str) -> int:
    """Return the number of letters to add, delete, replace or swap with the next to turn one word into the other."""
    before, row = [0] * (len(other) + 1), list(range(len(other) + 1))
    for i, letter in enumerate(word, 1):
        last, before, row = before, row, [i]
        for j, opposite in enumerate(other, 1):
            fewest = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != opposite))
            if i > 1 and j > 1 and (letter, word[i - 2]) == (other[j - 2], opposite):
                fewest = min(fewest, last[j - 2] + 1)
            row.append(fewest)
    return row[-1]
