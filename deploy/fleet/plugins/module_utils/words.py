# The words of a run: which outcomes are good, what each exit code says, and how a host's row is shown. Pure.

from __future__ import annotations

GOOD = ("updated", "up_to_date", "rolled_back")
BAD = ("reverted", "restarted", "failed", "busy", "down", "unknown")
# the exit codes of all of Baton's commands: a test compares them with the one table
EXIT = {
    "done": 0,
    "unexpected": 1,
    "usage": 2,
    "unsupported_host": 3,
    "network": 4,
    "verification": 5,
    "locked": 6,
    "refused": 7,
    "reverted": 8,
    "down": 9,
}


def stop(why, code):
    return {"why": why, "exit": code}


def public(row):
    return {key: row.get(key) for key in ("wave", "from", "to", "now", "outcome", "ms", "why", "exit")}


def names(hosts, most=8):
    more = f" and {len(hosts) - most} more" if len(hosts) > most else ""
    return ", ".join(hosts[:most]) + more
