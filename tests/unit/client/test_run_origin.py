"""The labels by which `run` names the origin of a request, without secrets."""

from __future__ import annotations

import os
import pwd
import socket
import time

import pytest
from poolkeeper import request_origin
from poolkeeper.runner.origin_labels import with_origin
from poolkeeper.runner.secret_arguments import MAX_LENGTH, command_line


def test_a_request_says_where_it_comes_from() -> None:
    body = with_origin({"component": "team"}, ["/usr/bin/python", "train.py"], has_arguments=True, has_pid=True)
    user, host = pwd.getpwuid(os.getuid()).pw_name, socket.gethostname().partition(".")[0]
    labels = {"user": user, "host": host, "command": "python train.py", "pid": str(os.getpid())}
    assert body == {"component": "team", "labels": labels}
    assert request_origin.owner(labels) == f"{user}@{host}"


def test_a_label_of_the_user_wins() -> None:
    body = with_origin({"labels": {"user": "ana", "x": "1"}}, ["a"], has_arguments=True, has_pid=False)
    host = socket.gethostname().partition(".")[0]
    assert body["labels"] == {"user": "ana", "x": "1", "host": host, "command": "a"}


def test_the_labels_are_never_too_many() -> None:
    given = {f"k{number}": "" for number in range(31)}
    body = with_origin({"labels": given}, ["a"], has_arguments=True, has_pid=True)
    assert [*body["labels"]] == [*given, "user"]
    full = given | {"k31": "", "k32": ""}
    assert with_origin({"labels": full}, ["a"], has_arguments=True, has_pid=True)["labels"] == full, "the service says so"


def test_a_user_without_a_name_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 4_000_000_123)
    body = with_origin({}, ["a"], has_arguments=True, has_pid=False)
    assert body["labels"]["user"] == "4000000123"


def test_arguments_are_left_out_if_wanted() -> None:
    assert command_line(["/opt/venv/bin/python", "train.py", "--epochs", "9"], has_arguments=False) == "python"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["python", "train.py", "--epochs", "9"], "python train.py --epochs 9"),
        (["./train.sh", "two words"], "train.sh 'two words'"),
        (["sh", "-c", "echo a\necho b"], "sh -c 'echo a echo b'"),
        (["python", "x.py", "--max-tokens", "512", "--tokenizer", "gpt2"], "python x.py --max-tokens 512 --tokenizer gpt2"),
        (["docker", "run", "-v", "/data:/data", "-p", "80:80", "x:1"], "docker run -v /data:/data -p 80:80 x:1"),
        (["curl", "-u", "ana", "http://host:80/a?b=c"], "curl -u ana 'http://host:80/a?b=c'"),
        (["a", "", "-"], "a '' -"),
        (["a", "b\x1b[31m\udcff"], "a 'b?[31m?'"),
    ],
)
def test_a_command_is_one_line(words: list[str], line: str) -> None:
    assert command_line(words) == line


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["p", "--password", "hunter2", "x"], "p --password *** x"),
        (["p", "--password", "-hunter2"], "p --password ***"),
        (["p", "--token=hunter2"], "p --token=***"),
        (["p", "--token=hunter2;rest of it & more"], "p --token=***"),
        (["p", "--api-key", "hunter2"], "p --api-key ***"),
        (["p", "--apiKey=hunter2"], "p --apiKey=***"),
        (["p", "-key", "hunter2"], "p -key ***"),
        (["p", "--db.password=hunter2"], "p --db.password=***"),
        (["p", "--auth", "--verbose"], "p --auth --verbose"),
        (["env", "KEY=hunter2", "python"], "env KEY=*** python"),
        (["env", "WANDB_API_KEY=hunter2", "python"], "env WANDB_API_KEY=*** python"),
        (["env", "PGPASSWORD=hun ter2", "psql"], "env PGPASSWORD=*** psql"),
        (["env", "ANYTHING=hunter2"], "env ANYTHING=***"),
        (["p", "db_password=hunter2"], "p db_password=***"),
        (["psql", "postgres://ana:hunter2@db/x"], "psql postgres://***@db/x"),
        (["psql", "postgres://ana:hun@ter2@db/x"], "psql postgres://***@db/x"),
        (["psql", "postgres://ana:hun/ter2@db/x"], "psql postgres://***@db/x"),
        (["git", "clone", "https://hunter2@github.com/a"], "git clone https://***@github.com/a"),
        (["curl", "http://h/a?token=hunter2&b=c"], "curl 'http://h/a?token=***&b=c'"),
        (["curl", "-u", "ana:hunter2"], "curl -u ana:***"),
        (["curl", "-H", "Authorization: Bearer hunter2hunter2"], "curl -H 'Authorization: ***'"),
        (["curl", "-H", "X-Api-Key: hunter2"], "curl -H 'X-Api-Key: ***'"),
        (["curl", "-d", '{"user": "a", "password": "hunter2"}'], """curl -d '{"user": "a", "password": ***"}'"""),
        (["sh", "-c", "A=1 tool --password hunter2 x"], "sh -c 'A=*** tool --password *** x'"),
        (["sh", "-c", "export HF_TOKEN=hunter2; python x"], "sh -c 'export HF_TOKEN=***; python x'"),
        (["sh", "-c", "tool --secret 'hunter 2' x"], "sh -c 'tool --secret *** x'"),
        (["p", "ghp_0123456789abcdefghij"], "p ***"),
        (["p", "eyJhbGciOiJI.eyJzdWIi.c2ln"], "p ***"),
        (["p", "0123456789abcdef0123456789abcdef"], "p ***"),
        (["p", "--id", "AKIAIOSFODNN7EXAMPLE"], "p --id ***"),
    ],
)
def test_secrets_are_masked(words: list[str], line: str) -> None:
    masked = command_line(words)
    assert masked == line
    assert "hunter" not in masked


def test_a_long_command_is_cut_after_its_secrets_are_masked() -> None:
    line = command_line(["python", *["x" * 20] * 20])
    assert len(line) == MAX_LENGTH
    assert line.endswith("…")
    script = "x " * 100 + "--token " + "hunter2" * 100
    assert "hunter" not in command_line(["sh", "-c", script])
    assert "hunter" not in command_line(["sh", "-c", "A=" + "x" * 4080 + " ftp://hunter2:" + "p" * 100 + "@host"])
    assert command_line(["p", "x" * 5000]) == "p ' …'"


@pytest.mark.parametrize("piece", ["a", "-", "a=", "://a:b", "a: ", "--a ", '"', " ", "A1", "sk-", "="])
def test_the_longest_arguments_take_no_time(piece: str) -> None:
    began_s = time.process_time()
    command_line(["p", (piece * 131_072)[:131_072], *[piece * 1000] * 1000])
    assert time.process_time() - began_s < 2
