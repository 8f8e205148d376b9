# Asks one host to look, to move, to soak or to go back, and decides between these steps. Runs on the controller; the host runs
# plugins/modules/release.sh and nothing else. If a host cannot be reached, Ansible itself reports it (UNREACHABLE).
# What is known of a host is what Ansible has registered of it: `fleet_seen`, `fleet_plan`, `fleet_moved`, `fleet_judged`. This file
# reads that, and the role's variables, by itself. Reason: Ansible compiles a template in a task anew for every host, and twelve of
# them took longer than all else that the controller does for a host.
# Must never break: `move` and `back` name the tag, so that asking twice is the same as asking once; a wave that cannot be judged is
# a bad one.

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible_collections.baton.fleet.plugins.module_utils import judge
from ansible_collections.baton.fleet.plugins.module_utils.answers import alive, looked, moved, parse, settled, silent
from ansible_collections.baton.fleet.plugins.module_utils.schema import TAG, clean
from ansible_collections.baton.fleet.plugins.module_utils.words import EXIT, GOOD

COMMAND = re.compile(r"^[A-Za-z0-9_./-]+\Z")
PAUSE = re.compile(r"^(end|\d{4}-\d\d-\d\d)\Z", re.ASCII)
IMAGE = re.compile(r"^[a-z0-9][A-Za-z0-9_./:@-]{0,254}\Z")
SECONDS_MAX = 86400
POLL_SECONDS = 1
# in a soak, a host is asked about every SAMPLE_SECONDS, and at most SAMPLES_MAX times
SAMPLE_SECONDS = 5
SAMPLES_MAX = 20
# a service may be slow to answer once; after this many silences in a row it is down
SILENCES = 3
HOOK_SECONDS = 600
SCRIPT = os.path.join(os.path.dirname(__file__), "..", "modules", "release.sh")


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
        self.asked = str(self._said("release", "") or "")
        self.to = str(self.args.pop("to", "") or "") or self.asked
        for tag in (self.asked, self.to):
            if tag not in ("", "latest") and not TAG.match(tag):
                raise AnsibleActionFail(f"release: expected `latest` or a tag of the form vX.Y.Z, got {tag[:40]!r}")
        self.command = self._word("command", "beacon", COMMAND)
        self.route = self._said("route", self.vars.get("route", "host")) or "host"
        if self.route not in ("host", "container"):
            raise AnsibleActionFail(f"route: expected host or container, got {self.route!r}")
        if self.route == "container":
            self.container = self._word("container", self.command, COMMAND)
            self.image = self._word("image", "", IMAGE)
            self.socket = self._word("engine_socket", "/var/run/docker.sock", COMMAND)
            self.probation = self._number("container_probation", 30)
        self.lock_timeout = self._number("lock_timeout", 600)
        self.health_timeout = self._number("health_timeout", 60)
        self.again_timeout = self._number("again_timeout", 30)
        self.answer_timeout = self._number("answer_timeout", 600) or SECONDS_MAX
        self.on_failure = self._said("on_failure", "wave")
        if self.on_failure not in ("fleet", "wave", "none"):
            raise AnsibleActionFail(f"on_failure: expected fleet, wave or none, got {self.on_failure!r}")
        self.options = {
            "asked": self.asked,
            "rollback": boolean(self._said("rollback", False)),
            "allow_downgrade": boolean(self._said("allow_downgrade", False)),
            "max_fail_percentage": self._number("max_fail_percentage", 0, 100),
            "check": self.is_check,
        }
        self.rollback = self.options["rollback"]

    # ---- before anything is done

    def look(self):
        """Finds what runs, what the host would take, and what would be in the way. Changes nothing."""
        calls = self.call(*self._verbs_to_look())
        seen = looked(calls, self.route)
        if not seen["refused"] and self.rollback and not self.to:
            self.to = seen["backup"] or ""
            if self.to:
                seen = looked(calls + self.call(self._dry_run()), self.route)
            else:
                seen["refused"] = judge.stop("there is no backup executable to go back to", EXIT["refused"])
        return self._seen(seen)

    def name(self):
        """`latest` is the highest tag that any host is offered: asks a host that was looked at already what it would take of that."""
        self.to = judge.latest(self._all("fleet_seen", "seen"))
        mine = self._known().get("fleet_seen") or {}
        if not self.to or not mine.get("seen") or mine["seen"]["refused"]:
            return None
        return self._seen(looked(self.call(self._status(), self._dry_run()), self.route))

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
            return self._between_hooks("host", self._verb("rollback"))
        # the look may be hours old
        ahead = judge.newer(looked(self.call(self._status()), self.route), self.to, self.options)
        if ahead:
            why = f"it is at {ahead} by now, which is newer than {self.to}: `--allow-downgrade` takes it there"
            return self._outcome("host", {"outcome": "failed", **judge.stop(why, EXIT["refused"]), "ms": 0})
        return self._between_hooks("host", self._verb("upgrade"))

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
        seconds = self._number("soak", 300)
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
        self.to = row["to"]
        before, still = self._soaked(row, self._known()["fleet_judged"]["soakUntil"])
        return {"still": still or settled(self._until_idle(0 if row["outcome"] in GOOD else self.again_timeout), before)}

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
            self._until_idle(self.again_timeout)
            done = self._between_hooks("back", self._verb("rollback"))["moved"]
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
                why = clean(got.get("msg", "it could not be asked"))
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

    def call(self, *verbs, seconds=None):
        """One call on the host for each verb, all in one connection. A host that is silent for too long has answered nothing."""
        command = self.command
        if self.route == "container":
            command = f"docker run --rm -v {self.socket}:/var/run/docker.sock {self.image}"
        with open(SCRIPT, encoding="utf-8") as file:
            script = file.read()
        words = ["sh", "-s", "--", command, *verbs]
        data = script.encode()
        if not self._connection.has_pipelining:
            words, data = ["sh", "-c", script, "sh", command, *verbs], None
        line = " ".join(shlex.quote(word) for word in words)
        seconds = seconds or self.answer_timeout
        before = signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(seconds)
        try:
            answer = self._low_level_execute_command(line, in_data=data)
        except TooLong:
            return silent(verbs, seconds)
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
        return parse(answer["stdout"], answer["stderr"], answer["rc"], verbs)

    def _soaked(self, row, until):
        """
        Returns the process that must still serve, and the answer that ends the soak early, or None. The whole wave's soak ends at
        one time. If the wave has more hosts than Ansible has forks, hosts of a later turn are compared only with their move.
        """
        before = row.get("alive")
        step = max(SAMPLE_SECONDS, (until - time.monotonic()) / SAMPLES_MAX)
        parent = os.getppid()
        due = before is None
        while (left := until - time.monotonic()) > 0:
            still = self._sample(before) if due and row["outcome"] in GOOD else {}
            before, due = before or still.get("alive"), True
            if still.get("bad"):
                return before, still["bad"]
            self._sleep(min(step, left), parent)
        return before, None

    def _sample(self, before):
        """One look in the middle of a soak. Judges only a host that answers; a silent one is asked at the end."""
        for _ in range(SILENCES):
            try:
                status = self.call(self._status())[-1]
            except AnsibleConnectionFailure:
                return {}
            now = settled(status, before)
            if not now["busy"] and (now["restarted"] or now["running"] not in (None, self.to)):
                return {"bad": now}
            if now["running"] or not now["known"]:
                return {"alive": alive(status)}
            time.sleep(POLL_SECONDS)
        return {"bad": now}

    def _sleep(self, seconds, parent):
        """Sleeps; ends at once if the run was killed."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if os.getppid() != parent:
                raise KeyboardInterrupt
            time.sleep(min(POLL_SECONDS, left))

    def _seen(self, seen):
        seen["to"] = None if self.to in ("", "latest") else self.to
        # in a check: whether a move would change this host; a look changes nothing
        would = seen["would"] not in (None, "up_to_date") and not seen["refused"] and not judge.newer(seen, self.to, self.options)
        return {"changed": self.is_check and would, "fleet": {"event": "seen", "host": self.host, **seen}, "seen": seen}

    def _verbs_to_look(self):
        """If the tag is known already, the same connection also asks what the host would take."""
        # a check without a release asks what runs where
        if not self.to and not self.rollback:
            return [*self._verbs_to_hold(), self._status()]
        verbs = [self._status(), *(["doctor --json"] if self.route == "host" else [])]
        if TAG.match(self.to):
            return [*verbs, self._dry_run()]
        if self.rollback or self.to != "latest":
            return verbs
        if self.route == "host":
            return [*verbs, "status --check --json"]
        return [*verbs, f"deploy --container {self.container} --release latest --dry-run --json"]

    def _verbs_to_hold(self):
        """Holds what hosts do by themselves, or ends that. A container does nothing by itself."""
        pause = str(self._said("pause", "") or "")
        if not pause or self.route == "container":
            return []
        if not PAUSE.match(pause):
            raise AnsibleActionFail(f"pause: expected a day such as 2026-12-27, or end, got {pause[:40]!r}")
        return ["upgrade --unpause --json" if pause == "end" else f"upgrade --pause-until {pause} --json"]

    def _status(self):
        """Asks no feed and no registry."""
        return "status --json" if self.route == "host" else f"deploy --container {self.container} --status --json"

    def _dry_run(self):
        verb = "rollback" if self.rollback else "upgrade"
        return self._verb(verb, "--dry-run")

    def _verb(self, verb, *flags):
        if not TAG.match(self.to):
            raise AnsibleActionFail(f"to: expected a tag of the form vX.Y.Z, got {self.to[:40]!r}")
        end = ["--json", *flags]
        if self.route == "container":
            way = ["--rollback"] if verb == "rollback" else []
            words = ["deploy", "--container", self.container, *way, "--release", self.to]
            words += ["--health-timeout", str(self.health_timeout), "--probation", str(self.probation)]
        else:
            words = [verb, self.to] if verb == "rollback" else [verb, "--release", self.to]
            words += ["--lock-timeout", str(self.lock_timeout), "--health-timeout", str(self.health_timeout)]
        return " ".join(words + end)

    def _between_hooks(self, event, verb):
        began = time.monotonic()
        try:
            refusal = self._hook("before", self._said("before_host", ""))
            done = {"outcome": "failed", **judge.stop(refusal, EXIT["refused"])} if refusal else self._moved(verb, event == "back")
        finally:
            # even if the hook before the host has failed halfway
            refusal = self._hook("after", self._said("after_host", ""))
        if refusal and done["outcome"] in GOOD:
            done.update(outcome="failed", why=f"{done['outcome']}, but {refusal}", exit=1)
        return self._outcome(event, {**done, "ms": round((time.monotonic() - began) * 1000)})

    def _moved(self, verb, for_sure):
        """A managed install waits for its lock by itself. The container tool answers `busy` at once, so this waits for it."""
        deadline = time.monotonic() + self.lock_timeout
        while True:
            # the process that serves now must still serve after the soak
            calls = self.call(verb, self._status(), seconds=SECONDS_MAX)
            done = {**moved(calls, self.to), "alive": alive(calls[-1])}
            if done["outcome"] != "busy" or self.route == "host" or time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)
        now = settled(calls[-1])
        if not for_sure or done["outcome"] not in GOOD or now["running"] == self.to:
            return done
        # `up_to_date` only says what is installed, not what runs
        outcome = "unknown" if now["running"] else "down"
        return {**done, "outcome": outcome, **judge.stop(now["why"] or f"it runs {now['running']}", EXIT["down"])}

    def _outcome(self, event, done):
        good = done["outcome"] in GOOD
        changed = done["outcome"] in ("updated", "rolled_back", "reverted")
        row = {"event": event, "host": self.host, **{key: value for key, value in done.items() if key != "alive"}}
        return {"changed": changed, "failed": not good, "fleet": row, "moved": done, "msg": f"{done['outcome']}: {done.get('why') or ''}"}

    def _until_idle(self, reach_seconds=0):
        deadline = time.monotonic() + self.lock_timeout
        reach = time.monotonic() + reach_seconds
        while True:
            try:
                calls = self.call(self._status())
            except AnsibleConnectionFailure:
                if time.monotonic() > reach:
                    raise
                time.sleep(POLL_SECONDS)
                continue
            status = calls[-1]
            if not status.busy or time.monotonic() > deadline:
                return status
            time.sleep(POLL_SECONDS)

    def _gate(self, wave, batch):
        """Why the gate says no, or None."""
        addresses = [str(self._known(host).get("ansible_host", "")) for host in batch]
        release = self._known()["fleet_plan"]["release"]
        told = {"RELEASE": release, "WAVE": str(wave), "HOSTS": " ".join(batch), "ADDRESSES": " ".join(addresses)}
        refusal = self._run("the gate", self._said("gate", ""), told, self._number("gate_timeout", 900))
        return refusal and f"the gate said no: {refusal}"

    def _hook(self, when, command):
        """Why the hook failed; None if it went well."""
        told = {"HOST": self.host, "ADDRESS": str(self.vars.get("ansible_host", self.host)), "RELEASE": self.to, "WHEN": when}
        return self._run(f"the hook {when} the host", command, told, HOOK_SECONDS)

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
        return f"{what} ended with {ran.returncode}: {clean(' · '.join(said[-3:])) or 'it said nothing'}"

    def _said(self, name, default):
        """The task's argument, else the role's variable, else the default."""
        if name in self.args:
            return self.args[name]
        return self._templar.template(self.vars.get(f"fleet_{name}", default))

    def _word(self, name, default, form):
        value = str(self._said(name, "") or default)
        if not form.match(value):
            raise AnsibleActionFail(f"{name}: expected {form.pattern}, got {value[:40]!r}")
        return value

    def _number(self, name, default, most=SECONDS_MAX):
        try:
            value = int(self._said(name, default))
        except (TypeError, ValueError):
            value = -1
        if not 0 <= value <= most:
            raise AnsibleActionFail(f"{name}: expected 0 to {most}")
        return value


class TooLong(BaseException):
    """Not an Exception: a connection would turn an Exception into another error."""


def _too_long(*_):
    raise TooLong
