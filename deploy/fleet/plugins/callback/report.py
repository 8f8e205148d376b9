# Writes the report as results arrive: one JSON object a line, each line on the disk before anything goes on, so that the file
# is true at any instant. Says what the playbook and the hosts have said; decides nothing.
# Must never break: one report has one writer; and where the one who started us is gone, no further step is begun.

from __future__ import annotations

import fcntl
import json
import os
import time
from datetime import datetime, timezone

from ansible import constants
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: report
type: aggregate
short_description: writes what happens to a fleet, one JSON object a line
description:
  - Needs to be enabled with C(callbacks_enabled = baton.fleet.report) and a file to write to.
requirements:
  - enable in configuration
options:
  path:
    description: the file to append to; without it nothing is written
    type: path
    env: [{name: BATON_FLEET_REPORT}]
    ini: [{section: baton_fleet, key: report}]
  parent:
    description: process id that has to be there for the run to go on
    type: int
    env: [{name: BATON_FLEET_PARENT}]
  lock_seconds:
    description: how long to wait for another run that writes to the same file
    type: int
    default: 600
    env: [{name: BATON_FLEET_LOCK_SECONDS}]
"""

ACTION = "baton.fleet.release"
POLL_SECONDS = 0.01


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "baton.fleet.report"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self):
        super().__init__()
        # a thousand times a second Ansible asks each of its workers whether it is alive: of two hundred that takes half a processor
        # for as long as hosts prove themselves. Only ansible.cfg has a word for it (internal_poll_interval), which may be higher.
        constants.DEFAULT_INTERNAL_POLL_INTERVAL = max(POLL_SECONDS, constants.DEFAULT_INTERNAL_POLL_INTERVAL)
        self.file = None
        self.wave = None
        self.batch = []
        self.began = False

    def set_options(self, task_keys=None, var_options=None, direct=None):
        super().set_options(task_keys=task_keys, var_options=var_options, direct=direct)
        self.path = self.get_option("path")
        self.parent = self.get_option("parent")

    # ---- what Ansible tells

    def v2_playbook_on_play_start(self, play):
        self._alive()
        if self.path and not self.began:
            self.began = True
            self._open()
            given = play.get_variable_manager().extra_vars
            options = {key: value for key, value in given.items() if str(key).startswith("fleet_")}
            self._write({"event": "run", "resumed": bool(options.get("fleet_resume_from")), "options": options})

    def v2_playbook_on_task_start(self, task, is_conditional):
        self._alive()

    def v2_runner_on_start(self, host, task):
        self._alive()
        if task.action == ACTION and task.args.get("do") == "move" and host.get_name() in self.batch:
            self._write({"event": "start", "host": host.get_name(), "wave": self.wave})

    def v2_runner_on_ok(self, result):
        self._take(result)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._take(result)

    def v2_runner_on_unreachable(self, result):
        task = result._task
        if task.action != ACTION:
            return
        event = {"look": "seen", "name": "seen", "move": "host", "back": "back"}.get(task.args.get("do"))
        if event:
            why = str(result._result.get("msg", "")).strip().replace("\n", " ")[:300]
            self._write({"event": event, "host": result._host.get_name(), "wave": self.wave, "outcome": "gone", "why": why})

    # ---- what is written

    def _take(self, result):
        self._alive()
        got = result._result
        for event in (got.get("ansible_facts") or {}).get("fleet_run", {}).get("events", []):
            if event.get("event") == "wave":
                self.wave, self.batch = event["wave"], event["hosts"]
            elif event.get("event") == "stop":
                self.batch = []
            self._write(event)
        if result._task.action == ACTION and got.get("fleet"):
            self._write({**got["fleet"], "host": result._host.get_name(), "wave": self.wave})

    def _write(self, event):
        if self.file is None:
            return
        at = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json.dumps({"event": event["event"], "at": at, **event}, ensure_ascii=False, default=str)
        os.write(self.file, f"{line}\n".encode())
        os.fsync(self.file)

    def _open(self):
        self.file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        deadline = time.monotonic() + self.get_option("lock_seconds")
        while True:
            try:
                # kept by our workers too: a run that was killed lets go when the last host it is at has answered
                fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                self._alive()
                if time.monotonic() > deadline:
                    raise SystemExit(6) from None
                time.sleep(0.2)
        # the last line of a run that was killed may be cut off
        size = os.fstat(self.file).st_size
        if size and os.pread(self.file, 1, size - 1) != b"\n":
            os.write(self.file, b"\n")

    def _alive(self):
        if self.parent and os.getppid() != self.parent:
            raise KeyboardInterrupt


