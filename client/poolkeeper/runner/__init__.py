"""A command that runs as long as it holds units: what is behind `poolkeeper run`.

    run ── its wait in the queue, then an `Attempt` for each grant, then perhaps the queue again
     └─ guard ── a small process that starts the command, passes signals on, and leaves nothing of it behind
         └─ the command, in a process group of its own, and whatever it starts

`run` alone speaks with the service. Its main thread waits for whatever comes first (a report of the guard, a signal, the bell
that the thread of the heartbeats rings) and looks at least every 0.2 s whether the command has written a file about its
checkpoint. What that makes of the command is a `Turn`; what the service is told of it in the end is the `Attempt`. Two rules
hold everywhere: the service is told that we have left only when nothing of the command lives any more, and whatever stops
`run` (a signal, an error) takes the request out of the queue or gives the units back.

If `run` is killed, the guard kills the command; if the guard is killed, the system kills the command (Linux) and `run` kills
what that has started; if both are, only processes the command has started may stay. The lease lapses by itself.
"""
