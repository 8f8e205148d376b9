# Asks one host to look, to move, to settle or to go back. Runs on the controller; the host runs plugins/modules/release.sh and
# nothing else. If a host cannot be reached, Ansible itself reports it (UNREACHABLE).
# This file reads the arguments that a task does not give from the role's variables, and whose turn it is from the run's
# decisions. Reason: Ansible compiles a template in a task anew for every host, and twelve of them took longer than all else that
# the controller does for a host.
# Must never break: `move` and `back` name the tag, so that asking twice is the same as asking once.

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
from ansible_collections.baton.fleet.plugins.module_utils.answers import alive, looked, moved, parse, settled, silent
from ansible_collections.baton.fleet.plugins.module_utils.plan import newer
from ansible_collections.baton.fleet.plugins.module_utils.schema import TAG, clean
from ansible_collections.baton.fleet.plugins.module_utils.words import GOOD

COMMAND = re.compile(r"^[A-Za-z0-9_./-]+\Z")
HOLD = re.compile(r"^(end|\d{4}-\d\d-\d\d)\Z", re.ASCII)
IMAGE = re.compile(r"^[a-z0-9][A-Za-z0-9_./:@-]{0,254}\Z")
SECONDS_MAX = 86400
POLL_SECONDS = 1
# in a soak, a host is asked about every SAMPLE_SECONDS, and at most SAMPLES_MAX times
SAMPLE_SECONDS = 5
SAMPLES_MAX = 20
# a service may be slow to answer once; after this many silences in a row it is down
SILENCES = 3
HOOK_SECONDS = 600
CONTAINER_ONLY = ("container", "image", "engine_socket", "container_probation")
SCRIPT = os.path.join(os.path.dirname(__file__), "..", "modules", "release.sh")


