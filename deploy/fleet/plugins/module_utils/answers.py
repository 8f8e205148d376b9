# What a host has said, as values: from the lines of plugins/modules/release.sh to what was seen and how it ended. Pure.

from __future__ import annotations

import json
from dataclasses import dataclass, field

SAID_MAX = 300
OUTCOME_OF_EXIT = {6: "busy", 8: "reverted", 9: "down"}


@dataclass
class Call:
    """One call of the managed install's command. `last` is its last JSON line, which says how it ended."""

    verb: str
    exit: int
    last: dict | None
    stderr: str
    platform: str = ""
    lines: list = field(default_factory=list)

    @property
    def busy(self):
        """Somebody is at it, or what runs has yet to prove itself. A service that is down is at nothing."""
        last = self.last or {}
        return self.exit == 0 and (in_flight(last) is not None or bool(last.get("unproven")))

    @property
    def why(self):
        last = self.last or {}
        said = last.get("message") or last.get("why") or self.stderr.strip().splitlines()[-1:] or "it said nothing"
        text = said[0] if isinstance(said, list) else str(said)
        return text[:SAID_MAX]


def parse(stdout, stderr, code, verbs):
    """The calls of one connection, in order. One that is missing counts as ended by 127."""
    calls, platform, missing = [], "", False
    for line in stdout.splitlines():
        if line.startswith("@platform "):
            platform = line[10:].strip()
        elif line == "@missing":
            missing = True
        elif line.startswith("@began "):
            calls.append(Call(line[7:], -1, None, stderr, platform))
        elif line.startswith("@ended ") and calls:
            calls[-1].exit = int(line[7:])
        elif line.startswith("{") and calls:
            _take(calls[-1], line)
    if missing:
        return [Call(verb, 127, None, "", platform) for verb in verbs]
    return calls or [Call(verb, code or 1, None, stderr, platform) for verb in verbs]


def _take(call, line):
    try:
        value = json.loads(line)
    except ValueError:
        return
    if isinstance(value, dict):
        if value.get("outcome") == "status":  # the container tool's words for what runs and what ran before
            instance = value.get("containerId") and {"id": value["containerId"]}
            value = {"running": value.get("to"), "backup": value.get("from"), "instance": instance, **value}
        call.last = value
        call.lines.append(value)


def in_flight(status):
    """The operation in somebody's hands, or None. Of a container only that there is one is known, and what it goes from."""
    if status.get("inFlight"):
        return {"kind": status["inFlight"], "from": status.get("backup")}
    operation = status.get("operation") or None
    return operation if operation and operation.get("outcome") is None else None


def looked(calls, route):
    """What a look has found: words of `status --json`, and `refused` where this host cannot take part."""
    status = calls[0]
    check = next((call for call in calls if call.verb == "status --check --json"), None)
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
        "installed": now.get("installed", running),
        "backup": now.get("backup"),
        "instance": (now.get("instance") or {}).get("id"),
        # while somebody is at it, it is what that operation goes from that this host can go back to
        "from": operation["from"] if operation else running,
        "inFlight": operation and {key: operation.get(key) for key in ("id", "kind", "from", "to")},
        "lastOperation": _brief(now.get("operation")),
        "unproven": now.get("unproven"),
        "latest": offered.get("latest") or (planned.get("to") if route == "container" else None),
        "bad": [{"tag": it.get("tag"), "why": it.get("why") or it.get("reason")} for it in bad or []],
        "sha256": planned.get("sha256") or planned.get("digest"),
        "would": planned.get("would"),
        "refused": _refusal(status, doctor, dry, check),
    }


def _brief(operation):
    keys = ("id", "from", "to", "outcome", "error")
    return operation and {key: operation.get(key) for key in keys}


def _refusal(status, doctor, dry, check):
    if status.exit == 127:
        return {"why": "the command is not on this host: install the service first", "exit": 7}
    if status.exit != 0 or status.last is None:
        why = status.why if (status.last or {}).get("event") == "error" or status.last is None else _down(status.last)
        return {"why": why, "exit": status.exit if 0 < status.exit < 10 else 1}
    if not status.last.get("running") and not in_flight(status.last):
        return {"why": _down(status.last), "exit": 9}
    if status.last.get("healthy") is False and not in_flight(status.last):
        return {"why": "the container is not healthy", "exit": 9}
    for finding in ((doctor.last or {}).get("findings") or []) if doctor else []:
        # doctor reckons the room for the newest release; for another one the dry run does, and going back needs none
        if finding.get("check") == "space" and not check:
            continue
        if finding.get("level") == "failure":
            return {"why": f"{finding.get('check')}: {finding.get('message')}", "exit": doctor.exit or 7}
    # somebody else is at it: there is a time to wait for that, when it is its turn
    if dry and dry.exit not in (0, 6):
        return {"why": dry.why, "exit": dry.exit if 0 < dry.exit < 10 else 1}
    return None


def _down(status):
    word = (status.get("supervisor") or {}).get("word") or "nobody answers"
    return f"the service is down ({word})"


def moved(calls, to):
    """How a move ended. What cannot be read is `unknown`, never a success."""
    call = calls[0] if calls else Call("", 127, None, "it was not called")
    last = call.last or {}
    operation = last.get("operation") or {}
    result = {
        "from": last.get("from") or operation.get("from"),
        "to": last.get("to") or operation.get("to") or to,
        "operationId": last.get("operationId") or operation.get("id"),
        "exit": call.exit,
        "why": None,
    }
    if call.exit == 0 and last.get("event") == "result" and last.get("outcome"):
        return {**result, "outcome": last["outcome"]}
    if call.exit == 0 or call.exit < 0:
        return {**result, "outcome": "unknown", "why": f"the answer was cut off: {call.why}", "exit": 1}
    outcome = OUTCOME_OF_EXIT.get(call.exit) or last.get("outcome") or "failed"
    hint = last.get("hint")
    return {**result, "outcome": outcome, "why": f"{call.why}{f' (hint: {hint})' if hint else ''}"[:SAID_MAX]}


def settled(status):
    """What runs now, after nobody is at it any more."""
    now = status.last or {}
    return {
        "running": now.get("running") if status.exit in (0, 9) and now.get("healthy") is not False else None,
        "busy": status.busy,
        "lastOperation": _brief(now.get("operation")),
        "exit": status.exit,
        "why": None if status.exit == 0 else status.why if now.get("event") != "result" else _down(now),
    }
