"""The engine of `poolkeeper run`: a command that runs as long as it holds units.

    run ── waits in the queue, makes an `AllocationRun` for each grant, and waits again after a preemption
     └─ guard ── a small process that starts the command, forwards signals, and kills all processes of the command at the end
         └─ the command, in a process group of its own, and the processes that it starts

Only `run` calls the service. The main thread of `run` waits for a report of the guard, a signal, or a wake-up by the heartbeat
thread. At least every 0.2 s it looks for checkpoint files of the command. `ProcessRun` runs one process of the command under an
allocation. `AllocationRun` reports its outcome to the service. Two rules hold everywhere. `run` reports the exit of the command
only after its last process has ended. If a signal or an error stops `run`, it cancels the request or releases the units.

If `run` is killed, the guard kills the command. If the guard is killed, the system kills the command (Linux), and `run` kills
the processes that the command started. If both are killed, the processes that the command started may survive. The lease then
ends without heartbeats.
"""
