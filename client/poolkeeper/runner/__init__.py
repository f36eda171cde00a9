"""A command that runs as long as it holds units: what is behind `poolkeeper run`.

    run ── its wait in the queue, then an `AllocationRun` for each grant, then perhaps the queue again
     └─ guard ── a small process that starts the command, passes signals on, and leaves nothing of it behind
         └─ the command, in a process group of its own, and whatever it starts

Only `run` calls the service. Its main thread waits for a report of the guard, a signal, or a wake-up by the heartbeat thread.
At least every 0.2 s it looks for files that the command has written about its checkpoint. `ProcessRun` is one process of the
command under an allocation; `AllocationRun` reports to the service how that ended. Two rules hold everywhere: the service is
told that the command has left only when no process of it lives; whatever stops `run` (a signal, an error) cancels the request
or releases the units.

If `run` is killed, the guard kills the command; if the guard is killed, the system kills the command (Linux) and `run` kills
what that has started; if both are, only processes the command has started may stay. The lease lapses by itself.
"""
