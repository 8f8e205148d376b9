# One host, as a task of the playbook asks it: which words, in one connection, for how long, and again until it is idle or has soaked.
# The host runs plugins/modules/release.sh and nothing else. If it cannot be reached, Ansible itself reports it (UNREACHABLE).
# Must never break: a move and a way back name the tag, so that asking twice is the same as asking once.

from __future__ import annotations

import os
import re
import signal
import time

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible_collections.baton.fleet.plugins.module_utils.answers import alive, looked, moved, parse, settled, silent
from ansible_collections.baton.fleet.plugins.module_utils.judge import stop
from ansible_collections.baton.fleet.plugins.module_utils.schema import TAG
from ansible_collections.baton.fleet.plugins.module_utils.words import EXIT, GOOD

COMMAND = re.compile(r"^[A-Za-z0-9_./-]+\Z")
IMAGE = re.compile(r"^[a-z0-9][A-Za-z0-9_./:@-]{0,254}\Z")
PAUSE = re.compile(r"^(end|\d{4}-\d\d-\d\d)\Z", re.ASCII)
SECONDS_MAX = 86400
POLL_SECONDS = 1
# in a soak, a host is asked about every SAMPLE_SECONDS, and at most SAMPLES_MAX times
SAMPLE_SECONDS = 5
SAMPLES_MAX = 20
# a service may be slow to answer once; after this many silences in a row it is down
SILENCES = 3
SCRIPT = os.path.join(os.path.dirname(__file__), "..", "modules", "release.sh")


