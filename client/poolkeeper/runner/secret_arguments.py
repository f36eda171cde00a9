"""The text of a command for people, with masks in place of values that look like secrets.

Not every secret can be recognised: `mysql -phunter2` looks like any other option. For such a command,
`--no-record-arguments` leaves out all arguments.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence

from poolkeeper.formatting import one_line

MASK = "***"
MAX_LENGTH = 255
"""The most characters of a label."""
MAX_ARGUMENT = 4096
"""The most characters of an argument that are read. The last word of a longer argument is dropped, because it may be part of a
secret."""

_SECRET_WORDS = ("auth", "authorization", "bearer", "cookie", "credential", "credentials", "dsn", "key", "pass", "pwd")
_SECRET_ENDINGS = (
    *("password", "passwd", "passphrase", "passcode", "secret", "secrets"),
    *("token", "apikey", "accesskey", "privatekey"),
)

_NAME = r"(?P<name>(?<![\w.-])[\w.-]+)"
_VALUE = r"""(?:"[^"]*"|'[^']*'|[^\s&;,"']+)"""
_WHOLE_ASSIGNMENT = re.compile(rf"{_NAME}=.*", re.DOTALL)
_CREDENTIALS = re.compile(r"(?<=://)(?:[^\s/?#]+|[^\s/@:]*:[^\s@]+)@")
_ASSIGNMENT = re.compile(rf"{_NAME}(?P<sign>=){_VALUE}")
_FIELD = re.compile(rf"""{_NAME}(?P<sign>["']?\s*:\s*)(?!//)["']?(?:(?:basic|bearer|token)\s+)?[^\s"',}}]+""", re.IGNORECASE)
_OPTION_AND_VALUE = re.compile(rf"(?=-){_NAME}(?P<sign>\s+)(?!--){_VALUE}")
_SCHEME = re.compile(r"\b(?P<name>basic|bearer)(?P<sign>\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
_KNOWN_SECRET = re.compile(
    r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}|\bgh[oprsu]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}"
    r"|\bhf_[A-Za-z0-9]{16,}|\bxox[abprs]-[\w-]{8,}|\bA[KS]IA[A-Z0-9]{12,}|\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]+)?"
    r"|\b(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{32,}\b"
)
"""Tokens of well-known services, JSON Web Tokens, and long words of letters and digits."""
_USER_AND_PASSWORD = re.compile(r"([^\s:/@]+):[^\s/].*", re.DOTALL)
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")


def command_line(argv: Sequence[str], *, has_arguments: bool = True) -> str:
    """Return the program's name and, with `has_arguments`, its arguments; values that look like secrets are masked."""
    text = _quote(os.path.basename(argv[0]) or argv[0])
    for word in _masked_arguments(argv[1:]) if has_arguments else ():
        text += f" {_quote(word)}"
        if len(text) > MAX_LENGTH:
            break
    text = one_line(text)
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 1] + "…"


def _masked_arguments(arguments: Sequence[str]) -> Iterator[str]:
    option = ""
    for argument in arguments:
        if _is_secret(option) and not argument.startswith("--"):
            yield MASK
        elif option in ("-u", "--user") and (user := _USER_AND_PASSWORD.fullmatch(argument)):
            yield f"{user[1]}:{MASK}"
        elif (assignment := _WHOLE_ASSIGNMENT.fullmatch(argument)) and _is_secret(assignment["name"]):
            yield f"{assignment['name']}={MASK}"
        else:
            yield _mask(argument)
        option = argument if argument.startswith("-") and "=" not in argument else ""


def _mask(text: str) -> str:
    """Return an argument or a script with a mask in place of each value that looks like a secret."""
    if len(text) > MAX_ARGUMENT:
        text = f"{text[:MAX_ARGUMENT].rpartition(' ')[0]} …"
    text = _CREDENTIALS.sub(f"{MASK}@", text)
    for pattern in (_ASSIGNMENT, _FIELD, _OPTION_AND_VALUE):
        text = pattern.sub(_mask_value, text)
    text = _SCHEME.sub(rf"\g<name>\g<sign>{MASK}", text)
    return _KNOWN_SECRET.sub(MASK, text)


def _mask_value(match: re.Match[str]) -> str:
    name, sign = match["name"], match["sign"]
    is_variable = sign == "=" and _VARIABLE.fullmatch(name)
    return f"{name}{sign}{MASK}" if is_variable or _is_secret(name) else match[0]


def _is_secret(name: str) -> bool:
    """True if a value with this name may be a secret: `--api-key`, `DB_PASSWORD`, `accessToken`."""
    words = re.split(r"[-_.]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower())
    return any(word in _SECRET_WORDS or word.endswith(_SECRET_ENDINGS) for word in words)


def _quote(word: str) -> str:
    """Return a word with the quotes that a shell needs. A mask needs none."""
    return word if word and shlex.quote(word.replace(MASK, "")) in (word.replace(MASK, ""), "''") else shlex.quote(word)
