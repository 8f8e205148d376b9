# What is decided about a fleet, as pure functions: who takes part, in which wave, whether a wave was good, who goes back, and
# how it all ended. `run` is the one state of it, a dictionary that goes from step to step; `run["events"]` is what the report
# is told at this step. Must never break: nothing is decided from silence; what is not known is called unknown.

from __future__ import annotations

GOOD = ("updated", "up_to_date", "rolled_back")
EXIT = {"usage": 2, "network": 4, "verification": 5, "locked": 6, "refused": 7, "reverted": 8, "down": 9}
WAVES_MAX = 100


def wave_sizes(waves, count):
    """As Ansible's own `serial`: each is a number of hosts, or a share of all; the last one goes on until all had their turn."""
    if not isinstance(waves, (list, tuple)) or not 0 < len(waves) <= WAVES_MAX:
        raise ValueError(f"waves: expected a list of 1 to {WAVES_MAX}, such as 1, 10%, 100%")
    sizes = []
    left = count
    wanted = list(waves)
    while left > 0:
        text = str(wanted.pop(0) if len(wanted) > 1 else wanted[0])
        digits = text[:-1] if text.endswith("%") else text
        if not digits.isdigit() or int(digits) == 0 or (text.endswith("%") and int(digits) > 100):
            raise ValueError(f"waves: expected a number of hosts or a share such as 10%, got {text[:20]!r}")
        size = max(1, int(digits) * count // 100) if text.endswith("%") else int(digits)
        sizes.append(min(size, left))
        left -= sizes[-1]
    return sizes


def latest_of(seen):
    """The one tag that `latest` means for all: the highest that any host is offered. Bad memories are dealt with later."""
    tags = [it["latest"] for it in seen.values() if it and it.get("latest")]
    return max(tags, key=_order, default="")


def _order(tag):
    return [int(part) for part in tag[1:].split(".")]


def plan(seen, options, earlier=None):
    """`seen`: what a look has found, for each host in the order of the inventory; None where it could not be reached."""
    earlier = earlier or {}
    run = {
        "release": options["release"],
        "rollback": options["rollback"],
        "options": options,
        "wave": 0,
        "hosts": {},
        "waves": [],
        "bad": {},
        "gone": [],
        "back": [],
        "stop": None,
        "good": 0,
    }
    for host, it in seen.items():
        run["hosts"][host] = _row(host, it, options, earlier.get("hosts", {}).get(host))
    rows = run["hosts"]
    gone = [host for host, row in rows.items() if row["outcome"] == "gone"]
    refused = [host for host, row in rows.items() if row["outcome"] == "refused"]
    run["waves"] = _waves(rows, options["waves"], earlier)
    run["stop"] = _objection(rows, seen, gone, refused, run["waves"], options)
    stopped = earlier.get("stop")
    if stopped and not run["stop"]:
        run["stop"], run["back"] = {**stopped, "wave": earlier.get("wave")}, [it for it in earlier["back"] if it in rows]
    run["order"] = [host for wave in run["waves"] for host in wave]
    run["sizes"] = [len(wave) for wave in run["waves"]] or [1]
    run["wave"] = max([0, *(number - 1 for number in _numbers(rows, run["waves"]))]) if earlier else 0
    run["of"] = run["wave"] + len(run["waves"])
    run["events"] = [
        {
            "event": "plan",
            "release": run["release"],
            "rollback": run["rollback"],
            "first": run["wave"] + 1,
            "waves": run["waves"],
            "upToDate": [host for host, row in rows.items() if row["outcome"] == "up_to_date"],
            "refused": [{"host": host, "why": rows[host]["why"], "exit": rows[host]["exit"]} for host in refused],
            "gone": gone,
            "stop": run["stop"],
        }
    ]
    return run


def _row(host, it, options, known):
    """What is known of one host before the first wave, or, on a resume, from the run before."""
    if not it:
        why = (known or {}).get("why") or "it cannot be reached"
        row = {"from": None, "to": None, "outcome": "gone", "why": why, "exit": EXIT["network"], "ms": None, "wave": None}
        return {**row, **{key: known.get(key) for key in ("from", "to", "wave")}} if known else row
    to = it.get("to") or options["release"]
    row = {"from": it.get("from"), "to": to, "outcome": None, "why": None, "exit": 0, "ms": None, "wave": None}
    bad = next((one for one in it.get("bad") or [] if one["tag"] == to), None)
    there = it.get("running") == to and it.get("installed") == to and not it.get("inFlight") and not it.get("unproven")
    if known:
        return {**row, **known_row(known, it, to)}
    if it.get("refused"):
        return {**row, "outcome": "refused", **it["refused"]}
    if bad and options["asked"] == "latest" and not there:
        why = f"it has {to} in its memory as bad: {bad.get('why') or 'it failed here'}"
        return {**row, "outcome": "refused", "why": why, "exit": EXIT["refused"]}
    if there or _is_back_already(it, to, options):
        return {**row, "to": it.get("running"), "outcome": "up_to_date"}
    return row


def _is_back_already(it, to, options):
    """A rollback that names no tag goes back, never forward."""
    if not options["rollback"] or options["asked"] not in ("", "latest"):
        return False
    return bool(it.get("running") and to) and not it.get("inFlight") and _order(to) > _order(it["running"])


def known_row(known, it, to):
    """On a resume: what the run before has recorded, and what the host has finished by itself since."""
    row = {key: known.get(key) for key in ("from", "to", "wave", "outcome", "why", "ms")}
    row["to"] = row["to"] or to
    row["exit"] = known.get("exit") or 0
    if row["outcome"] in ("gone", "unknown", "busy"):
        row["outcome"] = None
    if row["outcome"] is None and known.get("started"):
        last = it.get("lastOperation") or {}
        ended_since = last.get("id") and last.get("id") != known.get("operationBefore")
        if it.get("running") == row["to"]:
            row["outcome"] = "rolled_back" if last.get("outcome") == "rolled_back" else "updated"
        elif ended_since and last.get("to") == row["to"] and last.get("outcome") in ("reverted", "failed"):
            error = last.get("error") or {}
            row.update(outcome=last["outcome"], why=error.get("message"), exit=EXIT["reverted"])
    if it.get("refused") and row["outcome"] is None:
        row.update(outcome="refused", **it["refused"])
    row["resolved"] = row["outcome"] is not None
    return row


def _waves(rows, waves, earlier):
    """Of a fresh run, from the sizes; of a resumed one, what is left of the waves it had."""
    if earlier.get("waves"):
        first = earlier.get("goodWaves", 0) + 1
        placed = {host for wave in earlier["waves"] for host in wave}
        left = [[host for host in wave if host in rows and rows[host]["outcome"] != "gone"] for wave in earlier["waves"]]
        for number, wave in enumerate(left, 1):
            for host in wave:
                rows[host]["wave"] = number
        new = [host for host, row in rows.items() if host not in placed and row["outcome"] is None]
        open_waves = left[first - 1 :]
        if new:
            for host in new:
                rows[host]["wave"] = len(earlier["waves"])
            open_waves = [*open_waves[:-1], open_waves[-1] + new] if open_waves else [new]
        return [wave for wave in open_waves if wave]
    ready = [host for host, row in rows.items() if row["outcome"] is None]
    result, at = [], 0
    for number, size in enumerate(wave_sizes(waves, len(ready)), 1):
        result.append(ready[at : at + size])
        for host in result[-1]:
            rows[host]["wave"] = number
        at += size
    return result


def _numbers(rows, waves):
    return [rows[wave[0]]["wave"] or 1 for wave in waves[:1]]


def _objection(rows, seen, gone, refused, waves, options):
    """Why nothing may be changed, or None. The worst first: what is a mistake of the operator, then what is missing."""
    if not rows:
        return _stop("the inventory names no host", EXIT["usage"])
    twins = _twins(seen)
    if twins:
        return _stop(f"{' and '.join(twins)} are the same host: its service has one and the same instance", EXIT["usage"])
    if len(gone) > options["tolerate_gone"]:
        tell = f"cannot be reached: {_names(gone)} (`--tolerate-gone {len(gone)}` goes on without)"
        return _stop(tell, EXIT["network"])
    if len(refused) > options["tolerate_bad"]:
        first = rows[refused[0]]
        tell = f"{_names(refused)} cannot take part: {first['why']} (`--tolerate-bad {len(refused)}` goes on without)"
        return _stop(tell, first["exit"])
    offered = {}
    for host, it in seen.items():
        if it and it.get("sha256") and rows[host]["outcome"] is None:
            offered.setdefault((it["route"], it["platform"], rows[host]["to"]), {}).setdefault(it["sha256"], []).append(host)
    for (_, platform, to), sums in offered.items():
        if len(sums) > 1:
            said = "; ".join(f"{sha[:12]}… on {_names(hosts)}" for sha, hosts in sums.items())
            return _stop(f"not every host would take the same {to} for {platform}: {said}", EXIT["verification"])
    tags = {row["to"] for row in rows.values() if row["outcome"] is None}
    if not options["rollback"] and len(tags) > 1:
        return _stop(f"expected one release for all, got {', '.join(sorted(tags))}", EXIT["verification"])
    if not waves and not any(row["outcome"] in GOOD for row in rows.values()):
        return _stop("no host is left that could take part", EXIT["network"] if gone else EXIT["refused"])
    return None


def _twins(seen):
    first = {}
    for host, it in seen.items():
        instance = (it or {}).get("instance")
        if instance and first.setdefault(instance, host) != host:
            return [first[instance], host]
    return []


def in_the_way(run):
    """Why no wave may begin; empty where one may."""
    if run["stop"]:
        return run["stop"]["why"]
    if run["options"]["check"]:
        return "a check changes nothing"
    return "" if run["waves"] else "nobody is left to move"


def resolved(run):
    """On a resume: those whose outcome is known already."""
    return {host: row for host, row in run["hosts"].items() if row.get("resolved")}


def begin(run, hosts):
    """A wave begins. Nothing is asked of a host before this is in the report."""
    run = {**run, "wave": run["wave"] + 1, "batch": [host for host in hosts if host in run["order"]]}
    event = {"event": "wave", "wave": run["wave"], "of": run["of"], "step": "begin", "hosts": run["batch"]}
    return {**run, "events": [event]}


def judge_moves(run, results):
    """After every host of the wave had its turn. `results`: {outcome, from, to, ms, why, exit} of a host; None: vanished."""
    rows, hosts = dict(run["hosts"]), run["batch"]
    for host in hosts:
        got = results.get(host)
        if rows[host].get("resolved"):
            continue
        if got is None:
            rows[host] = {**rows[host], "outcome": "gone", "why": "it vanished in the middle of it", "exit": EXIT["network"]}
            continue
        kept = {key: got.get(key) for key in ("outcome", "why", "ms", "exit")}
        # where somebody else's operation came first, it went from somewhere else than was seen
        came_from = got.get("from") if got["outcome"] != "up_to_date" and got.get("from") else rows[host]["from"]
        rows[host] = {**rows[host], **kept, "from": came_from}
    run = {**run, "hosts": rows}
    run["bad"] = {**run["bad"], **{host: rows[host]["why"] for host in hosts if _is_bad(rows[host])}}
    run["gone"] = run["gone"] + [host for host in hosts if rows[host]["outcome"] == "gone" and host not in run["gone"]]
    return _verdict(run, hosts, "soak")


def judge_soak(run, still, gate):
    """After the soak: does each still run what it should, and does the gate agree. `gate`: {rc, said} or None."""
    rows, hosts = dict(run["hosts"]), run["batch"]
    for host in hosts:
        row, now = rows[host], still.get(host)
        if row["outcome"] not in GOOD:
            continue
        if now is None:
            rows[host] = {**row, "outcome": "gone", "why": "it vanished in the soak", "exit": EXIT["network"]}
        elif now["running"] != row["to"] or now["busy"]:
            why = now["why"] or (f"{row['to']} has not proved itself" if now["busy"] else f"it runs {now['running'] or 'nothing'}")
            outcome = "reverted" if now["running"] and now["running"] == row["from"] else "down" if not now["running"] else "unknown"
            rows[host] = {**row, "outcome": outcome, "why": f"after the soak: {why}", "exit": EXIT["reverted"]}
    run = {**run, "hosts": rows}
    run["bad"] = {**run["bad"], **{host: rows[host]["why"] for host in hosts if _is_bad(rows[host])}}
    run["gone"] = run["gone"] + [host for host in hosts if rows[host]["outcome"] == "gone" and host not in run["gone"]]
    if gate and gate["rc"] != 0:
        why = f"the gate said no (it ended with {gate['rc']}): {gate['said'] or 'it said nothing'}"
        return _stopped(run, hosts, _stop(why, EXIT["reverted"]))
    return _verdict(run, hosts, "good")


def _verdict(run, hosts, step):
    options, rows = run["options"], run["hosts"]
    bad, gone = list(run["bad"]), run["gone"]
    good = [host for host in hosts if rows[host]["outcome"] in GOOD]
    worst = rows[bad[0]] if bad else None
    if len(bad) > options["tolerate_bad"]:
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        return _stopped(run, hosts, _stop(f"{bad[0]}{more} {worst['outcome']}: {worst['why']}", worst["exit"] or 1))
    if len(gone) > options["tolerate_gone"]:
        return _stopped(run, hosts, _stop(f"vanished in the middle: {_names(gone)}", EXIT["network"]))
    if not good:
        exit_code = worst["exit"] if worst else EXIT["network"]
        return _stopped(run, hosts, _stop("not one host of the wave is good: it proves nothing", exit_code or 1))
    event = {"event": "wave", "wave": run["wave"], "of": run["of"], "step": step, "hosts": hosts}
    if step == "soak":
        return {**run, "events": [{**event, "seconds": options["soak"]}]}
    return {**run, "good": run["wave"], "events": [event]}


def _stopped(run, hosts, stop):
    """Nothing goes on after this. Who goes back is decided here, and in the report before it is done."""
    policy = run["options"]["on_failure"]
    rows = run["hosts"]
    reach = list(rows) if policy == "fleet" else list(hosts) if policy == "wave" else []
    back = [host for host in reach if _is_touched(rows[host])]
    stop = {**stop, "wave": run["wave"]}
    event = {"event": "stop", **stop, "hosts": list(hosts), "back": back, "onFailure": policy}
    return {**run, "stop": stop, "back": back, "events": [event]}


def _is_bad(row):
    return row["outcome"] in ("reverted", "failed", "busy", "down", "unknown")


def _is_touched(row):
    """It was asked to move, and may not be what it was. Going back names a tag, so it does no harm where it is back already."""
    if row["wave"] is None or row["from"] is None or row["from"] == row["to"]:
        return False
    return row["outcome"] in ("updated", "up_to_date", "rolled_back", "reverted", "down", "unknown", "gone")


def lost(run):
    """Who vanished and has to be asked again at the end."""
    return [host for host, row in run["hosts"].items() if row["outcome"] in ("gone", "unknown") and row["wave"] is not None]


def back_to(run):
    """Where each goes back to."""
    return {host: run["hosts"][host]["from"] for host in run["back"]}


def found_again(run, still):
    """What those who had vanished say now. Who is still silent stays unknown."""
    rows, events = dict(run["hosts"]), []
    for host in lost(run):
        row, now = rows[host], still.get(host)
        if now is None or now["running"] is None:
            why = f"{row['why']}; asked again at the end: {(now or {}).get('why') or 'no answer'}"
            rows[host] = {**row, "outcome": "unknown", "why": why, "exit": EXIT["network"]}
        elif now["running"] == row["to"] and not now["busy"]:
            rows[host] = {**row, "outcome": "rolled_back" if run["rollback"] else "updated", "exit": 0}
        elif now["running"] == row["from"]:
            last = now.get("lastOperation") or {}
            ours = last.get("to") == row["to"] and last.get("outcome") == "reverted"
            rows[host] = {**row, "outcome": "reverted" if ours else "failed", "exit": EXIT["reverted"] if ours else EXIT["network"]}
        else:
            rows[host] = {**row, "outcome": "unknown", "why": f"{row['why']}; it runs {now['running']}"}
        events.append({"event": "host", "host": host, **_public(rows[host]), "again": True})
    return {**run, "hosts": rows, "events": events}


def ended(run, results):
    """The last word. `results`: of those that were to go back; None where it could not be reached."""
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
        if row["outcome"] is None:
            rows[host] = {**row, "outcome": "untouched", "now": row["from"]}
        elif row["outcome"] in ("reverted", "failed", "busy"):
            rows[host] = {**row, "now": row["from"]}
        elif row["outcome"] in GOOD:
            rows[host] = {**row, "now": row["to"]}
    counts = {}
    for row in rows.values():
        counts[row["outcome"]] = counts.get(row["outcome"], 0) + 1
    stop = run["stop"]
    result = {
        "event": "result",
        "outcome": _outcome(run, stop, rows),
        "release": run["release"],
        "exit": _exit(stop, rows),
        "why": stop and stop["why"],
        "counts": counts,
        "hosts": [{"host": host, **_public(row)} for host, row in rows.items()],
    }
    return {**run, "hosts": rows, "result": result, "events": [result]}


def _outcome(run, stop, rows):
    if stop:
        touched = any(row["wave"] is not None and row["outcome"] not in ("untouched", "gone", "refused") for row in rows.values())
        return "stopped" if touched or run["good"] else "refused"
    if run["options"]["check"]:
        return "planned"
    moved = any(row["outcome"] in ("updated", "rolled_back") for row in rows.values())
    return ("rolled_back" if run["rollback"] else "updated") if moved else "up_to_date"


def _exit(stop, rows):
    outcomes = {row["outcome"] for row in rows.values()}
    if stop is None:
        return 0
    if outcomes & {"down", "stuck"}:
        return EXIT["down"]
    if "unknown" in outcomes:
        return EXIT["network"]
    if outcomes & {"reverted", "taken_back", "updated", "rolled_back"}:
        return EXIT["reverted"] if stop["exit"] in (1, EXIT["reverted"], EXIT["down"]) else stop["exit"]
    return stop["exit"]


def _stop(why, code):
    return {"why": why, "exit": code}


def _public(row):
    return {key: row.get(key) for key in ("wave", "from", "to", "now", "outcome", "ms", "why", "exit")}


def _names(hosts, most=8):
    more = f" and {len(hosts) - most} more" if len(hosts) > most else ""
    return ", ".join(hosts[:most]) + more
