# Reads from an earlier run's report the facts that a resume goes on from. Pure, except that it reads the file.
# Must never break: the last line may be cut off in the middle; the lines before it are true.

from __future__ import annotations

import json


def lines_of(path):
    events = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                events.append(event)
    return events


def fold(events):
    """`hosts`: those that were started, and how each ended; `waves`, `goodWaves`; `stop` and `back` if the run was going back."""
    state, seen = _fresh(), {}
    for event in events:
        kind, host = event.get("event"), event.get("host")
        if kind == "run" and not event.get("resumed"):
            # older runs may be in the same report: nothing of them counts
            state, seen = _fresh(), {}
        elif kind == "seen":
            seen.setdefault(host, event)
        elif kind == "plan":
            state["release"] = event["release"]
            if not state["waves"] and not event.get("stop"):
                state["waves"] = event["waves"]
        elif kind == "start":
            _begin(state, seen, host, event)
        elif kind == "host" and host in state["hosts"]:
            _end(state["hosts"][host], event)
        elif kind == "wave" and event["step"] == "good":
            state["goodWaves"] = max(state["goodWaves"], event["wave"])
        elif kind == "stop":
            state.update(stop={"why": event["why"], "exit": event["exit"]}, back=event["back"], wave=event["wave"])
    return state


def _fresh():
    return {"release": "", "hosts": {}, "waves": [], "goodWaves": 0, "stop": None, "back": [], "wave": None}


def _begin(state, seen, host, event):
    before = seen.get(host) or {}
    state["hosts"].setdefault(
        host,
        {
            "from": before.get("from"),
            "to": before.get("to"),
            "operationBefore": (before.get("lastOperation") or {}).get("id"),
            "outcome": None,
        },
    ).update(started=True, wave=event.get("wave"))


def _end(row, event):
    for key in ("outcome", "why", "ms", "exit"):
        row[key] = event.get(key)
    if event.get("from") and event.get("outcome") != "up_to_date":
        row["from"] = event["from"]
