# Writes the report as results arrive, one JSON object a line. Each line is on the disk before the run goes on, so that the file
# is true at any instant. Records what the playbook and the hosts have said; decides nothing.
# Must never break: one report has one writer; and if the process that started Ansible is gone, no further step begins.

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
import time
from datetime import datetime, timezone

from ansible import constants, context
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.callback import CallbackBase
from ansible_collections.baton.fleet.plugins.module_utils.schema import clean

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
# exit codes of Ansible if the report cannot be written: on a full disk, and for another reason
FULL, UNWRITABLE = 97, 98


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "baton.fleet.report"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self):
        super().__init__()
        # Ansible asks each worker a thousand times a second whether it is alive. For two hundred workers that takes half a processor
        # while hosts prove themselves. Only ansible.cfg can set it (internal_poll_interval); a higher value there stays.
        constants.DEFAULT_INTERNAL_POLL_INTERVAL = max(POLL_SECONDS, constants.DEFAULT_INTERNAL_POLL_INTERVAL)
        self.file = None
        self.wave = None
        self.batch = []
        self.began = False

    def set_options(self, task_keys=None, var_options=None, direct=None):
        super().set_options(task_keys=task_keys, var_options=var_options, direct=direct)
        self.path = self.get_option("path")
        self.parent = self.get_option("parent")

    # ---- events from Ansible

    def v2_playbook_on_play_start(self, play):
        self._alive()
        if self.path and not self.began:
            self.began = True
            given = play.get_variable_manager().extra_vars
            options = {key: value for key, value in given.items() if str(key).startswith("fleet_")}
            # a check must not write to the report that a resume goes on from; deploy-fleet.sh names the check's own report already
            if boolean(options.get("fleet_check", False)) or context.CLIARGS.get("check"):
                self.path = f"{re.sub(r'([.]check)?[.]jsonl$', '', self.path)}.check.jsonl"
            self._open()
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

    def v2_runner_item_on_ok(self, result):
        self._take(result)

    def v2_runner_item_on_failed(self, result):
        self._take(result)

    def v2_runner_on_unreachable(self, result):
        task = result._task
        if task.action != ACTION:
            return
        event = {"look": "seen", "name": "seen", "move": "host", "back": "back"}.get(task.args.get("do"))
        if event:
            why = clean(result._result.get("msg", ""))
            self._write({"event": event, "host": result._host.get_name(), "wave": self.wave, "outcome": "gone", "why": why})

    # ---- the file

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
            self._write({"host": result._host.get_name(), **got["fleet"], "wave": self.wave})

    def _write(self, event):
        if self.file is None:
            return
        at = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json.dumps({"event": event["event"], "at": at, **event}, ensure_ascii=False, default=str)
        self._put(f"{line}\n".encode(errors="replace"))

    def _put(self, data):
        """Ends the run if it cannot write: a step that is not in the report must not begin."""
        try:
            while data:
                data = data[os.write(self.file, data) :]
            self._sync()
        except OSError as error:
            raise SystemExit(FULL if error.errno in (errno.ENOSPC, errno.EDQUOT) else UNWRITABLE) from error

    def _sync(self):
        try:
            os.fsync(self.file)
        except OSError as error:
            if error.errno != errno.EINVAL:  # a pipe, a terminal
                raise

    def _open(self):
        try:
            self.file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            self._share()
        except OSError as error:
            raise SystemExit(FULL if error.errno in (errno.ENOSPC, errno.EDQUOT) else UNWRITABLE) from error
        deadline = time.monotonic() + self.get_option("lock_seconds")
        while True:
            try:
                # Ansible's workers keep the lock too: a killed run frees it when the last host it is at has answered
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
            self._put(b"\n")

    def _share(self):
        """A gate may hold a password: only this user can read the report, unless a group of operators shares its folder."""
        folder, file = os.stat(os.path.dirname(os.path.abspath(self.path))), os.fstat(self.file)
        if folder.st_mode & stat.S_IWGRP and folder.st_gid == file.st_gid and file.st_uid == os.geteuid():
            os.fchmod(self.file, 0o660)

    def _alive(self):
        if self.parent and os.getppid() != self.parent:
            raise KeyboardInterrupt


