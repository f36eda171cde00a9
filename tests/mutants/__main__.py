"""The command `python -m tests.mutants`: it breaks one rule after the other in a copy of the tree, and reports the result."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.mutation_list import Mutation, WrongList, faults_of, load
from tests.mutants.tree_copy import TestRun, TreeCopy
from tests.support.paths import ROOT

LIMIT_S, MINUTES, JOBS = 20.0, 60.0, 2
BASE_PART = 0.5
"""A time-out counts as caught if the tests without the mutation take at most this part of the limit."""


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one mutation."""

    id: str
    rule: str
    outcome: str
    """One of these words.

    - `caught`, and `timed out`, which counts as caught
    - `survived`
    - `too slow`: the tests timed out, and are slow without the mutation as well
    - `broken`: the changed code cannot run at all
    - `red before`: the tests fail without the mutation as well
    - `not run`: there was no time left
    """
    by: str
    """The first test that failed."""
    seconds: float

    @property
    def is_caught(self) -> bool:
        """True if the tests fail for it."""
        return self.outcome in ("caught", "timed out")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line."""

    only: tuple[str, ...]
    jobs: int
    limit_s: float
    minutes: float
    output: Path | None


class Session:
    """One run over the list, in temporary copies of the tree."""

    def __init__(self, options: Options, folder: Path) -> None:
        self._options, self._folder = options, folder
        self._until = time.monotonic() + options.minutes * 60
        self._base_s: dict[tuple[str, ...], float] = {}
        self._copies: SimpleQueue[TreeCopy] = SimpleQueue()

    def results(self, mutations: Sequence[Mutation]) -> Iterator[Result]:
        """Yield the result of each mutation as soon as there is one."""
        for number in range(self._options.jobs):
            self._copies.put(TreeCopy.of(ROOT, self._folder / f"copy-{number}"))
        test_sets = list(dict.fromkeys(mutation.tests for mutation in mutations))
        with ThreadPoolExecutor(self._options.jobs) as pool:
            for number, line in enumerate(pool.map(self._run_base, test_sets), start=1):
                _progress(f"without a mutation, {number} of {len(test_sets)}: {line}")
            for future in as_completed([pool.submit(self._result, mutation) for mutation in mutations]):
                yield future.result()

    def _run_base(self, tests: tuple[str, ...]) -> str:
        """Run tests without a mutation, and keep their time if they pass. Return a line for people."""
        copy = self._copies.get()
        try:
            run = copy.run(tests, 5 * self._options.limit_s, compiles=True)
        finally:
            self._copies.put(copy)
        line = f"{' '.join(tests)} is {run.outcome} in {run.seconds:.1f} s"
        if run.outcome != "green":
            return f"{line}\n{run.output[-2000:]}"
        self._base_s[tests] = run.seconds
        return line

    def _result(self, mutation: Mutation) -> Result:
        if time.monotonic() > self._until:
            return Result(mutation.id, mutation.rule, "not run", "", 0)
        if mutation.tests not in self._base_s:
            return Result(mutation.id, mutation.rule, "red before", "", 0)
        copy = self._copies.get()
        try:
            run = copy.run_mutated(mutation, self._options.limit_s)
        finally:
            self._copies.put(copy)
        return Result(mutation.id, mutation.rule, self._outcome(mutation, run), run.failed, round(run.seconds, 2))

    def _outcome(self, mutation: Mutation, run: TestRun) -> str:
        if run.outcome == "timed out" and self._base_s[mutation.tests] > BASE_PART * self._options.limit_s:
            return "too slow"
        return {"green": "survived", "red": "caught"}.get(run.outcome, run.outcome)


def main(words: Sequence[str] | None = None) -> int:
    """Return 0 if every mutation is caught, 1 if not, 2 if the list does not fit the tree."""
    options = _options(words)
    try:
        mutations = _wanted(load(), options.only)
        if faults := faults_of(mutations, ROOT):
            raise WrongList("\n".join(faults))
        results = _run(mutations, options)
    except WrongList as wrong:
        print(wrong, file=sys.stderr)
        return 2
    if options.output:
        options.output.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n", encoding="utf-8")
    _print_table(results)
    return 0 if all(result.is_caught for result in results) else 1


def _run(mutations: Sequence[Mutation], options: Options) -> list[Result]:
    results: dict[str, Result] = {}
    with tempfile.TemporaryDirectory(prefix="poolkeeper-mutants-") as folder:
        for result in Session(options, Path(folder)).results(mutations):
            results[result.id] = result
            _progress(
                f"{len(results)} of {len(mutations)}: {result.id}: {result.outcome} in {result.seconds:.1f} s {result.by}"
            )
    return [results[mutation.id] for mutation in mutations]


def _wanted(mutations: list[Mutation], only: Sequence[str]) -> list[Mutation]:
    if unknown := set(only) - {mutation.id for mutation in mutations}:
        raise WrongList(f"there is no mutation {', '.join(sorted(unknown))}")
    return [mutation for mutation in mutations if not only or mutation.id in only]


def _options(words: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="only these mutations")
    parser.add_argument("--jobs", type=int, default=JOBS, help="copies that are worked on at a time (%(default)s)")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="SECONDS", help="time for one mutation (%(default)g)")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="time for all of them (%(default)g)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to write the results as JSON")
    args = parser.parse_args(words)
    return Options(tuple(args.only), max(1, args.jobs), args.limit, args.minutes, args.output)


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print_table(results: Sequence[Result]) -> None:
    width = max((len(result.id) for result in results), default=0)
    for result in results:
        print(f"{result.outcome:<9}  {result.id:<{width}}  {result.rule}  {result.by}")
    caught = sum(result.is_caught for result in results)
    print(f"{caught} of {len(results)} caught")


if __name__ == "__main__":
    sys.exit(main())