class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        self.vars = task_vars or {}
        self.host = self._task.delegate_to or self.vars.get("inventory_hostname", "?")
        # a delegated task takes the variables of the host that it is delegated to
        self.vars = (self.vars.get("ansible_delegated_vars") or {}).get(self._task.delegate_to) or self.vars
        self.address = self.vars.get("ansible_host", self.host)
        args = dict(self._task.args)
        do = args.pop("do", None)
        acts = {act.__name__: act for act in (self.look, self.name, self.move, self.settle, self.again, self.back)}
        if do not in acts:
            raise AnsibleActionFail(f"do: expected one of {', '.join(acts)}, got {do!r}")
        turn = {} if "to" in args else self._turn(do)
        if turn is None:
            return {**result, "changed": False, "skipped": True, "skip_reason": "it is not its turn"}
        self.read({**turn, **args})
        result.update(acts[do]())
        return result

    def _turn(self, do):
        """The turn that the run has decided for this host: `{to, known}`. None if it has no turn; empty if there is no run."""
        run = self.vars["hostvars"].raw_get("localhost")
        in_wave = do in ("move", "settle")
        turns = run.get("fleet_turn_move" if in_wave else f"fleet_turn_{do}")
        if turns is None:
            return {}
        return None if in_wave and run.get("fleet_stop") else turns.get(self.host)

    def read(self, args):
        self.to = str(args.pop("to", "") or "")
        if self.to not in ("", "latest") and not TAG.match(self.to):
            raise AnsibleActionFail(f"to: expected `latest` or a tag of the form vX.Y.Z, got {self.to[:40]!r}")
        self.known = args.pop("known", None) or None
        self.command = self._word(args, "command", "beacon", COMMAND)
        self.route = self._said(args, "route", self.vars.get("route", "host")) or "host"
        if self.route not in ("host", "container"):
            raise AnsibleActionFail(f"route: expected host or container, got {self.route!r}")
        if self.route == "container":
            self.container = self._word(args, "container", self.command, COMMAND)
            self.image = self._word(args, "image", "", IMAGE)
            self.socket = self._word(args, "engine_socket", "/var/run/docker.sock", COMMAND)
            self.probation = self._seconds(args, "container_probation", 30)
        self.rollback = boolean(self._said(args, "rollback", False))
        self.allow_downgrade = boolean(self._said(args, "allow_downgrade", False))
        self.lock_timeout = self._seconds(args, "lock_timeout", 600)
        self.health_timeout = self._seconds(args, "health_timeout", 60)
        self.again_timeout = self._seconds(args, "again_timeout", 30)
        self.answer_timeout = self._seconds(args, "answer_timeout", 600) or SECONDS_MAX
        self.before_host = self._said(args, "before_host", "") or ""
        self.after_host = self._said(args, "after_host", "") or ""
        unknown = sorted(set(args) - set(CONTAINER_ONLY))
        if unknown:
            raise AnsibleActionFail(f"there is no argument {unknown[0]!r} here")

    # ---- the questions

    def look(self):
        """Finds what runs, what the host would take, and what would be in the way. Changes nothing."""
        if self.known and self.known.get("started"):
            self._until_idle()
            self.to = self.known.get("to") or self.to
        calls = self.call(*self._verbs_to_look())
        seen = looked(calls, self.route)
        if not seen["refused"] and self.rollback and self.to in ("", "latest") and seen["backup"]:
            self.to = seen["backup"]
            seen = looked(calls + self.call(self._dry_run()), self.route)
        if self.rollback and not self.to and not seen["refused"]:
            seen["refused"] = {"why": "there is no backup executable to go back to", "exit": 7}
        return self._seen(seen)

    def name(self):
        """Asks a host that was looked at already what it would take, now that `latest` is a tag."""
        return self._seen(looked(self.call(self._status(), self._dry_run()), self.route))

    def move(self):
        if self.known and self.known.get("outcome"):
            return self._outcome("host", self.known)
        if self._play_context.check_mode:
            return {"changed": True, "fleet": None, "moved": {"outcome": "planned", "to": self.to}}
        if self.rollback:
            return self._between_hooks("host", self._verb("rollback"))
        # the look may be hours old
        ahead = newer(looked(self.call(self._status()), self.route), self.to, {"rollback": False, "allow_downgrade": self.allow_downgrade})
        if ahead:
            why = f"it is at {ahead} by now, which is newer than {self.to}: `--allow-downgrade` takes it there"
            return self._outcome("host", {"outcome": "failed", "why": why, "exit": 7, "ms": 0})
        return self._between_hooks("host", self._verb("upgrade"))

    def back(self):
        """Goes back to the tag from before, by the host's own backup executable."""
        self._until_idle(self.again_timeout)
        return self._between_hooks("back", self._verb("rollback"))

    def settle(self):
        """Watches the host through the soak. Then says what runs, once nothing is in flight and the release has proved itself."""
        before, still = self._soaked()
        return {"changed": False, "fleet": None, "still": still or settled(self._until_idle(), before)}

    def again(self):
        """Settles a host that has vanished: waits until it can be reached again."""
        return {"changed": False, "fleet": None, "still": settled(self._until_idle(self.again_timeout), self._row().get("alive"))}

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

    def _run(self):
        return self.vars["hostvars"].raw_get("localhost").get("fleet_run") or {}

    def _row(self):
        return (self._run().get("hosts") or {}).get(self.host) or {}

    def _soaked(self):
        """
        Returns the process that must still serve, and the answer that ends the soak early, or None. The whole wave's soak ends at
        one time. If the wave has more hosts than Ansible has forks, hosts of a later turn are compared only with their move.
        """
        row = self._row()
        before = row.get("alive")
        until = self._run().get("soakUntil") or 0
        step = max(SAMPLE_SECONDS, (until - time.monotonic()) / SAMPLES_MAX)
        asks = row.get("outcome") in GOOD
        parent = os.getppid()
        due = before is None
        while asks and (left := until - time.monotonic()) > 0:
            still = self._sample(before) if due else {}
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
        return {"changed": self._would_change(seen), "fleet": {"event": "seen", **seen}, "seen": seen}

    def _would_change(self, seen):
        """In a check: whether a move would change this host. Without a check False, as a look changes nothing."""
        is_check = boolean(self.vars.get("ansible_check_mode", False)) or boolean(self._said({}, "check", False))
        options = {"rollback": self.rollback, "allow_downgrade": self.allow_downgrade}
        would = seen["would"] not in (None, "up_to_date") and not seen["refused"] and not newer(seen, self.to, options)
        return is_check and would

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
        hold = str(self._said({}, "hold", "") or "")
        if not hold or self.route == "container":
            return []
        if not HOLD.match(hold):
            raise AnsibleActionFail(f"hold: expected a day such as 2026-12-27, or end, got {hold[:40]!r}")
        return ["upgrade --release-hold --json" if hold == "end" else f"upgrade --hold {hold} --json"]

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
            done = self._behind_hook(event, verb)
        finally:
            # even if the hook before the host has failed halfway
            refusal = self._hook("after", self.after_host)
        if refusal and done["outcome"] in GOOD:
            done.update(outcome="failed", why=f"{done['outcome']}, but {refusal}", exit=1)
        return self._outcome(event, {**done, "ms": _since(began)})

    def _behind_hook(self, event, verb):
        refusal = self._hook("before", self.before_host)
        if refusal:
            return {"outcome": "failed", "why": refusal, "exit": 7}
        done = self._moved(verb)
        return self._back_for_sure(done) if event == "back" else done

    def _moved(self, verb):
        """A managed install waits for its lock by itself. The container tool answers `busy` at once, so this waits for it."""
        deadline = time.monotonic() + self.lock_timeout
        while True:
            # the process that serves now must still serve after the soak
            calls = self.call(verb, self._status(), seconds=SECONDS_MAX)
            done = {**moved(calls, self.to), "alive": alive(calls[-1])}
            if done["outcome"] != "busy" or self.route == "host" or time.monotonic() > deadline:
                return done
            time.sleep(POLL_SECONDS)

    def _back_for_sure(self, done):
        """`up_to_date` only says what is installed, so this asks what runs."""
        now = settled(self.call(self._status())[-1])
        if done["outcome"] not in GOOD or now["running"] == self.to:
            return done
        outcome = "unknown" if now["running"] else "down"
        return {**done, "outcome": outcome, "why": now["why"] or f"it runs {now['running']}", "exit": 9}

    def _outcome(self, event, done):
        good = done["outcome"] in GOOD
        changed = done["outcome"] in ("updated", "rolled_back", "reverted")
        row = {"event": event, "host": self.host, **{key: value for key, value in done.items() if key not in ("started", "alive")}}
        answer = {"changed": changed, "failed": not good, "fleet": row, "moved": done}
        return answer if good else {**answer, "msg": f"{done['outcome']}: {done.get('why') or ''}"}

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

    def _hook(self, when, command):
        """Why the hook failed; None if it went well. Runs on the controller, in the directory that the run was started from."""
        if not command:
            return None
        environment = {"BATON_HOST": self.host, "BATON_ADDRESS": self.address, "BATON_RELEASE": self.to, "BATON_WHEN": when}
        try:
            ran = subprocess.run(
                ["/bin/sh", "-c", command],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=HOOK_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"the hook {when} the host took more than {HOOK_SECONDS} s"
        if ran.returncode == 0:
            return None
        said = (ran.stderr.strip() or ran.stdout.strip()).splitlines()[-1:] or [""]
        return f"the hook {when} the host ended with {ran.returncode}: {clean(said[0], 200)}"

    def _said(self, args, name, default):
        """The task's argument, else the role's variable, else the default."""
        if name in args:
            return args.pop(name)
        return self._templar.template(self.vars.get(f"fleet_{name}", default))

    def _word(self, args, name, default, form):
        value = str(self._said(args, name, "") or default)
        if not form.match(value):
            raise AnsibleActionFail(f"{name}: expected {form.pattern}, got {value[:40]!r}")
        return value

    def _seconds(self, args, name, default):
        try:
            value = int(self._said(args, name, default))
        except (TypeError, ValueError):
            value = -1
        if not 0 <= value <= SECONDS_MAX:
            raise AnsibleActionFail(f"{name}: expected 0 to {SECONDS_MAX} seconds")
        return value


class TooLong(BaseException):
    """Not an Exception: a connection would turn an Exception into another error."""


def _too_long(*_):
    raise TooLong


def _since(began):
    return round((time.monotonic() - began) * 1000)
