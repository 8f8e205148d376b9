# The words of a run: which outcomes are good, and what each exit code says.

from __future__ import annotations

GOOD = ("updated", "up_to_date", "rolled_back")
# outcomes of hosts that are not as they should be, the worst last
NOT_WELL = ("refused", "busy", "failed", "restarted", "gone", "unknown", "stuck", "down")
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
