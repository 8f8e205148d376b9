# Turns a host's answer into values: from the lines of plugins/modules/release.sh to what was seen and how a move ended. Pure.

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.baton.fleet.plugins.module_utils import schema
from ansible_collections.baton.fleet.plugins.module_utils.schema import SAID_MAX, Misfit, clean
from ansible_collections.baton.fleet.plugins.module_utils.words import EXIT, GOOD

OUTCOME_OF_EXIT = {6: "busy", 8: "reverted", 9: "down"}


@dataclass
class Call:
    """One call of the managed install's command. `last` is its last JSON line, which says how it ended."""

    verb: str
    exit: int
    last: dict | None
    stderr: str
    platform: str = ""
    # why the answer does not fit the schema; then nothing of it is believed
    misfit: str | None = None

    @property
    def busy(self):
        """An operation is in flight, or what runs has yet to prove itself. A service that is down is not busy."""
        last = self.last or {}
        return self.exit == 0 and (in_flight(last) is not None or bool(last.get("probation")))

    @property
    def why(self):
        last = self.last or {}
        if self.misfit:
            more = _last_line(self.stderr)
            return clean(f"{self.misfit}{f' ({more})' if more else ''}")
        return last.get("message") or last.get("why") or _last_line(self.stderr) or "the host printed nothing"


def unreadable(misfit):
    return f"could not read the host's response: {misfit}"


def _last_line(text):
    return clean((str(text).strip().splitlines() or [""])[-1])


def parse(stdout, stderr, code, verbs):
    """The calls of one connection, in the order of `verbs`. A missing one was cut off."""
    try:
        return _calls(schema.lines(stdout), stderr, code, verbs)
    except Misfit as misfit:
        return [Call(verb, -1, None, stderr, misfit=unreadable(misfit)) for verb in verbs]


def silent(verbs, seconds):
    """The calls of a host that has not answered."""
    return [Call(verb, -1, None, "", misfit=f"the host did not answer within {seconds} s") for verb in verbs]


def _calls(lines, stderr, code, verbs):
    calls, said, platform, missing, ran = [], [], "", False, False
    for line in lines:
        if line.startswith("@platform ") and not ran:
            ran, platform = True, schema.platform(line[10:])
        elif line == "@missing":
            missing = True
        elif line.startswith("@began "):
            if line[7:] not in verbs[len(calls) : len(calls) + 1]:
                raise Misfit(f"expected an answer to what was asked, got one to {clean(line[7:], 60)!r}")
            calls.append(Call(line[7:], -1, None, stderr, platform))
            said.append((None, None))
        elif line.startswith("@ended ") and calls:
            said[-1] = (said[-1][0], line[7:])
        elif line.startswith("{") and calls:
            said[-1] = (line, said[-1][1])
    if missing:
        return [Call(verb, 127, None, "", platform) for verb in verbs]
    if not ran:
        return [Call(verb, 126, None, stderr, misfit=None if code else "the host did not answer") for verb in verbs]
    for call, (line, ended) in zip(calls, said):
        _take(call, line, ended)
    cut = [Call(verb, -1, None, stderr, platform, CUT) for verb in verbs[len(calls) :]]
    return calls + cut


CUT = "the answer was cut off"


def _take(call, line, ended):
    """Sets the call's last line and its exit code."""
    try:
        call.last = None if line is None else _one_tongue(schema.answer(line))
        if ended is None:
            raise Misfit(CUT)
        call.exit = schema.ended(ended)
    except Misfit as misfit:
        call.exit, call.last, call.misfit = -1, None, unreadable(misfit)


def _one_tongue(value):
    """Translates a status of the container tool, which has other words for what runs and what ran before."""
    if value["outcome"] != "status":
        return value
    container = value["containerId"]
    instance = {"id": container, "pid": None, "startedAt": value["startedAt"]} if container else None
    return {**value, "running": value["to"], "installed": value["to"], "backup": value["from"], "instance": instance}


def in_flight(status):
    """The operation in flight, or None. For a container, only that there is one is known, and what it goes from."""
    if status.get("inFlight"):
        return {"kind": status["inFlight"], "from": status.get("backup")}
    operation = status.get("operation") or None
    return operation if operation and operation.get("outcome") is None else None


def looked(calls, route):
    """What a look has found, in the words of `status --json`. `refused`: why this host cannot take part, or None."""
    status = next((call for call in calls if "status" in call.verb), calls[0])
    check = next((call for call in calls if call.verb == "check --json"), None)
    doctor = next((call for call in calls if call.verb.startswith("doctor")), None)
    dry = next((call for call in reversed(calls) if "--dry-run" in call.verb), None)
    now, offered = status.last or {}, (check.last or {}) if check else {}
    operation = in_flight(now)
    running = now.get("running")
    bad = now.get("bad") or offered.get("skipped")
    planned = (dry.last or {}) if dry else {}
    return {
        "route": route,
        "platform": status.platform,
        "running": running,
        "installed": now.get("installed"),
        "backup": now.get("backup"),
        "instance": (now.get("instance") or {}).get("id"),
        # during an operation, the host can go back to what that operation goes from
        "from": operation["from"] if operation else running,
        "inFlight": operation and {key: operation.get(key) for key in ("id", "kind", "from", "to")},
        "lastOperation": _brief(now.get("operation")),
        "probation": now.get("probation"),
        "byItself": by_itself(now.get("schedule")),
        "latest": offered.get("latest") or (planned.get("to") if route == "container" else None),
        "bad": [{"tag": it.get("tag"), "why": it.get("why") or it.get("reason")} for it in bad or []],
        "problem": _problem(check, offered),
        "sha256": planned.get("sha256") or planned.get("digest"),
        "would": planned.get("would"),
        # how the host's trial of it has ended, if there was one
        "trial": planned.get("trial"),
        "refused": _refusal(calls, status, doctor, dry, check),
    }


