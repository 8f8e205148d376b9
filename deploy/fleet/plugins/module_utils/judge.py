# What is decided about hosts, as pure functions: which of them move, whether a wave was good, which go back, and the one exit code.
# A row is what is known of a host: {from, to, outcome, why, exit, ms}; an outcome of None: it has yet to move.
# Must never break: nothing is decided from silence, and a host that says nothing is no good one.

from __future__ import annotations

from ansible_collections.baton.fleet.plugins.module_utils.schema import order
from ansible_collections.baton.fleet.plugins.module_utils.words import EXIT, GOOD, NOT_WELL

# outcomes after which a host may run something else than before
TOUCHED = (*GOOD, "reverted", "restarted", "down", "unknown", "gone")
# a service that is down, a host of which nothing is known, a bad release; then everything else
WORST_FIRST = (EXIT["down"], EXIT["network"], EXIT["reverted"], EXIT["verification"], 3, EXIT["refused"], EXIT["locked"], EXIT["usage"], 1, 0)
OWN_EXIT = {"down": EXIT["down"], "stuck": EXIT["down"], "unknown": EXIT["network"], "gone": EXIT["network"]}


def stop(why, code):
    return {"why": why, "exit": code}


def _names(hosts, most=8):
    more = f" and {len(hosts) - most} more" if len(hosts) > most else ""
    return ", ".join(hosts[:most]) + more


# ---- before anything is done


def latest(seen):
    """
    The one tag that `latest` means for all: the highest that any host is offered; a prerelease only if all are offered one, since hosts of
    the channel beta take nobody else there. `_row` deals with tags known as bad.
    """
    offered = [it["latest"] for it in seen.values() if it and it.get("latest")]
    return max([tag for tag in offered if "-" not in tag] or offered, key=order, default="")


def plan(seen, options):
    """
    `seen`: what a look has found, for each host in the order of the inventory; None if it could not be reached. Returns
    {release, rows, stop}.
    """
    rows = {host: _row(it, options) for host, it in seen.items()}
    return {"release": options["release"], "rows": rows, "stop": _objection(rows, seen, options)}


def is_survey(options):
    """Whether no release is asked for: only what runs where."""
    return options["check"] and not options["rollback"] and not options["asked"]


def newer(it, to, options):
    """What this host runs, or is on its way to, if newer than `to`; else None. None too for a rollback or an allowed downgrade."""
    if options["rollback"] or options["allow_downgrade"] or not to:
        return None
    tags = [it.get("running"), (it.get("inFlight") or {}).get("to")]
    return max((tag for tag in tags if tag and order(tag) > order(to)), key=order, default=None)


def _row(it, options):
    if not it:
        return row(outcome="gone", why="the host cannot be reached", exit=EXIT["network"])
    to = it.get("to") or options["release"]
    new = row(it.get("from"), to)
    bad = next((one for one in it.get("bad") or [] if one["tag"] == to), None)
    there = it.get("running") == to and it.get("installed") == to and not it.get("inFlight") and not it.get("probation")
    if it.get("refused"):
        return {**new, "outcome": "refused", **it["refused"]}
    if bad and options["asked"] == "latest" and not there:
        return {**new, "outcome": "refused", **stop(f"{to} is recorded as bad on this host: {bad.get('why') or 'it failed here'}", EXIT["refused"])}
    if is_survey(options):
        return {**new, "to": None, "outcome": "untouched"}
    if there or _is_back_already(it, to, options):
        return {**new, "to": it.get("running"), "outcome": "up_to_date"}
    ahead = newer(it, to, options)
    if ahead and "-" in ahead and options["asked"] == "latest":
        return {**new, "to": ahead, "outcome": "up_to_date"}
    if ahead:
        why = f"the host runs {ahead}, which is newer than {to}; to move it anyway, use `--allow-downgrade`"
        return {**new, "outcome": "refused", **stop(why, EXIT["refused"])}
    return new


def row(came_from=None, to=None, **known):
    return {"from": came_from, "to": to, "outcome": None, "why": None, "exit": 0, "ms": None, **known}


def _is_back_already(it, to, options):
    """A rollback that names no tag goes back, never forward."""
    if not options["rollback"] or options["asked"]:
        return False
    return bool(it.get("running") and to) and not it.get("inFlight") and order(to) > order(it["running"])


