# The decisions of plugins/module_utils/ (plan, judge, end) as filters for the playbook. Each takes the run and returns the run.
# Must never break: a host's answer may hold `{{ … }}`; all of it is marked unsafe, so that it is never expanded.

from __future__ import annotations

import os
import time

from ansible.errors import AnsibleFilterError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.utils.unsafe_proxy import wrap_var
from ansible_collections.baton.fleet.plugins.module_utils import earlier as past
from ansible_collections.baton.fleet.plugins.module_utils import end, judge
from ansible_collections.baton.fleet.plugins.module_utils import plan as planning
from ansible_collections.baton.fleet.plugins.module_utils.schema import clean


def _registered(hostvars, hosts, name, key):
    """Each host's answer; None if it could not be reached or was not asked."""
    answers = {}
    for host in hosts:
        # the raw answer: `hostvars[host]` would look for templates in it
        got = hostvars.raw_get(host).get(name) or {}
        answers[host] = None if got.get("unreachable") else got.get(key)
        # it could not even be asked: a variable of this host is wrong
        if got.get("failed") and key not in got and not got.get("unreachable"):
            why = clean(got.get("msg", "it could not be asked"))
            answers[host] = {"refused": {"why": why, "exit": 2}} if key == "seen" else _failure(why)
    return answers


def _failure(why):
    return {"outcome": "failed", "why": why, "exit": 1, "running": None, "busy": False, "known": False, "restarted": None}


def _safely(function):
    def guarded(*args, **kwargs):
        try:
            return wrap_var(function(*args, **kwargs))
        except Exception as error:
            raise AnsibleFilterError(f"{function.__name__}: {clean(error) or type(error).__name__}") from error

    return guarded


def turns_to_look(hosts, release, earlier):
    return planning.turns_to_look(hosts, release, earlier)


def latest(hosts, hostvars):
    return planning.latest_of(_registered(hostvars, hosts, "fleet_seen", "seen"))


def turns_to_name(hosts, hostvars):
    return planning.turns_to_name(_registered(hostvars, hosts, "fleet_seen", "seen"))


def plan(hosts, hostvars, options, earlier=None, before=None):
    seen = _registered(hostvars, hosts, "fleet_seen", "seen")
    if options["asked"] == "latest":
        named = _registered(hostvars, hosts, "fleet_named", "seen")
        seen = {host: named[host] or seen[host] for host in hosts}
    return planning.plan(seen, _checked(options), earlier, before)


def carried(before, play, release):
    return planning.carried(before, play, release)


def _checked(options):
    """Converts the texts that templates give. Raises ValueError for a fault, before anything is done."""
    numbers = {key: int(options[key]) for key in ("soak", "tolerate_bad", "tolerate_gone")}
    flags = {key: boolean(options.get(key, False)) for key in ("rollback", "check", "allow_downgrade")}
    if options["on_failure"] not in ("fleet", "wave", "none"):
        raise ValueError(f"on_failure: expected fleet, wave or none, got {options['on_failure']!r}")
    return {**options, **numbers, **flags}


def begin(run, hosts):
    return judge.begin(run, list(hosts))


def _judged(function):
    """If a wave cannot be judged, the run stops and the wave goes back. Without this, the next wave would begin."""

    def guarded(run, *args):
        try:
            return function(run, *args)
        except Exception as error:
            return judge.unjudged(run, f"{type(error).__name__}: {clean(error)}")

    guarded.__name__ = function.__name__
    return guarded


@_judged
def judge_moves(run, hostvars):
    run = judge.judge_moves(run, _registered(hostvars, run["batch"], "fleet_moved", "moved"))
    return {**run, "soakUntil": time.monotonic() + run["options"]["soak"]}


@_judged
def judge_soak(run, hostvars, gated=None):
    gate = None
    if gated and "rc" in gated:
        said = [*str(gated.get("stdout", "")).splitlines(), *str(gated.get("stderr", "")).splitlines()]
        gate = {"rc": gated["rc"], "said": clean(" · ".join(line for line in said[-3:] if line))}
    elif gated and (gated.get("failed") or gated.get("unreachable")):
        # it ran out of time, or Ansible could not start it
        gate = {"rc": 124, "said": clean(gated.get("msg", ""))}
    return judge.judge_soak(run, _registered(hostvars, run["batch"], "fleet_still", "still"), gate)


def found_again(run, hostvars):
    return end.found_again(run, _registered(hostvars, end.lost(run), "fleet_again", "still"))


def ended(run, hostvars):
    results = _registered(hostvars, run["back"], "fleet_back", "moved")
    for host in run["hosts"]:
        # hosts of earlier batches: one host of this batch asked them
        for got in (hostvars.raw_get(host).get("fleet_back_before") or {}).get("results") or []:
            if run["hosts"].get(got.get("item"), {}).get("carried"):
                results[got["item"]] = None if got.get("unreachable") else got.get("moved") or _failure(clean(got.get("msg", "")))
    return end.ended(run, results)


def earlier(path):
    """The facts from an earlier run's report; empty if there is none."""
    return past.fold(past.lines_of(os.path.expanduser(path))) if path else {}


class FilterModule:
    def filters(self):
        plain = (judge.in_the_way, judge.turns_to_move, end.turns_again, end.turns_back)
        words = (turns_to_look, latest, turns_to_name, plan, begin, judge_moves, judge_soak, found_again, ended, earlier, carried, *plain)
        return {word.__name__: _safely(word) for word in words}