class Host:
    def __init__(self, task):
        """`task`: the action, which has the variables of this host and its connection."""
        self.task = task
        self.route = task.said("route", task.vars.get("route", "host")) or "host"
        if self.route not in ("host", "container"):
            raise AnsibleActionFail(f"route: expected host or container, got {self.route!r}")
        self.command = task.word("command", "beacon", COMMAND)
        if self.route == "container":
            self.container = task.word("container", self.command, COMMAND)
            self.image = task.word("image", "", IMAGE)
            self.socket = task.word("engine_socket", "/var/run/docker.sock", COMMAND)
            self.probation = task.number("container_probation", 30)
        self.lock_timeout = task.number("lock_timeout", 600)
        self.health_timeout = task.number("health_timeout", 60)
        self.again_timeout = task.number("again_timeout", 30)
        self.answer_timeout = task.number("answer_timeout", 600) or SECONDS_MAX

    # ---- looks

    def look(self, to):
        """Finds what runs, what the host would take, and what would be in the way. Returns that, and the tag that it would move to."""
        calls = self._call(*self._verbs_to_look(to))
        seen = looked(calls, self.route)
        if seen["refused"] or to or not self.task.rollback:
            return seen, to
        to = seen["backup"] or ""
        if to:
            return looked(calls + self._call(self._dry_run(to)), self.route), to
        return {**seen, "refused": stop("the host has no backup of the executable to go back to", EXIT["refused"])}, to

    def look_again(self, to):
        """As `look`, once it is known which tag `latest` is."""
        return looked(self._call(self._status(), self._dry_run(to)), self.route)

    def now(self):
        """What runs, and nothing else: asks no feed and no registry."""
        return looked(self._call(self._status()), self.route)

    # ---- moves

    def upgrade(self, to):
        """By `install`, which alone may write the unit, if what the release asks of it is accepted."""
        if self.route == "host" and self.task.yes("accept_unit"):
            return self._move(self._verb("install", to, "-y", "--accept-unit"), to)[0]
        return self._move(self._verb("upgrade", to), to)[0]

    def rollback(self, to):
        return self._move(self._verb("rollback", to), to)[0]

    def back(self, to):
        """As `rollback`, and it is good only if that tag runs: `up_to_date` only says what is installed."""
        done, status = self._move(self._verb("rollback", to), to)
        now = settled(status)
        if done["outcome"] not in GOOD or now["running"] == to:
            return done
        outcome = "unknown" if now["running"] else "down"
        return {**done, "outcome": outcome, **stop(now["why"] or f"it runs {now['running']}", EXIT["down"])}

    def _move(self, verb, to):
        """A managed install waits for its lock by itself. The container tool answers `busy` at once, so this waits for it."""
        deadline = time.monotonic() + self.lock_timeout
        while True:
            # the process that serves now must still serve after the soak
            calls = self._call(verb, self._status(), seconds=SECONDS_MAX)
            done = {**moved(calls, to), "alive": alive(calls[-1])}
            if done["outcome"] != "busy" or self.route == "host" or time.monotonic() > deadline:
                return done, calls[-1]
            time.sleep(POLL_SECONDS)

    # ---- afterwards

    def soak(self, row, until):
        """Watches the host through the soak. Then says what runs, once nothing is in flight and the release has proved itself."""
        before, still = self._soaked(row, until)
        return still or settled(self.until_idle(0 if row["outcome"] in GOOD else self.again_timeout), before)

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
            still = self._sample(before, row["to"]) if due and row["outcome"] in GOOD else {}
            before, due = before or still.get("alive"), True
            if still.get("bad"):
                return before, still["bad"]
            _sleep(min(step, left), parent)
        return before, None

    def _sample(self, before, to):
        """One look in the middle of a soak. Judges only a host that answers; a silent one is asked at the end."""
        for _ in range(SILENCES):
            try:
                status = self._call(self._status())[-1]
            except AnsibleConnectionFailure:
                return {}
            now = settled(status, before)
            if not now["busy"] and (now["restarted"] or now["running"] not in (None, to)):
                return {"bad": now}
            if now["running"] or not now["known"]:
                return {"alive": alive(status)}
            time.sleep(POLL_SECONDS)
        return {"bad": now}

    def until_idle(self, reach_seconds=0):
        """Its status once nothing is in flight. A host that vanished is tried again for `reach_seconds`."""
        deadline = time.monotonic() + self.lock_timeout
        reach = time.monotonic() + reach_seconds
        while True:
            try:
                status = self._call(self._status())[-1]
            except AnsibleConnectionFailure:
                if time.monotonic() > reach:
                    raise
                time.sleep(POLL_SECONDS)
                continue
            if not status.busy or time.monotonic() > deadline:
                return status
            time.sleep(POLL_SECONDS)

    # ---- the words of its command

    def _verbs_to_look(self, to):
        """If the tag is known already, the same connection also asks what the host would take."""
        # a check without a release asks what runs where
        if not to and not self.task.rollback:
            return [*self._verbs_to_pause(), self._status()]
        verbs = [self._status(), *(["doctor --json"] if self.route == "host" else [])]
        if TAG.match(to):
            return [*verbs, self._dry_run(to)]
        if self.task.rollback or to != "latest":
            return verbs
        if self.route == "host":
            return [*verbs, "check --json"]
        return [*verbs, f"deploy --container {self.container} --release latest --dry-run --json"]

    def _verbs_to_pause(self):
        """Pauses what hosts do by themselves, or ends that. A container does nothing by itself."""
        pause = str(self.task.said("pause", "") or "")
        if not pause or self.route == "container":
            return []
        if not PAUSE.match(pause):
            raise AnsibleActionFail(f"pause: expected a day such as 2026-12-27, or end, got {pause[:40]!r}")
        return ["upgrade --unpause --json" if pause == "end" else f"upgrade --pause-until {pause} --json"]

    def _status(self):
        """Asks no feed and no registry."""
        return "status --json" if self.route == "host" else f"deploy --container {self.container} --status --json"

    def _dry_run(self, to):
        return self._verb("rollback" if self.task.rollback else "upgrade", to, "--dry-run")

    def _verb(self, verb, to, *flags):
        if not TAG.match(to):
            raise AnsibleActionFail(f"to: expected a tag of the form vX.Y.Z, got {to[:40]!r}")
        if self.route == "container":
            way = ["--rollback"] if verb == "rollback" else []
            words = ["deploy", "--container", self.container, *way, "--release", to]
            words += ["--health-timeout", f"{self.health_timeout}s", "--probation", f"{self.probation}s"]
        else:
            words = [verb, to, "--lock-timeout", f"{self.lock_timeout}s", "--health-timeout", f"{self.health_timeout}s"]
        return " ".join([*words, "--json", *flags])

    def _call(self, *verbs, seconds=None):
        """One call on the host for each verb, all in one connection. A host that is silent for too long has answered nothing."""
        command = self.command
        if self.route == "container":
            command = f"docker run --rm -v {self.socket}:/var/run/docker.sock {self.image}"
        with open(SCRIPT, encoding="utf-8") as file:
            script = file.read()
        seconds = seconds or self.answer_timeout
        before = signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(seconds)
        try:
            answer = self.task.run_there(script, [command, *verbs])
        except TooLong:
            return silent(verbs, seconds)
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
        return parse(answer["stdout"], answer["stderr"], answer["rc"], verbs)


def _sleep(seconds, parent):
    """Sleeps; ends at once if the run was killed."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if os.getppid() != parent:
            raise KeyboardInterrupt
        time.sleep(min(POLL_SECONDS, left))


class TooLong(BaseException):
    """Not an Exception: a connection would turn an Exception into another error."""


def _too_long(*_):
    raise TooLong
