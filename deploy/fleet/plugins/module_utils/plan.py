# The decisions before anything is done, as pure functions: which hosts take part, in which wave, and what is in the way.
# `run` is the whole state of a run, a dictionary that goes from step to step; `run["events"]` is what a step adds to the report.
# Must never break: nothing is decided from silence; what is not known is called unknown.

from __future__ import annotations

from ipaddress import ip_address

from ansible_collections.baton.fleet.plugins.module_utils.schema import clean, order
from ansible_collections.baton.fleet.plugins.module_utils.words import BAD, EXIT, GOOD, names, stop

WAVES_MAX = 100


def wave_sizes(waves, count):
    """As Ansible's own `serial`: each is a number of hosts, or a share of all; the last one repeats until all had their turn."""
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


def _is_plain(host):
    """Whether Ansible takes this name as it is: it reads `hosts:` as a pattern, and braces as a template that it expands here."""
    try:
        return bool(ip_address(host))
    except ValueError:
        return not any(one.isspace() or one in ",:{}" for one in host)


def turns_to_look(hosts, release, earlier):
    """Asks every host what it would take. On a resume: for the earlier run's tag, with what that run recorded of the host."""
    odd = [host for host in hosts if not _is_plain(host)]
    if odd:
        raise ValueError(f"expected names of hosts without blanks, commas, braces and ports, got {', '.join(repr(clean(host, 60)) for host in odd)}")
    known = earlier.get("hosts", {})
    return {host: {"to": earlier.get("release") or release, "known": known.get(host)} for host in hosts}


def turns_to_name(seen):
    """The hosts to ask once more now that `latest` is a tag: those that may take part."""
    tag = latest_of(seen)
    return {host: {"to": tag} for host, it in seen.items() if it and tag and not it.get("refused")}


def latest_of(seen):
    """The one tag that `latest` means for all: the highest that any host is offered. `_row` deals with tags known as bad."""
    tags = [it["latest"] for it in seen.values() if it and it.get("latest")]
    return max(tags, key=order, default="")


def carried(before, play, release):
    """What earlier batches of the same `serial` left: their rows, and how many waves they were. Empty if there were none."""
    rows = (before or {}).get("hosts") or {}
    is_same = rows and set(rows) < set(play["hosts"]) and not set(rows) & set(play["batch"]) and before["release"] == release
    return {"hosts": {host: {**row, "carried": True} for host, row in rows.items()}, "wave": before["wave"]} if is_same else {}


