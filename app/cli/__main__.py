"""Where `poolkeeperd` begins: a Ctrl-C that comes while everything is still being imported just ends it."""

from __future__ import annotations

import signal


def main() -> None:
    """The program."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from app.cli.main import main as poolkeeperd

    signal.signal(signal.SIGINT, before)
    poolkeeperd()


if __name__ == "__main__":
    main()
