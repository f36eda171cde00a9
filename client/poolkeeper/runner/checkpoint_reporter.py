"""What the command says of its checkpoints, passed on to the service from a thread, so that nothing waits for an answer.

`completed` means "we have left" to a service that has told us to leave, and it may have done so just now, unheard. So what is
said here is said to be routine; that we have left is said when nothing of the command lives any more, and not from here.
"""

from __future__ import annotations

from queue import SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING

from poolkeeper.errors import PoolkeeperError, Refused, StaleFence
from poolkeeper.failures import may_pass
from poolkeeper.http_client import pause_s
from poolkeeper.runner.checkpoint_files import Word

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolkeeper.client import Client
    from poolkeeper.heartbeats import Heartbeats

TIMEOUT_S = 5.0


class Words:
    """Words about one allocation, in order, each until the service has heard it or a newer one is there."""

    def __init__(
        self, client: Client, request_id: str, fence: int, heartbeats: Heartbeats, refused: Callable[[str], object]
    ) -> None:
        self.kept: Word | None = None
        """The checkpoint the service has not heard of yet."""
        self.last: Word | None = None
        """The last checkpoint."""
        self._client = client.twin(timeout_s=TIMEOUT_S, tries=1)
        self._held, self._heartbeats, self._refused = (request_id, fence), heartbeats, refused
        self._words: SimpleQueue[Word | None] = SimpleQueue()
        self._stop = Event()
        self._thread = Thread(target=self._pass_on, name=f"poolkeeper-words-{request_id}", daemon=True)
        self._thread.start()

    def say(self, word: Word) -> None:
        """Pass it on as soon as may be."""
        if word.state == "completed":
            self.kept = self.last = word
        self._words.put(word)

    def stop(self) -> None:
        """No more; returns when nothing is under way."""
        self._stop.set()
        self._words.put(None)
        self._thread.join(3 * TIMEOUT_S)
        self._client.close()

    def _pass_on(self) -> None:
        while (word := self._words.get()) and not self._stop.is_set():
            tried = 0
            while not (self._say(word) or self._stop.is_set()):
                tried += 1
                self._stop.wait(pause_s(tried))
                if not self._words.empty():
                    break

    def _say(self, word: Word) -> bool:
        """Whether that is done with."""
        try:
            told, routine = (*self._held, word.state, None, word.reference), word.state == "completed"
            self._heartbeats.say(lambda: self._client.checkpoint(*told, routine=routine))
        except StaleFence:
            return True  # the heartbeats know it, too
        except Refused as refused:
            if may_pass(refused):
                return False
            self._refused(str(refused))
        except PoolkeeperError:
            return False
        if self.kept is word:
            self.kept = None
        return True