def by_itself(schedule):
    """Which releases this host takes without being asked: a word for people; None if none, or if it is older than that."""
    mode = (schedule or {}).get("mode")
    if mode not in ("patch", "minor", "all"):
        return None
    held = schedule.get("pausedUntil")
    return f"{mode}, paused until {held}" if held else mode


def _problem(check, offered):
    """Why this host cannot tell the latest release, and how its own command ends for that; None if it can."""
    if not check or not offered.get("problem") or offered.get("latest"):
        return None
    return {"why": offered["problem"].get("message") or "", "exit": check.exit or EXIT["network"]}


def _brief(operation):
    keys = ("id", "from", "to", "outcome", "error")
    return operation and {key: operation.get(key) for key in keys}


def _refusal(calls, status, doctor, dry, check):
    if status.exit == 127:
        return {"why": "the command is not on this host: install the service first", "exit": 7}
    if status.exit == 126:
        return {"why": f"no command could be started on the host: {status.why}", "exit": 7}
    for call in calls:
        if call.misfit:
            return {"why": call.why, "exit": EXIT["unexpected"]}
    if status.exit != 0 or status.last is None:
        why = status.why if (status.last or {}).get("event") == "error" or status.last is None else _down(status.last)
        return {"why": why, "exit": status.exit or EXIT["unexpected"]}
    if not status.last.get("running") and not in_flight(status.last):
        return {"why": _down(status.last), "exit": EXIT["down"]}
    if status.last.get("healthy") is False and not in_flight(status.last):
        return {"why": "the container is not healthy", "exit": EXIT["down"]}
    for finding in ((doctor.last or {}).get("findings") or []) if doctor else []:
        # doctor checks the space for the newest release; for another release the dry run does, and going back needs none
        if finding.get("check") == "space" and not check:
            continue
        # an older host says failure
        if finding.get("level") in ("problem", "failure"):
            hint = f" (hint: {finding['hint']})" if finding.get("hint") else ""
            why = f"{finding.get('check')}: {finding.get('message')}{hint}"
            return {"why": why, "exit": doctor.exit or EXIT["refused"]}
    for call in calls:
        if "pause" in call.verb and call.exit != 0:
            return {"why": call.why, "exit": call.exit}
    # a host that is locked may take part: when its turn comes, it waits for the other operation
    if dry and dry.exit not in (0, EXIT["locked"]):
        return {"why": dry.why, "exit": dry.exit}
    return None


def _down(status):
    word = (status.get("supervisor") or {}).get("word") or "nothing answers"
    return f"the service is down ({word})"


def moved(calls, to):
    """How a move ended. An answer that cannot be read is `unknown`, never a success."""
    call = calls[0]
    last = call.last or {}
    operation = last.get("operation") or {}
    result = {
        "from": last.get("from") or operation.get("from"),
        "to": last.get("to") or operation.get("to") or to,
        "operationId": last.get("operationId") or operation.get("id"),
        "exit": call.exit,
        "why": None,
    }
    if call.exit == 0 and last.get("event") == "result":
        outcome = last.get("outcome")
        # `install` has written the unit, and had nothing to move
        if outcome == "installed" and result["from"] == result["to"]:
            outcome = "up_to_date"
        if outcome in GOOD:
            return {**result, "outcome": outcome}
    if call.misfit or call.exit <= 0:
        why = call.why if call.misfit else f"the command exited with code 0, but reported no outcome: {call.why}"
        return {**result, "outcome": "unknown", "why": why, "exit": EXIT["unexpected"]}
    if call.exit in (126, 127):
        return {**result, "outcome": "failed", "why": f"no command could be started on the host: {call.why}", "exit": EXIT["refused"]}
    outcome = OUTCOME_OF_EXIT.get(call.exit) or ("reverted" if last.get("outcome") == "reverted" else "failed")
    hint = last.get("hint")
    return {**result, "outcome": outcome, "why": f"{call.why}{f' (hint: {hint})' if hint else ''}"[:SAID_MAX]}


def settled(status, before=None):
    """What runs now. `before`: the process that ran when the move ended. Another one means that the service ended by itself."""
    now = status.last or {}
    return {
        "running": now.get("running") if status.exit in (0, EXIT["down"]) and now.get("healthy") is not False else None,
        "known": status.exit in (0, EXIT["down"]),
        "busy": status.busy,
        "lastOperation": _brief(now.get("operation")),
        "restarted": another(before, alive(status)),
        "exit": status.exit,
        "why": None if status.exit == 0 else status.why if now.get("event") != "result" else _down(now),
    }


def alive(status):
    """The process that serves, and how often its supervisor has started it; None if no process is known."""
    now = status.last or {}
    instance, restarts = now.get("instance") or {}, (now.get("supervisor") or {}).get("restarts")
    if status.exit != 0 or not now.get("running") or not instance.get("id"):
        return None
    return {**{key: instance.get(key) for key in ("id", "pid", "startedAt")}, "restarts": restarts}


def another(before, now):
    """Says in words that this is not the process from before; None if it is, or if either is not known."""
    if not before or not now:
        return None
    differing = [key for key in before if None not in (before[key], now[key]) and before[key] != now[key]]
    if not differing:
        return None
    since = f"; started at {now['startedAt']}" if now["startedAt"] else ""
    count = f"; restarts: {before['restarts']} before, {now['restarts']} now" if "restarts" in differing else ""
    return f"the service restarted unexpectedly (pid {before['pid'] or '?'} before, {now['pid'] or '?'} now{since}{count})"
