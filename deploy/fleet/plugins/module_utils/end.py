# How a run ended, as pure functions: what vanished hosts say now, which hosts are back, and the run's one exit code.
# Must never break: what cannot be known is reported as unknown, not guessed; it exits with 0 only if nothing was stopped.

from __future__ import annotations

from ansible_collections.baton.fleet.plugins.module_utils.plan import is_survey
from ansible_collections.baton.fleet.plugins.module_utils.words import EXIT, GOOD, names, public

# a service that is down, a host of which nothing is known, a bad release; then everything else
WORST_FIRST = (EXIT["down"], EXIT["network"], EXIT["reverted"], EXIT["verification"], 3, EXIT["refused"], EXIT["locked"], EXIT["usage"], 1, 0)
# outcomes of hosts that are not as they should be, the worst last
NOT_WELL = ("refused", "busy", "failed", "restarted", "gone", "unknown", "stuck", "down")
OWN_EXIT = {"down": EXIT["down"], "stuck": EXIT["down"], "unknown": EXIT["network"], "gone": EXIT["network"]}


def lost(run):
    """The hosts that vanished and must be asked again at the end."""
    rows = {host: row for host, row in run.get("hosts", {}).items() if row["wave"] is not None and not row.get("carried")}
    return [host for host, row in rows.items() if row["outcome"] in ("gone", "unknown")]


def turns_again(run):
    return {host: {} for host in lost(run)}


def turns_back(run):
    """The tag that each host goes back to."""
    return {host: {"to": run["hosts"][host]["from"]} for host in run["back"]}


def found_again(run, still):
    """What the vanished hosts say now. A host that is still silent stays unknown."""
    rows, events = dict(run["hosts"]), []
    for host in lost(run):
        row, now = rows[host], still.get(host)
        if now is None or now["running"] is None:
            why = f"{row['why']}; asked again at the end: {(now or {}).get('why') or 'no answer'}"
            rows[host] = {**row, "outcome": "unknown", "why": why, "exit": EXIT["network"]}
        elif now["running"] == row["to"] and not now["busy"] and now["restarted"]:
            rows[host] = {**row, "outcome": "restarted", "why": now["restarted"], "exit": EXIT["reverted"]}
        elif now["running"] == row["to"] and not now["busy"]:
            rows[host] = {**row, "outcome": "rolled_back" if run["rollback"] else "updated", "exit": 0}
        elif now["running"] == row["from"]:
            last = now.get("lastOperation") or {}
            ours = last.get("to") == row["to"] and last.get("outcome") == "reverted"
            rows[host] = {**row, "outcome": "reverted" if ours else "failed", "exit": EXIT["reverted"] if ours else EXIT["network"]}
        else:
            rows[host] = {**row, "outcome": "unknown", "why": f"{row['why']}; it runs {now['running']}"}
        events.append({"event": "host", "host": host, **public(rows[host]), "again": True})
    return {**run, "hosts": rows, "events": events}


def ended(run, results):
    """The run's result. `results`: by host, of those that were to go back; None if a host could not be reached."""
    rows = dict(run["hosts"])
    for host in run["back"]:
        row, got = rows[host], results.get(host)
        if got is None:
            why = f"it was to go back to {row['from']} and cannot be reached"
            rows[host] = {**row, "outcome": "unknown", "why": why, "exit": EXIT["network"]}
        elif got["outcome"] == "up_to_date":
            outcome = row["outcome"] if row["outcome"] in ("reverted", "failed") else "taken_back"
            rows[host] = {**row, "outcome": outcome, "now": row["from"]}
        elif got["outcome"] in GOOD:
            rows[host] = {**row, "outcome": "taken_back", "now": row["from"]}
        else:
            rows[host] = {**row, "outcome": "down" if got["outcome"] == "down" else "stuck", "why": f"going back: {got['why']}", "exit": EXIT["down"]}
    for host, row in rows.items():
        if row["outcome"] is None and not run["stop"] and not run["options"]["check"] and host in run["order"]:
            rows[host] = {**row, "outcome": "failed", "now": row["from"], "why": "it never had its turn", "exit": EXIT["unexpected"]}
        elif row["outcome"] is None:
            rows[host] = {**row, "outcome": "untouched", "now": row["from"]}
        elif row["outcome"] in ("reverted", "failed", "busy"):
            rows[host] = {**row, "now": row["from"]}
        elif row["outcome"] in (*GOOD, "restarted"):
            rows[host] = {**row, "now": row["to"]}
    counts = {}
    for row in rows.values():
        counts[row["outcome"]] = counts.get(row["outcome"], 0) + 1
    because = run["stop"]
    result = {
        "event": "result",
        "outcome": _outcome(run, because, rows),
        "release": run["release"],
        "exit": _exit(because, rows),
        "why": because["why"] if because else _left(rows),
        "counts": counts,
        # hosts that a person has to look at; the worst last, where a person looks first
        "look": _look(rows),
        "hosts": [{"host": host, **public(row)} for host, row in rows.items()],
    }
    return {**run, "hosts": rows, "result": result, "events": [result]}


def _outcome(run, because, rows):
    if because:
        touched = any(row["wave"] is not None and row["outcome"] not in ("untouched", "gone", "refused") for row in rows.values())
        return "stopped" if touched or run["good"] else "refused"
    if run["options"]["check"]:
        return "looked" if is_survey(run["options"]) else "planned"
    moved = any(row["outcome"] in ("updated", "rolled_back") for row in rows.values())
    return ("rolled_back" if run["rollback"] else "updated") if moved else "up_to_date"


def _bad(rows):
    """Hosts that do not run the release that the run gave them. A host that went back by itself is among them, although it is well."""
    return [host for host, row in rows.items() if row["outcome"] in (*NOT_WELL, "reverted")]


def _exits(rows):
    for row in (rows[host] for host in _bad(rows)):
        yield OWN_EXIT.get(row["outcome"]) or row["exit"] or EXIT["unexpected"]


def _look(rows):
    """The hosts that a person has to look at, the worst last."""
    left = [host for host, row in rows.items() if row["outcome"] in NOT_WELL]
    return sorted(left, key=lambda host: NOT_WELL.index(rows[host]["outcome"]))


def _left(rows):
    """Why the exit code is not 0 although nothing was stopped; None if every host is as it should be."""
    bad = _bad(rows)
    if not bad:
        return None
    return f"it went on without {names(bad)}: {len(bad)} of {len(rows)} hosts not as they should be"


def _exit(because, rows):
    """Tolerated hosts let a run go on; its exit code still says how the hosts are."""
    outcomes = {row["outcome"] for row in rows.values()}
    if because is None:
        exits = [*_exits(rows), 0]
        return next(code for code in WORST_FIRST if code in exits)
    if outcomes & {"down", "stuck"}:
        return EXIT["down"]
    if "unknown" in outcomes:
        return EXIT["network"]
    if outcomes & {"reverted", "restarted", "taken_back", "updated", "rolled_back"}:
        return EXIT["reverted"] if because["exit"] in (1, EXIT["reverted"], EXIT["down"]) else because["exit"]
    return because["exit"]