def plan(seen, options, earlier=None, before=None):
    """`seen`: what a look has found, for each host in the order of the inventory; None if it could not be reached."""
    earlier, before = earlier or {}, before or {}
    run = {
        "release": options["release"],
        "rollback": options["rollback"],
        "options": options,
        "wave": 0,
        "hosts": dict(before.get("hosts", {})),
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
    # counts the bad hosts of an earlier run too, also those of its good waves: the tolerance is for both runs together
    run["bad"] = {host: row["why"] for host, row in rows.items() if row["outcome"] in BAD}
    gone = [host for host, row in rows.items() if row["outcome"] == "gone"]
    refused = [host for host, row in rows.items() if row["outcome"] == "refused"]
    run["waves"] = _waves(rows, options["waves"], earlier, before.get("wave", 0))
    run["stop"] = _objection(rows, seen, gone, refused, run["waves"], options)
    on_its_way_back = earlier.get("stop")
    if on_its_way_back:
        run["stop"], run["back"] = {**on_its_way_back, "wave": earlier.get("wave")}, [it for it in earlier["back"] if it in rows]
    run["order"] = [host for wave in run["waves"] for host in wave]
    run["sizes"] = [len(wave) for wave in run["waves"]] or [1]
    run["wave"] = max([0, *(number - 1 for number in _numbers(rows, run["waves"]))]) if earlier else before.get("wave", 0)
    run["of"] = run["wave"] + len(run["waves"])
    run["events"] = [
        {
            "event": "plan",
            "release": run["release"],
            "rollback": run["rollback"],
            "hosts": list(rows),
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
    """What is known of one host before the first wave, or, on a resume, from the earlier run."""
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
        why = f"it remembers {to} as bad: {bad.get('why') or 'it failed here'}"
        return {**row, "outcome": "refused", "why": why, "exit": EXIT["refused"]}
    if is_survey(options):
        return {**row, "to": None, "outcome": "untouched"}
    if there or _is_back_already(it, to, options):
        return {**row, "to": it.get("running"), "outcome": "up_to_date"}
    ahead = newer(it, to, options)
    if ahead:
        why = f"it is at {ahead}, which is newer than {to}: `--allow-downgrade` takes it there"
        return {**row, "outcome": "refused", "why": why, "exit": EXIT["refused"]}
    return row


def _is_back_already(it, to, options):
    """A rollback that names no tag goes back, never forward."""
    if not options["rollback"] or options["asked"] not in ("", "latest"):
        return False
    return bool(it.get("running") and to) and not it.get("inFlight") and order(to) > order(it["running"])


def is_survey(options):
    """Whether no release is asked for: only what runs where."""
    return options["check"] and not options["rollback"] and not options["asked"]


def newer(it, to, options):
    """What this host runs, or is on its way to, if newer than `to`; else None. None too for a rollback or an allowed downgrade."""
    if options["rollback"] or options["allow_downgrade"] or not to:
        return None
    tags = [it.get("running"), (it.get("inFlight") or {}).get("to")]
    return max((tag for tag in tags if tag and order(tag) > order(to)), key=order, default=None)


def known_row(known, it, to):
    """On a resume: what the earlier run recorded, and what the host has finished by itself since."""
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


def _waves(rows, waves, earlier, before):
    """The waves of a fresh run, from the sizes; of a resumed run, what is left of its waves."""
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
    for number, size in enumerate(wave_sizes(waves, len(ready)), before + 1):
        result.append(ready[at : at + size])
        for host in result[-1]:
            rows[host]["wave"] = number
        at += size
    return result


def _numbers(rows, waves):
    return [rows[wave[0]]["wave"] or 1 for wave in waves[:1]]


def _objection(rows, seen, gone, refused, waves, options):
    """Why nothing may be changed, or None. The worst first: mistakes of the operator, then what is missing."""
    if not rows:
        return stop("the inventory names no host", EXIT["usage"])
    twins = _twins(seen)
    if twins:
        return stop(f"{' and '.join(twins)} are the same host: its service has one and the same instance", EXIT["usage"])
    if is_survey(options):
        return None
    if len(gone) > options["tolerate_gone"]:
        tell = f"cannot be reached: {names(gone)} (`--tolerate-gone {len(gone)}` goes on without)"
        return stop(tell, EXIT["network"])
    if len(refused) > options["tolerate_bad"]:
        first = rows[refused[0]]
        tell = f"{names(refused)} cannot take part: {first['why']} (`--tolerate-bad {len(refused)}` goes on without)"
        return stop(tell, first["exit"])
    offered = {}
    for host, it in seen.items():
        if it and it.get("sha256") and rows[host]["outcome"] is None:
            offered.setdefault((it["route"], it["platform"], rows[host]["to"]), {}).setdefault(it["sha256"], []).append(host)
    for (_, platform, to), sums in offered.items():
        if len(sums) > 1:
            said = "; ".join(f"{sha[:12]}… on {names(hosts)}" for sha, hosts in sums.items())
            return stop(f"not every host would take the same {to} for {platform}: {said}", EXIT["verification"])
    tags = {row["to"] for row in rows.values() if row["outcome"] is None}
    if not options["rollback"] and tags == {""}:
        problem = next((it["problem"] for it in seen.values() if it and it.get("problem")), None)
        tell = "no host could tell what the latest release is"
        return stop(f"{tell}: {problem['why']}" if problem else tell, problem["exit"] if problem else EXIT["network"])
    if not options["rollback"] and len(tags) > 1:
        return stop(f"expected one release for all, got {', '.join(sorted(tags))}", EXIT["verification"])
    if not waves and not any(row["outcome"] in GOOD for row in rows.values()):
        return stop("no host is left that could take part", EXIT["network"] if gone else EXIT["refused"])
    return None


def _twins(seen):
    first = {}
    for host, it in seen.items():
        instance = (it or {}).get("instance")
        if instance and first.setdefault(instance, host) != host:
            return [first[instance], host]
    return []