def _objection(rows, seen, options):
    """Why nothing may be changed, or None. The worst first: mistakes of the operator, then what is missing."""
    twins = _twins(seen)
    if twins:
        return stop(f"{' and '.join(twins)} are the same host: they run the same process of the service", EXIT["usage"])
    if is_survey(options):
        return None
    gone = [host for host, it in rows.items() if it["outcome"] == "gone"]
    out = gone + [host for host, it in rows.items() if it["outcome"] == "refused"]
    if _too_many(out, rows, options):
        first = rows[out[0]]
        what = f"cannot be reached: {_names(gone)}" if gone else f"{_names(out)} cannot be updated: {first['why']}"
        share = -(-100 * len(out) // len(rows))
        return stop(f"{what}; to continue without them, pass `--max-fail-percentage {share}`" if share < 100 else what, first["exit"])
    offered = {}
    for host, it in seen.items():
        if it and it.get("sha256") and rows[host]["outcome"] is None:
            offered.setdefault((it["route"], it["platform"], rows[host]["to"]), {}).setdefault(it["sha256"], []).append(host)
    for (_, platform, to), sums in offered.items():
        if len(sums) > 1:
            said = "; ".join(f"{sha[:12]}… on {_names(hosts)}" for sha, hosts in sums.items())
            return stop(f"the hosts would get different files of {to} for {platform}: {said}", EXIT["verification"])
    if not options["rollback"] and any(it["outcome"] is None and not it["to"] for it in rows.values()):
        problem = next((it["problem"] for it in seen.values() if it and it.get("problem")), None)
        tell = "no host could find out the latest release"
        return stop(f"{tell}: {problem['why']}" if problem else tell, problem["exit"] if problem else EXIT["network"])
    return None


def _twins(seen):
    first = {}
    for host, it in seen.items():
        instance = (it or {}).get("instance")
        if instance and first.setdefault(instance, host) != host:
            return [first[instance], host]
    return []


def _too_many(bad, hosts, options):
    """As Ansible's `max_fail_percentage`: a share that has to be exceeded, of these hosts. Where not one is good, nothing is proved."""
    return len(bad) == len(hosts) or 100 * len(bad) > options["max_fail_percentage"] * len(hosts)


# ---- a wave


def judge_moves(rows, moved, options):
    """Judges after every host of the wave had its turn. `moved`: by host; None: it vanished. Returns the rows and a stop or None."""
    rows = {host: _moved(it, moved[host]) for host, it in rows.items()}
    return rows, verdict(rows, options)


def _moved(it, got):
    if got is None:
        return {**it, "outcome": "gone", **stop("the host became unreachable during its update or rollback", EXIT["network"])}
    # if another operation came first, the host went from another release than the look saw
    came_from = got.get("from") if got["outcome"] != "up_to_date" and got.get("from") else it["from"]
    return {**it, **{key: got.get(key) for key in ("outcome", "why", "ms", "exit", "alive")}, "from": came_from}


def judge_soak(rows, still, gate, options):
    """Judges after the soak: does each host still run what it should, and does the gate agree? `gate`: why not, or None."""
    rows = {host: _soaked(it, still[host], options) for host, it in rows.items()}
    return rows, stop(gate, EXIT["reverted"]) if gate else verdict(rows, options)


def _soaked(it, now, options):
    if it["outcome"] in ("gone", "unknown"):
        return _found_again(it, now, options)
    if it["outcome"] not in GOOD:
        return it
    if now is None:
        return {**it, "outcome": "gone", **stop("the host became unreachable during the soak", EXIT["network"])}
    running = now["running"]
    why = now["why"] or (f"{it['to']} has not proved itself yet" if now["busy"] else f"it runs {running or 'nothing'}")
    if running == it["to"] and not now["busy"]:
        outcome, why = ("restarted", now["restarted"]) if now["restarted"] else (None, None)
    elif running and running == it["from"]:
        outcome = "reverted"
    else:
        outcome = "unknown" if running or not now["known"] else "down"
    return {**it, "outcome": outcome, **stop(f"during the soak: {why}", EXIT["reverted"])} if outcome else it


def _found_again(it, now, options):
    """What a host says that vanished in its move. One that is still silent stays unknown."""
    if now is None or now["running"] is None:
        why = f"{it['why']}; asked again: {(now or {}).get('why') or 'no answer'}"
        return {**it, "outcome": "unknown", **stop(why, EXIT["network"])}
    if now["running"] == it["to"] and not now["busy"]:
        is_back = options["rollback"] or (it["from"] and order(it["to"]) < order(it["from"]))
        return {**it, "outcome": "rolled_back" if is_back else "updated", "why": None, "exit": 0}
    if now["running"] == it["from"]:
        last = now.get("lastOperation") or {}
        ours = last.get("to") == it["to"] and last.get("outcome") == "reverted"
        return {**it, "outcome": "reverted" if ours else "failed", "exit": EXIT["reverted"] if ours else EXIT["network"]}
    return {**it, "outcome": "unknown", "why": f"{it['why']}; it runs {now['running']}"}


def verdict(rows, options):
    # a host that vanished is asked again after the soak
    bad = [host for host, it in rows.items() if it["outcome"] not in GOOD]
    if not _too_many(bad, rows, options):
        return None
    first = rows[bad[0]]
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    # of the other outcomes, `why` says it all
    how = {"reverted": " was reverted", "failed": " failed", "refused": " refused", "busy": " is busy"}.get(first["outcome"], "")
    return stop(f"{bad[0]}{more}{how}: {first['why']}", first["exit"] or 1)


def goes_back(it):
    """Whether it was asked to move and may have changed. Going back names a tag, so it harms no host that is back already."""
    return it["outcome"] in TOUCHED and it["from"] is not None and it["from"] != it["to"]


def is_back(it, got):
    """The row of a host that was told to go back; `got`: how that ended, None if it could not be reached."""
    if got is None:
        return {**it, "outcome": "unknown", **stop(f"the host was rolling back to {it['from']} and cannot be reached", EXIT["network"])}
    if got["outcome"] in GOOD:
        kept = got["outcome"] == "up_to_date" and it["outcome"] in ("reverted", "failed")
        return {**it, "outcome": it["outcome"] if kept else "taken_back"}
    return {**it, "outcome": "down" if got["outcome"] == "down" else "stuck", **stop(f"while rolling back: {got['why']}", EXIT["down"])}


# ---- the end


def ended(rows, because, release, check, survey):
    """The run's result. `because`: why it stopped, or None."""
    rows = {host: {**it, "outcome": it["outcome"] or "untouched"} for host, it in rows.items()}
    bad = [host for host, it in rows.items() if it["outcome"] in (*NOT_WELL, "reverted")]
    left = f"the run continued without {_names(bad)}: {len(bad)} of {len(rows)} hosts {'needs' if len(bad) == 1 else 'need'} attention" if bad else None
    counts = {}
    for it in rows.values():
        counts[it["outcome"]] = counts.get(it["outcome"], 0) + 1
    return {
        "event": "result",
        "outcome": _outcome(rows, because, check, survey),
        "release": release,
        "exit": _exit(rows, bad, because),
        "why": because["why"] if because else left,
        "counts": counts,
        # hosts that a person has to look at; the worst last, where a person looks first
        "look": sorted((host for host in bad if rows[host]["outcome"] != "reverted"), key=lambda host: NOT_WELL.index(rows[host]["outcome"])),
        "hosts": [{"host": host, **it} for host, it in rows.items()],
    }


def _outcome(rows, because, check, survey):
    outcomes = {it["outcome"] for it in rows.values()}
    if because:
        return "stopped" if outcomes - {"untouched", "refused", "gone", "up_to_date"} else "refused"
    if check:
        return "looked" if survey else "planned"
    return next((one for one in ("updated", "rolled_back") if one in outcomes), "up_to_date")


def _exit(rows, bad, because):
    """Tolerated hosts let a run go on; its exit code still says how the hosts are."""
    outcomes = {it["outcome"] for it in rows.values()}
    if because is None:
        exits = [*(OWN_EXIT.get(rows[host]["outcome"]) or rows[host]["exit"] or EXIT["unexpected"] for host in bad), 0]
        return next(code for code in WORST_FIRST if code in exits)
    if outcomes & {"down", "stuck"}:
        return EXIT["down"]
    if "unknown" in outcomes:
        return EXIT["network"]
    if outcomes & {"reverted", "restarted", "taken_back", "updated", "rolled_back"}:
        return EXIT["reverted"] if because["exit"] in (1, EXIT["reverted"], EXIT["down"]) else because["exit"]
    return because["exit"]
