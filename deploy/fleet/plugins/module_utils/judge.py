# Whether a wave was good, as pure functions: judged after every host had its turn, and after the soak. A bad host stops
# everything after it; which hosts go back is decided at that moment. Must never break: a silent host is not a good one.

from __future__ import annotations

from ansible_collections.baton.fleet.plugins.module_utils.words import BAD, EXIT, GOOD, names, stop

TOUCHED = (*GOOD, "reverted", "restarted", "down", "unknown", "gone")


def in_the_way(run):
    """Why no wave may begin; empty if one may."""
    if run["stop"]:
        return run["stop"]["why"]
    if run["options"]["check"]:
        return "a check changes nothing"
    return "" if run["waves"] else "nobody is left to move"


def turns_to_move(run):
    """The hosts that move, and to what; on a resume also the hosts whose outcome is known already."""
    rows = run["hosts"]
    return {host: {"to": rows[host]["to"], "known": rows[host] if rows[host].get("resolved") else None} for host in run["order"]}


def begin(run, hosts):
    """Begins a wave. Nothing is asked of a host before this is in the report."""
    run = {**run, "wave": run["wave"] + 1, "batch": [host for host in hosts if host in run["order"]]}
    event = {"event": "wave", "wave": run["wave"], "of": run["of"], "step": "begin", "hosts": run["batch"]}
    return {**run, "events": [event]}


def judge_moves(run, results):
    """Judges after every host of the wave had its turn. `results`: {outcome, from, to, ms, why, exit} by host; None: vanished."""
    rows, hosts = dict(run["hosts"]), run["batch"]
    for host in hosts:
        got = results.get(host)
        if rows[host].get("resolved"):
            continue
        if got is None:
            rows[host] = {**rows[host], "outcome": "gone", "why": "it vanished in the middle of its move", "exit": EXIT["network"]}
            continue
        kept = {key: got.get(key) for key in ("outcome", "why", "ms", "exit", "alive")}
        # if another operation came first, the host went from another release than the look saw
        came_from = got.get("from") if got["outcome"] != "up_to_date" and got.get("from") else rows[host]["from"]
        rows[host] = {**rows[host], **kept, "from": came_from}
    run = {**run, "hosts": rows}
    run["bad"] = {**run["bad"], **{host: rows[host]["why"] for host in hosts if rows[host]["outcome"] in BAD}}
    run["gone"] = run["gone"] + [host for host in hosts if rows[host]["outcome"] == "gone" and host not in run["gone"]]
    return _verdict(run, hosts, "soak")


def judge_soak(run, still, gate):
    """Judges after the soak: does each host still run what it should, and does the gate agree? `gate`: {rc, said} or None."""
    rows, hosts = dict(run["hosts"]), run["batch"]
    for host in hosts:
        row, now = rows[host], still.get(host)
        if row["outcome"] not in GOOD:
            continue
        if now is None:
            rows[host] = {**row, "outcome": "gone", "why": "it vanished in the soak", "exit": EXIT["network"]}
            continue
        outcome, why = _after_soak(row, now)
        if outcome:
            rows[host] = {**row, "outcome": outcome, "why": f"in the soak: {why}", "exit": EXIT["reverted"]}
    run = {**run, "hosts": rows}
    run["bad"] = {**run["bad"], **{host: rows[host]["why"] for host in hosts if rows[host]["outcome"] in BAD}}
    run["gone"] = run["gone"] + [host for host in hosts if rows[host]["outcome"] == "gone" and host not in run["gone"]]
    if gate and gate["rc"] != 0:
        why = f"the gate said no (it ended with {gate['rc']}): {gate['said'] or 'it said nothing'}"
        return _stopped(run, hosts, stop(why, EXIT["reverted"]))
    return _verdict(run, hosts, "good")


def _after_soak(row, now):
    """What became of a good host, and why; (None, None) if it is still good."""
    running = now["running"]
    if running == row["to"] and not now["busy"]:
        return ("restarted", now["restarted"]) if now["restarted"] else (None, None)
    why = now["why"] or (f"{row['to']} has not proved itself" if now["busy"] else f"it runs {running or 'nothing'}")
    if running and running == row["from"]:
        return "reverted", why
    return ("unknown" if running or not now["known"] else "down"), why


def unjudged(run, why):
    """The hosts' answers could not be judged. The run must not go on from such a wave: it is handled as a bad one."""
    rows = dict(run["hosts"])
    for host in run["batch"]:
        if rows[host]["outcome"] is None:
            rows[host] = {**rows[host], "outcome": "unknown", "why": why, "exit": EXIT["unexpected"]}
    return _stopped({**run, "hosts": rows}, run["batch"], stop(f"the wave cannot be judged: {why}", EXIT["unexpected"]))


def _verdict(run, hosts, step):
    options, rows = run["options"], run["hosts"]
    bad, gone = list(run["bad"]), run["gone"]
    good = [host for host in hosts if rows[host]["outcome"] in GOOD]
    worst = rows[bad[0]] if bad else None
    if len(bad) > options["tolerate_bad"]:
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        return _stopped(run, hosts, stop(f"{bad[0]}{more} {worst['outcome']}: {worst['why']}", worst["exit"] or 1))
    if len(gone) > options["tolerate_gone"]:
        return _stopped(run, hosts, stop(f"vanished in the middle: {names(gone)}", EXIT["network"]))
    if not good:
        exit_code = worst["exit"] if worst else EXIT["network"]
        return _stopped(run, hosts, stop("not one host of the wave is good: it proves nothing", exit_code or 1))
    event = {"event": "wave", "wave": run["wave"], "of": run["of"], "step": step, "hosts": hosts}
    if step == "soak":
        return {**run, "events": [{**event, "seconds": options["soak"]}]}
    return {**run, "good": run["wave"], "events": [event]}


def _stopped(run, hosts, because):
    """Stops the run. Decides which hosts go back; that is in the report before it is done."""
    policy = run["options"]["on_failure"]
    rows = run["hosts"]
    reach = list(rows) if policy == "fleet" else list(hosts) if policy == "wave" else []
    back = [host for host in reach if _is_touched(rows[host])]
    because = {**because, "wave": run["wave"]}
    event = {"event": "stop", **because, "hosts": list(hosts), "back": back, "onFailure": policy}
    return {**run, "stop": because, "back": back, "events": [event]}


def _is_touched(row):
    """Whether it was asked to move and may have changed. Going back names a tag, so it harms no host that is back already."""
    if row["wave"] is None or row["from"] is None or row["from"] == row["to"]:
        return False
    return row["outcome"] in TOUCHED
