# All that a host may say: types, lengths, the form of a tag. Pure.
# Must never break: an answer that does not fit is never half believed, and its host counts as failed. No value from here can make
# a decision fail, move a cursor on a terminal, or be invalid as UTF-8.

from __future__ import annotations

import json
import re
import unicodedata

SAID_MAX = 300
TEXT_MAX = 16_384
LIST_MAX = 200
NUMBER_MAX = 2**53
LINES_MAX = 1024 * 1024
EXIT_MAX = 9
# `$` would also allow a line feed at the end
PART = r"(0|[1-9]\d{0,8}|\d{0,8}[A-Za-z][0-9A-Za-z]{0,15})"
TAG = re.compile(r"v(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})(-(?!(deploy|holder)\Z)" + PART + r"(\." + PART + r"){0,2})?\Z", re.ASCII)
WORD = re.compile(r"[A-Za-z0-9_.-]{1,60}\Z")
# an id, a sum, a time
NAME = re.compile(r"[!-~]{1,300}\Z")
PLATFORM = re.compile(r"[A-Za-z0-9_. -]{1,60}\Z")
OUTCOMES = ("updated", "up_to_date", "rolled_back", "reverted", "failed", "cancelled", "planned", "status", "paused", "unpaused", "installed")


class Misfit(ValueError):
    """A host's answer does not fit the schema."""


def clean(text, most=SAID_MAX):
    """One line for people: without half characters, and without what steers a terminal or turns the direction of a text around."""
    plain = "".join(" " if unicodedata.category(one)[0] == "C" or one in "\u2028\u2029" else one for one in str(text)[:TEXT_MAX])
    return " ".join(plain.split())[:most]


def order(tag):
    """The sort key of a tag, as semver orders them: a prerelease is older than its release."""
    numbers, hyphen, rest = tag[1:].partition("-")
    parts = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in rest.split(".")] if hyphen else []
    return [[int(part) for part in numbers.split(".")], not hyphen, parts]


def _form(pattern, tell):
    def check(value, where):
        if not isinstance(value, str) or not pattern.match(value):
            raise Misfit(f"`{where}`: expected {tell}, got {clean(repr(value), 60)}")
        return value

    return check


def _text(value, where):
    if not isinstance(value, str) or len(value) > TEXT_MAX:
        raise Misfit(f"`{where}`: expected a text of at most {TEXT_MAX} characters, got {clean(repr(value), 60)}")
    return clean(value)


def _flag(value, where):
    if not isinstance(value, bool):
        raise Misfit(f"`{where}`: expected true or false, got {clean(repr(value), 60)}")
    return value


def _up_to(most):
    def check(value, where):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise Misfit(f"`{where}`: expected 0 to {most}, got {clean(repr(value), 60)}")
        return value

    return check


def _outcome(value, where):
    if not isinstance(value, str) or value not in OUTCOMES:
        raise Misfit(f"`{where}`: expected one of {', '.join(OUTCOMES)}, got {clean(repr(value), 60)}")
    return value


def _each(shape):
    def check(value, where):
        if not isinstance(value, list) or len(value) > LIST_MAX:
            raise Misfit(f"`{where}`: expected a list of at most {LIST_MAX}, got {clean(repr(value), 60)}")
        return [shape(one, where) for one in value]

    return check


def _object(**members):
    def check(value, where):
        if not isinstance(value, dict):
            raise Misfit(f"`{where}`: expected an object, got {clean(repr(value), 60)}")
        # unknown members may be there; they are dropped
        return {key: None if value.get(key) is None else member(value[key], key) for key, member in members.items()}

    return check


_tag, _word, _name = _form(TAG, "a tag of the form vX.Y.Z"), _form(WORD, "a word"), _form(NAME, "a name")
_bad = _each(_object(tag=_tag, why=_text, reason=_text))
# the last line of each command of the managed install or the container tool; null may stand for any member
_answer = _object(
    event=_word,
    outcome=_outcome,
    would=_outcome,
    exit=_up_to(EXIT_MAX),
    message=_text,
    hint=_text,
    why=_text,
    installed=_tag,
    running=_tag,
    backup=_tag,
    latest=_tag,
    to=_tag,
    operationId=_name,
    sha256=_name,
    digest=_name,
    healthy=_flag,
    inFlight=_word,
    containerId=_name,
    startedAt=_name,
    bad=_bad,
    skipped=_bad,
    findings=_each(_object(check=_word, level=_word, message=_text, hint=_text)),
    instance=_object(id=_name, pid=_up_to(NUMBER_MAX), startedAt=_name),
    supervisor=_object(word=_word, restarts=_up_to(NUMBER_MAX)),
    problem=_object(code=_word, message=_text),
    probation=_object(tag=_tag),
    schedule=_object(mode=_word, pausedUntil=_name),
    trial=_object(verdict=_word, reason=_text),
    operation=_object(id=_name, kind=_word, to=_tag, outcome=_outcome, error=_object(message=_text), **{"from": _tag}),
    **{"from": _tag},
)


def answer(line):
    """One line as an object with every known member. Raises Misfit."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Misfit(f"expected an object in JSON, got {clean(line, 60)!r}") from error
    return _answer(value, "the answer")


def ended(text):
    """The exit code of a command, one of those that all of Baton's commands share. Raises Misfit."""
    if not re.match(r"[0-9]\Z", text, re.ASCII):
        raise Misfit(f"expected an exit code from 0 to {EXIT_MAX}, got {clean(text, 60)}")
    return int(text)


def platform(text):
    return _form(PLATFORM, "a platform")(text.strip(), "platform")


def lines(stdout):
    if len(stdout) > LINES_MAX:
        raise Misfit(f"expected at most {LINES_MAX} characters, got {len(stdout)}")
    return [line.rstrip("\r") for line in stdout.split("\n")]
