# What the tasks of the playbook do: they ask one host to look, to move, to soak or to go back (plugin_utils/host.py), and decide between
# these steps (module_utils/judge.py). Runs on the controller.
# What is known of a host is what Ansible has registered of it: `fleet_seen`, `fleet_plan`, `fleet_moved`, `fleet_judged`. This file
# reads that, and the role's variables, by itself. Reason: Ansible compiles a template in a task anew for every host, and twelve of
# them took longer than all else that the controller does for a host.
# Must never break: a wave that cannot be judged is a bad one.

from __future__ import annotations

import os
import shlex
import subprocess
import time

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible_collections.baton.fleet.plugins.module_utils import judge
from ansible_collections.baton.fleet.plugins.module_utils.schema import TAG, clean
from ansible_collections.baton.fleet.plugins.module_utils.words import EXIT, GOOD
from ansible_collections.baton.fleet.plugins.plugin_utils.host import SECONDS_MAX, Host

HOOK_SECONDS = 600


class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        self.host = self._task.delegate_to or task_vars.get("inventory_hostname", "?")
        # a delegated task takes the variables of the host that it is delegated to
        self.vars = (task_vars.get("ansible_delegated_vars") or {}).get(self._task.delegate_to) or task_vars
        self.all_vars = task_vars
        self.is_check = boolean(task_vars.get("ansible_check_mode", False))
        self.args = dict(self._task.args)
        do = self.args.pop("do", None)
        acts = {act.__name__: act for act in (self.look, self.name, self.plan, self.move, self.judge, self.soak, self.verdict, self.back)}
        if do not in acts:
            raise AnsibleActionFail(f"do: expected one of {', '.join(acts)}, got {do!r}")
        self.read()
        answer = acts[do]()
        if answer is None:
            return {**result, "changed": False, "skipped": True, "skip_reason": "it is not its turn"}
        return {**result, "changed": False, **answer}

    def read(self):
        self.asked = str(self.said("release", "") or "")
        self.to = str(self.args.pop("to", "") or "") or self.asked
        for tag in (self.asked, self.to):
            if tag not in ("", "latest") and not TAG.match(tag):
                raise AnsibleActionFail(f"release: expected `latest` or a tag of the form vX.Y.Z, got {tag[:40]!r}")
        self.on_failure = self.said("on_failure", "wave")
        if self.on_failure not in ("fleet", "wave", "none"):
            raise AnsibleActionFail(f"on_failure: expected fleet, wave or none, got {self.on_failure!r}")
        self.options = {
            "asked": self.asked,
            "rollback": self.yes("rollback"),
            "allow_downgrade": self.yes("allow_downgrade"),
            "max_fail_percentage": self.number("max_fail_percentage", 0, 100),
            "check": self.is_check,
        }
        self.rollback = self.options["rollback"]
        self.at = Host(self)

    # ---- before anything is done

    def look(self):
        """Finds what runs, what the host would take, and what would be in the way. Changes nothing."""
        seen, self.to = self.at.look(self.to)
        return self._seen(seen)

    def name(self):
        """`latest` is the highest tag that any host is offered: asks a host that was looked at already what it would take of that."""
        self.to = judge.latest(self._all("fleet_seen", "seen"))
        mine = self._known().get("fleet_seen") or {}
        if not self.to or not mine.get("seen") or mine["seen"]["refused"]:
            return None
        return self._seen(self.at.look_again(self.to))

    def plan(self):
        """Once for all hosts: which of them move. Fails if nothing may be changed."""
        seen = self._all("fleet_seen", "seen")
        release = self.asked
        if release == "latest" and not self.rollback:
            release = judge.latest(seen)
            seen = {host: again or seen[host] for host, again in self._all("fleet_named", "seen").items()}
        decided = judge.plan(seen, {**self.options, "release": release})
        turn = [host for host, row in decided["rows"].items() if row["outcome"] is None]
        event = {"event": "plan", "rollback": self.rollback, "check": self.is_check, "survey": judge.is_survey(self.options), **decided}
        answer = {"fleet": event, "rows": decided["rows"], "release": release, "turn": [] if decided["stop"] else turn}
        return {**answer, "failed": True, "msg": decided["stop"]["why"]} if decided["stop"] else answer

    # ---- a wave

    def move(self):
        row = self._known_row("fleet_plan")
        if not row or row["outcome"] is not None:
            return None
        self.to = row["to"]
        if self.is_check:
            return {"changed": True, "moved": None}
        if self.rollback:
            return self._between_hooks("host", self.at.rollback)
        # the look may be hours old
        ahead = judge.newer(self.at.now(), self.to, self.options)
        if ahead:
            why = f"the host now runs {ahead}, which is newer than {self.to}; to move it anyway, use `--allow-downgrade`"
            return self._outcome("host", {"outcome": "failed", **judge.stop(why, EXIT["refused"]), "ms": 0})
        return self._between_hooks("host", self.at.upgrade)

    def judge(self):
        """Once for the wave: after its moves, and again after the soak, then with the gate. Decides which hosts go back."""
        before = self._known().get("fleet_judged") or {}
        batch = [host for host in self.vars["ansible_play_batch"] if (self._known_row("fleet_plan", host) or {"outcome": ""})["outcome"] is None]
        if not batch or self.is_check:
            return None
        soaked = before.get("step") == "soak" and batch == list(before["rows"])
        if soaked and before["stop"]:
            return {**before, "fleet": None}
        wave = before["wave"] if soaked else self._wave_before() + 1
        rows = before["rows"] if soaked else {host: self._known_row("fleet_plan", host) for host in batch}
        try:
            if soaked:
                gate = self._gate(wave, batch)
                rows, stop = judge.judge_soak(rows, self._all("fleet_soaked", "still", batch), gate, self.options)
            else:
                rows, stop = judge.judge_moves(rows, self._all("fleet_moved", "moved", batch), self.options)
        except Exception as error:
            why = f"the wave cannot be judged: {type(error).__name__}: {clean(error)}"
            rows = {host: row if row["outcome"] else {**row, "outcome": "unknown", **judge.stop(why, 1)} for host, row in rows.items()}
            stop = judge.stop(why, EXIT["unexpected"])
        seconds = self.number("soak", 300)
        step = "good" if soaked else "soak"
        event = {"event": "wave", "wave": wave, "step": step, "hosts": batch, **({"seconds": seconds} if step == "soak" else {})}
        if stop:
            event = {"event": "stop", **stop, "wave": wave, "hosts": batch, "onFailure": self.on_failure}
        answer = {"wave": wave, "step": step, "rows": rows, "stop": stop, "soakUntil": time.monotonic() + seconds}
        shares = self._shares(batch) if stop and self.on_failure == "fleet" else {}
        return {**answer, "earlier": shares, "fleet": {**event, "rows": rows}}

    def soak(self):
        """Watches the host through the soak. Then says what runs, once nothing is in flight and the release has proved itself."""
        row = self._known_row("fleet_judged")
        if not row or self._known()["fleet_judged"]["stop"] or row["outcome"] not in (*GOOD, "gone", "unknown"):
            return None
        return {"still": self.at.soak(row, self._known()["fleet_judged"]["soakUntil"])}

    def verdict(self):
        """Fails on every host of a wave that was not good, and on each host that is not good itself."""
        row = self._known_row("fleet_judged")
        if not row:
            return None
        stop = self._known()["fleet_judged"]["stop"]
        failed = bool(stop) or row["outcome"] not in GOOD
        return {"failed": failed, "msg": (stop or {"why": f"{row['outcome']}: {row['why']}"})["why"]}

    def back(self):
        """Goes back to the tag from before, by the host's own backup executable. Fails even then: the host is not where it should be."""
        row = self._known_row("fleet_judged")
        if self.on_failure == "none" or not row or not judge.goes_back(row):
            return {"failed": True, "msg": "it does not go back"}
        self.to = row["from"]
        try:
            self.at.until_idle(self.at.again_timeout)
            done = self._between_hooks("back", self.at.back)["moved"]
        except AnsibleConnectionFailure:
            done = None
        now = judge.is_back(row, done)
        return {"failed": True, "changed": bool(done), "msg": now["outcome"], "fleet": {"event": "back", "host": self.host, **now}}

    # ---- what Ansible has registered

    def _known(self, host=None):
        """The raw variables of a host: `hostvars[host]` would look for templates in its answers."""
        return self.all_vars["hostvars"].raw_get(host or self.host)

    def _known_row(self, name, host=None):
        return ((self._known(host).get(name) or {}).get("rows") or {}).get(host or self.host)

    def _all(self, name, key, hosts=None):
        """Each host's answer; None if it could not be reached or was not asked."""
        answers = {}
        for host in self.vars["ansible_play_batch"] if hosts is None else hosts:
            got = self._known(host).get(name) or {}
            answers[host] = None if got.get("unreachable") else got.get(key)
            # it could not even be asked: a variable of this host is wrong
            if got.get("failed") and key not in got and not got.get("unreachable"):
                why = clean(got.get("msg", "the host could not be asked"))
                failure = {"outcome": "failed", "running": None, "busy": False, "known": False, "restarted": None, **judge.stop(why, 1)}
                answers[host] = {"refused": judge.stop(why, EXIT["usage"])} if key == "seen" else failure
        return answers

    def _earlier(self):
        """The hosts of earlier batches of this play's `serial`."""
        hosts = list(self.vars["ansible_play_hosts_all"])
        return hosts[: hosts.index(self.vars["ansible_play_batch"][0])]

    def _wave_before(self):
        return next((known["wave"] for host in reversed(self._earlier()) if (known := self._known(host).get("fleet_judged") or {}).get("wave")), 0)

    def _shares(self, batch):
        """Hosts of earlier waves go back too: which of them each host of this wave sees to, all at the same time."""
        rows = {host: self._known_row("fleet_judged", host) for host in self._earlier()}
        touched = [host for host, row in rows.items() if row and judge.goes_back(row)]
        return {host: touched[n :: len(batch)] for n, host in enumerate(batch)}

    # ---- how

    def _seen(self, seen):
        seen["to"] = None if self.to in ("", "latest") else self.to
        return {"fleet": {"event": "seen", "host": self.host, **seen}, "seen": seen}

    def _between_hooks(self, event, move):
        began = time.monotonic()
        try:
            refusal = self._hook("before", self.said("before_host", ""))
            done = {"outcome": "failed", **judge.stop(refusal, EXIT["refused"])} if refusal else move(self.to)
        finally:
            # even if the --before-host hook has failed halfway
            refusal = self._hook("after", self.said("after_host", ""))
        if refusal and done["outcome"] in GOOD:
            done.update(outcome="failed", why=f"{done['outcome']}, but {refusal}", exit=1)
        return self._outcome(event, {**done, "ms": round((time.monotonic() - began) * 1000)})

    def _outcome(self, event, done):
        good = done["outcome"] in GOOD
        changed = done["outcome"] in ("updated", "rolled_back", "reverted")
        row = {"event": event, "host": self.host, **{key: value for key, value in done.items() if key != "alive"}}
        return {"changed": changed, "failed": not good, "fleet": row, "moved": done, "msg": f"{done['outcome']}: {done.get('why') or ''}"}

    def _gate(self, wave, batch):
        """Why the gate says no, or None."""
        addresses = [str(self._known(host).get("ansible_host", "")) for host in batch]
        release = self._known()["fleet_plan"]["release"]
        told = {"RELEASE": release, "WAVE": str(wave), "HOSTS": " ".join(batch), "ADDRESSES": " ".join(addresses)}
        refusal = self._run("it", self.said("gate", ""), told, self.number("gate_timeout", 900))
        return refusal and f"the gate did not let the deployment continue: {refusal}"

    def _hook(self, when, command):
        """Why the hook failed; None if it went well."""
        told = {"HOST": self.host, "ADDRESS": str(self.vars.get("ansible_host", self.host)), "RELEASE": self.to, "WHEN": when}
        return self._run(f"the --{when}-host hook", command, told, HOOK_SECONDS)

    def _run(self, what, command, told, seconds):
        """Runs a command on the controller, in the directory that the run was started from. Why it failed; None if it went well."""
        if not command:
            return None
        environment = {**os.environ, **{f"BATON_{name}": value for name, value in told.items()}}
        command = ["/bin/sh", "-c", str(command)]
        try:
            ran = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return f"{what} took more than {seconds} s"
        if ran.returncode == 0:
            return None
        said = [line for line in [*ran.stdout.splitlines(), *ran.stderr.splitlines()] if line.strip()]
        printed = clean(" · ".join(said[-3:]))
        return f"{what} exited with code {ran.returncode}{f': {printed}' if printed else ' and printed nothing'}"

    def run_there(self, script, words):
        """Runs a shell script on the host, with these words; returns Ansible's answer."""
        on_stdin = self._connection.has_pipelining
        command = ["sh", "-s", "--", *words] if on_stdin else ["sh", "-c", script, "sh", *words]
        line = " ".join(shlex.quote(word) for word in command)
        return self._low_level_execute_command(line, in_data=script.encode() if on_stdin else None)

    def said(self, name, default):
        """The task's argument, else the role's variable, else the default."""
        if name in self.args:
            return self.args[name]
        return self._templar.template(self.vars.get(f"fleet_{name}", default))

    def yes(self, name):
        return boolean(self.said(name, False))

    def word(self, name, default, form):
        value = str(self.said(name, "") or default)
        if not form.match(value):
            raise AnsibleActionFail(f"{name}: expected {form.pattern}, got {value[:40]!r}")
        return value

    def number(self, name, default, most=SECONDS_MAX):
        try:
            value = int(self.said(name, default))
        except (TypeError, ValueError):
            value = -1
        if not 0 <= value <= most:
            raise AnsibleActionFail(f"{name}: expected 0 to {most}")
        return value
