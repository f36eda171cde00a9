"""The entry point of `poolkeeperd`. A Ctrl-C during the imports ends the process without a traceback."""

from __future__ import annotations

import signal


def main() -> None:
    """Run `poolkeeperd`."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from app.cli.main import main as poolkeeperd

    signal.signal(signal.SIGINT, before)
    poolkeeperd()


if __name__ == "__main__":
    main()
