"""`poolkeeper run` when all goes well, and when it cannot begin: environment, exit codes, what is left behind, and usage."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from poolkeeper.cli.exit_codes import ExitCode

from tests.support.backends import wait_until
from tests.support.cli_program import Program
from tests.support.cli_runs import ALL, BEGIN, SLEEP, WORK, RunLab, wait_until_dead
from tests.support.poolkeeperd import descendants
from tests.support.stub_server import StubServer, reply


@pytest.fixture
def lab(poolkeeper: Program, beneath: str, tmp_path: Path) -> RunLab:
    return RunLab(poolkeeper, beneath, tmp_path).create_pool()


def test_the_command_has_stdout_its_environment_and_its_exit_code(lab: RunLab) -> None:
    script = "env; exit 3"
    with lab.run("--component", "team", "--gpu", "2", "--mcpu=1500", script=script, FENCE="mine") as run:
        run.wait_for_end(3)
    output = dict(line.partition("=")[::2] for line in run.out.splitlines())
    document = lab.only_request()
    assert {name.removeprefix("POOLKEEPER_"): text for name, text in output.items() if name.startswith("POOLKEEPER_")} == {
        "URL": lab.program.url,
        "WORKSPACE": lab.program.workspace,
        "REQUEST": document["id"],
        "FENCE": "1",
        "POOL": "gpus",
        "RESUME": "0",
        "CHECKPOINT_REFERENCE": "",
        "CHECKPOINT_FILE": output["POOLKEEPER_CHECKPOINT_FILE"],
        "RESOURCES": "gpu=2,mcpu=1500,step_run=1",
        "AMOUNT_GPU": "2",
        "AMOUNT_MCPU": "1500",
        "AMOUNT_STEP_RUN": "1",
    }
    assert output["FENCE"] == "mine"
    assert (document["status"], document["outcome"], document["lease_s"]) == ("released", "failed", 60)
    assert document["exit_code"] == 3
    assert "gave its units back: failed, exit 3\n" in lab.program("request", "describe", document["id"]).out
    assert document["labels"].keys() == {"user", "host", "pid", "command"}
    assert run.err == f"poolkeeper: request {document['id']} has gpu=2,mcpu=1500 in gpus under fence 1\n"
    assert not Path(output["POOLKEEPER_CHECKPOINT_FILE"]).parent.exists()


def test_the_request_of_a_key_has_its_command_and_no_process(lab: RunLab) -> None:
    words = ("--key", "k", "--label", "host=here", "--", "sh", "-c", "exit 0")
    with lab.run(*ALL, *words, POOLKEEPER_RECORD_ARGUMENTS="false") as run:
        run.wait_for_end(0)
    labels = lab.only_request()["labels"]
    assert (labels.keys(), labels["host"], labels["command"]) == ({"user", "host", "command"}, "here", "sh")


def test_a_token_that_was_an_option_is_not_passed_on(stubbed: Program, stub: StubServer, beneath: str, tmp_path: Path) -> None:
    granted = {"id": "r", "status": "allocated", "fence": 3, "lease_s": 60, "pool": "p"}
    starts = {"id": "r", "status": "allocated", "directive": "continue", "lease_expires_at": None, "deadline": None}
    stub.script(reply(granted, 201), reply(starts), reply(granted | {"status": "released", "outcome": "succeeded"}))
    with RunLab(stubbed, beneath, tmp_path).run(*ALL, "--token", "secret", script="env", POOLKEEPER_TOKEN="of-old") as run:
        run.wait_for_end(0)
    assert [call.headers["authorization"] for call in stub.calls] == ["Bearer secret"] * 3
    assert "POOLKEEPER_TOKEN=of-old\n" in run.out
    assert "secret" not in run.out


def test_work_that_is_done_is_released_as_such_and_quietly_if_wanted(lab: RunLab) -> None:
    with lab.run(*ALL, "-q", "--", "echo", "--gpu", "x y", "--") as run:
        run.wait_for_end(0)
    assert (run.out, run.err) == ("--gpu x y --\n", ""), "dashes in a command are its own"
    assert lab.only_request()["outcome"] == "succeeded"
    lab.check_invariants()


def test_a_command_that_dies_of_a_signal_ends_as_in_a_shell(lab: RunLab) -> None:
    with lab.run(*ALL, script="kill -SEGV $$") as run:
        run.wait_for_end(128 + signal.SIGSEGV)
    document = lab.only_request()
    assert (document["outcome"], document["exit_code"]) == ("failed", -signal.SIGSEGV)


def test_the_command_has_the_signals_it_would_have_without_us(lab: RunLab) -> None:
    before, words = ("bash", "-c", 'trap "" ALRM; exec "$@"', "bash"), ("cat", "/proc/self/status")
    with lab.run(*ALL, "--", *words, before=before) as run:
        run.wait_for_end(0)
    # whatever these tests were started by
    without = subprocess.run((*before, *words), capture_output=True, text=True, check=True).stdout

    def signals(status: str) -> list[str]:
        return [line for line in status.splitlines() if line.startswith(("SigIgn", "SigBlk", "SigCgt"))]

    assert signals(run.out) == signals(without)
    assert len(signals(without)) == 3


def test_the_command_has_the_files_it_would_have_without_us(lab: RunLab) -> None:
    opened = ("bash", "-c", 'exec 7<<<seven; exec "$@"', "bash")
    with lab.run(*ALL, script="cat <&7; ls /proc/self/fd", before=opened) as run:
        run.wait_for_end(0)
    assert run.out.split() == ["seven", "0", "1", "2", "3", "7"], "and 3 is the folder that ls reads"


def test_a_program_that_wants_to_hear_of_no_child_is_no_hindrance(lab: RunLab) -> None:
    for deaf in ("signal(s.SIGCHLD, s.SIG_IGN)", "pthread_sigmask(s.SIG_BLOCK, [s.SIGCHLD])"):
        program = f"import os, signal as s, sys; s.{deaf}; os.execvp(sys.argv[1], sys.argv[1:])"
        with lab.run(*ALL, script="exit 5", before=(sys.executable, "-c", program)) as run:
            run.wait_for_end(5)


def test_what_the_command_leaves_behind_is_ended_with_it(lab: RunLab) -> None:
    script = 'sleep 301 & echo $! >>"$LOG"; setsid --fork bash -c \'echo $$ >>"$LOG"; exec sleep 302\'; sleep 0.1; exit 0'
    with lab.run(*ALL, script=script) as run:
        run.wait_for_end(0)
    assert len(lab.lines()) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in lab.lines())
    lab.check_invariants()


def test_a_misspelt_command_asks_for_nothing(lab: RunLab) -> None:
    with lab.run(*ALL, "--", "no-such-command") as run:
        run.wait_for_end(127)
    assert run.err == "poolkeeper: no-such-command cannot be started: no such file or directory\n"
    assert lab.program("request", "list", "--all", "-o", "json").json == []


@pytest.mark.parametrize(
    ("mode", "code", "message"),
    [
        (None, 127, "no such file or directory"),
        (0o644, 126, "permission denied"),
        (0o755, 126, "exec format error (a script has to begin with #!)"),
    ],
)
def test_what_cannot_be_started_gives_all_back(lab: RunLab, tmp_path: Path, mode: int | None, code: int, message: str) -> None:
    path = tmp_path / "program"
    if mode is not None:
        path.write_text("echo hello\n")
        path.chmod(mode)
    with lab.run(*ALL, "--", str(path)) as run:
        run.wait_for_end(code)
    assert run.err.endswith(f"poolkeeper: {path} cannot be started: {message}\n")
    assert lab.only_request()["outcome"] == "failed"
    lab.check_invariants()


def test_rejected(lab: RunLab) -> None:
    with lab.run("--component", "team", "--gpus", "5", "--", "true") as run:
        run.wait_for_end(ExitCode.REJECTED)
    message = run.err.splitlines()
    assert "no pool has gpus" in message[0]
    assert message[1] == "  did you mean gpu?"


def test_the_time_is_up_and_it_waits_no_more(lab: RunLab) -> None:
    holder = lab.submit_for_all()
    with lab.run(*ALL, "--timeout", "1", script=SLEEP) as run:
        run.wait_for_end(ExitCode.TIMED_OUT)
    assert "was not granted within 1 s, and is out of the queue" in run.err
    lab.release(holder)
    assert lab.lines() == []
    lab.check_invariants()


def test_cancelled_by_another_client_while_it_waits(lab: RunLab) -> None:
    holder = lab.submit_for_all()
    with lab.run(*ALL, script=SLEEP) as run:
        run.wait_for_message("waiting in gpus: 1st in the queue, since ")
        waits = lab.program("request", "list", "--status", "queued", "-o", "name").line
        lab.program("request", "cancel", waits)
        run.wait_for_end(ExitCode.ENDED)
    assert f"request {waits} is cancelled" in run.err
    lab.release(holder)
    lab.check_invariants()


@pytest.mark.parametrize(("sign", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_while_it_waits_takes_it_out_of_the_queue(lab: RunLab, sign: signal.Signals, code: int) -> None:
    holder = lab.submit_for_all()
    with lab.run(*ALL, script=SLEEP) as run:
        run.wait_for_message("waiting in gpus")
        run.send_signal(sign)
        run.wait_for_end(code)
    assert run.err.endswith("is cancelled\n")
    lab.release(holder)
    assert lab.lines() == []
    lab.check_invariants()


def test_a_signal_while_it_runs_is_passed_on(lab: RunLab) -> None:
    with lab.run(*ALL, script="trap 'echo int >>\"$LOG\"; exit 7' INT\n" + BEGIN + WORK) as run:
        lab.wait_for_start()
        run.send_signal(signal.SIGINT)
        run.wait_for_end(7)
    assert lab.lines()[1:] == ["int"]
    assert lab.only_request()["outcome"] == "failed"
    lab.check_invariants()


def test_a_second_signal_is_sigterm_and_what_ignores_both_is_killed(lab: RunLab) -> None:
    script = "trap 'echo int >>\"$LOG\"' INT; trap 'echo term >>\"$LOG\"' TERM\n" + BEGIN + WORK
    with lab.run(*ALL, "--grace", "3", script=script) as run:
        lab.wait_for_start()
        for line in ("int", "term"):
            run.send_signal(signal.SIGINT)
            lab.wait_for_line(line)
        run.wait_for_end(137)
    lab.check_invariants()


def test_a_signal_only_the_command_can_know(lab: RunLab) -> None:
    with lab.run(*ALL, script="trap 'exit 12' USR2\n" + BEGIN + WORK) as run:
        lab.wait_for_start()
        run.send_signal(signal.SIGUSR2)
        run.wait_for_end(12)


def test_hangups_are_ignored_where_they_were(lab: RunLab) -> None:
    with lab.nohup(*ALL, script=BEGIN + 'grep SigIgn /proc/$$/status >>"$LOG"; exec sleep 300') as run:
        wait_until(lambda: len(lab.lines()) == 2, "it says what it ignores")
        assert int(lab.lines()[1].split()[1], 16) & 1, "the command ignores hangups, too"
        run.send_signal(signal.SIGHUP)
        run.send_signal(signal.SIGTERM)
        run.wait_for_end(143)
    assert "SIGHUP" not in run.err


def test_a_key_finds_its_request_in_the_queue_again_and_not_while_another_run_holds_it(lab: RunLab) -> None:
    with lab.run(*ALL, "--key", "nightly", script=SLEEP) as run:
        start = lab.wait_for_start()
        with lab.run(*ALL, "--key", "nightly", script=SLEEP) as second:
            second.wait_for_end(ExitCode.REFUSED)
        assert f"request {start.request} of this key already holds units" in second.err
        assert lab.request(start.request)["status"] == "allocated"
        run.send_signal(signal.SIGTERM)
        run.wait_for_end(143)
    assert len(lab.lines()) == 1


def test_two_runs_of_a_key_that_wait_together_do_not_run_together(lab: RunLab) -> None:
    holder = lab.submit_for_all()
    script = BEGIN + "trap 'exit 4' USR2\n" + WORK
    with lab.run(*ALL, "--key", "nightly", script=script) as item, lab.run(*ALL, "--key", "nightly", script=script) as other:
        for run in (item, other):
            run.wait_for_message("waiting in gpus")
        lab.release(holder)
        wait_until(lambda: None not in (item.process.poll(), other.process.poll()) or len(lab.lines()) == 1, "one has begun")
        wait_until(lambda: item.process.poll() is not None or other.process.poll() is not None, "the other has ended")
        loser, winner = (item, other) if item.process.poll() is not None else (other, item)
        loser.wait_for_end(ExitCode.REFUSED)
        assert "of this key already holds units" in loser.err
        winner.send_signal(signal.SIGUSR2)
        winner.wait_for_end(4)
    assert len(lab.lines()) == 1
    lab.check_invariants()


def test_a_run_with_the_key_of_a_dead_run_does_not_prolong_its_lease(lab: RunLab) -> None:
    query = ("--component", "team", "--gpu", "4", "--lease", "60", "--key", "nightly")
    with lab.run(*query, script=SLEEP) as run:
        start = lab.wait_for_start()
        run.send_signal(signal.SIGKILL)
        run.wait_for_end(-signal.SIGKILL)
    until = lab.request(start.request)["lease_expires_at"]
    with lab.run(*query, script=SLEEP) as again:
        again.wait_for_end(ExitCode.REFUSED)
    assert lab.request(start.request)["lease_expires_at"] == until
    lab.expire_leases()
    with lab.run(*query, script=SLEEP) as late:
        late.wait_for_end(ExitCode.ENDED)
    assert "is expired" in late.err, "a key is used up with its request"
    lab.check_invariants()


def test_nothing_of_it_stays(lab: RunLab) -> None:
    with lab.run(*ALL, script=f"sleep 303 & {SLEEP}") as run:
        lab.wait_for_start()
        below = descendants(run.pid)
        assert len(below) == 3
        run.send_signal(signal.SIGTERM)
        run.wait_for_end(143)
        wait_until_dead(below)


def test_without_a_service_it_says_so(lab: RunLab) -> None:
    with lab.run(*ALL, "--url", "http://127.0.0.1:1", script=SLEEP) as run:
        run.wait_for_end(ExitCode.UNAVAILABLE)
    assert run.err.splitlines()[0] == "poolkeeper: no answer from http://127.0.0.1:1: Connection refused"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--component team --gpu 1 true", "the command is missing: it stands at the end, after --"),
        ("--component team --gpu 1 --", "the command is missing: it stands at the end, after --"),
        ("--component team echo -- hi", "unexpected argument echo: the command stands at the end, after --"),
        ("--component team echo hi --", "unexpected argument echo: the command stands at the end, after --"),
        ("--component team --gpu 1 stray -- true", "unexpected argument stray: the command stands at the end, after --"),
        ("--component team --gpu two -- true", "an amount needs a whole number, not two"),
        ("--component team --gpu=1.5 -- true", "--gpu takes a whole number, not 1.5"),
        ("--component team --gpu -- true", "an amount needs a whole number, not nothing"),
        ("--component team --gpu 1 --gpu 2 -- true", "--gpu is given twice"),
        ("--component team --gpu 1 --resource gpu=2 -- true", "--resource: gpu is given twice"),
        ("--componnent team --gpu 1 -- true", "No such option '--componnent'. Did you mean '--component'?"),
        ("--component team --gpu 1 --waltime 30 -- true", "No such option '--waltime'. Did you mean '--walltime'?"),
        ("--component team --gpu 1 --tokens 3 -- true", "As an amount it is --resource tokens=3"),
        ("--component team --gpu 1 --GPU 3 -- true", "No such option '--GPU'"),
        ("--component team -- true", "the request has no amounts"),
        ("--component team --gpu 1 --key k --lease none -- true", "--key needs a lease"),
        ("--gpu 1 -- true", "Missing option '--component'"),
        ("--component team --gpu 1 --on-lost wait -- true", "'wait' is not one of"),
    ],
)
def test_wrong_usage(poolkeeper: Program, words: str, message: str) -> None:
    ran = poolkeeper("run", *words.split(), ends=ExitCode.USAGE)
    assert message in ran.err.splitlines()[0]
    assert ran.err.splitlines()[1] == "  see: poolkeeper run --help"


def test_checkpoint_outside_of_a_run(poolkeeper: Program) -> None:
    ran = poolkeeper("checkpoint", "done", ends=ExitCode.USAGE)
    assert "this is for a command of `poolkeeper run`" in ran.err
    ended = str(poolkeeper.folder / "gone" / "checkpoint")
    ran = poolkeeper("checkpoint", "failed", ends=ExitCode.REFUSED, POOLKEEPER_CHECKPOINT_FILE=ended)
    assert "does not read" in ran.err
    lines = ("checkpoint", "done", "--reference", "a\nb")
    assert "one line" in poolkeeper(*lines, ends=ExitCode.USAGE, POOLKEEPER_CHECKPOINT_FILE=ended).err


def test_checkpoint_where_there_is_no_file(lab: RunLab) -> None:
    request = lab.program("request", "submit", "--component", "team", "--resource", "gpu=1", "-o", "json").json
    names = {"POOLKEEPER_REQUEST": request["id"], "POOLKEEPER_FENCE": str(request["fence"])}
    assert lab.program("checkpoint", "done", "--reference", "step 3", **names).line == f"request {request['id']}: continue"
    assert lab.request(request["id"])["checkpoint_reference"] == "step 3"
    assert os.environ.get("POOLKEEPER_REQUEST") is None
