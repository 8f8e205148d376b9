# Says what happens to a fleet: a line for a person or one JSON object a line on stdout, the same objects in the report. Records what
# the module has returned; decides nothing.
# Must never break: one report has one writer; and if the process that started Ansible is gone, no further step begins. A screen that
# nobody reads ends nothing.

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from datetime import datetime, timezone
from ipaddress import ip_address

from ansible import constants
from ansible.plugins.callback import CallbackBase
from ansible_collections.baton.fleet.plugins.module_utils.judge import ended, row
from ansible_collections.baton.fleet.plugins.module_utils.schema import clean
from ansible_collections.baton.fleet.plugins.module_utils.words import EXIT, GOOD

DOCUMENTATION = """
name: report
type: stdout
short_description: reports what happens to a fleet, one line or one JSON object for each event
description:
  - Replaces Ansible's own output with C(stdout_callback = baton.fleet.report).
requirements:
  - set as stdout in configuration
options:
  path:
    description: a file to append JSON lines to; without it, none are written
    type: path
    env: [{name: BATON_FLEET_REPORT}]
    ini: [{section: baton_fleet, key: report}]
  show:
    description: what is written to stdout
    choices: [lines, json, nothing]
    default: lines
    env: [{name: BATON_FLEET_SHOW}]
    ini: [{section: baton_fleet, key: show}]
  screen:
    description: file descriptor for that output
    type: int
    default: 1
    env: [{name: BATON_FLEET_SCREEN}]
  end:
    description: a file to write the last line to, for the process that started Ansible
    type: path
    env: [{name: BATON_FLEET_END}]
  parent:
    description: ID of the process that must exist for the run to continue
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
# how a host's trial of the release has ended
TRIED = {"reversible": "can be rolled back", "irreversible": "cannot be rolled back", "unproven": "not proven to be reversible"}


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "baton.fleet.report"

    def __init__(self):
        super().__init__()
        # Ansible asks each worker a thousand times a second whether it is alive. For two hundred workers that takes half a processor
        # while hosts prove themselves. Only ansible.cfg can set it (internal_poll_interval); a higher value there stays.
        constants.DEFAULT_INTERNAL_POLL_INTERVAL = max(POLL_SECONDS, constants.DEFAULT_INTERNAL_POLL_INTERVAL)
        self.file = None
        self.began = False
        # what was seen of each host, and its row
        self.seen, self.rows = {}, {}
        self.plan, self.stop = None, None
        # a step that is not the module's has failed: Ansible says why
        self.failure = None
        self.wave = 0
        self.play = None

    def set_options(self, task_keys=None, var_options=None, direct=None):
        super().set_options(task_keys=task_keys, var_options=var_options, direct=direct)
        self.path, self.parent = self.get_option("path"), self.get_option("parent")

    # ---- events from Ansible

    def v2_playbook_on_play_start(self, play):
        self._alive()
        self.play = play
        names = [host.get_name() for host in self._hosts()]
        if not self.began:
            self.began = True
            self._open()
        odd = [name for name in names if not _is_plain(name)]
        if odd:
            why = f"expected host names without spaces, commas, braces or ports, got {', '.join(repr(clean(name, 60)) for name in odd)}"
            self._end(EXIT["usage"], why)

    def v2_playbook_on_task_start(self, task, is_conditional):
        self._alive()
        if task.action != ACTION or task.args.get("do") != "move" or self.plan is None:
            return
        hosts = [host.get_name() for host in self._hosts() if (self.rows.get(host.get_name()) or {"outcome": ""})["outcome"] is None]
        if hosts:
            self.wave += 1
            self._tell({"event": "wave", "wave": self.wave, "step": "begin", "hosts": hosts})

    def v2_runner_on_start(self, host, task):
        self._alive()

    def v2_runner_on_ok(self, result):
        self._take(result)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._take(result)
        if result._task.action != ACTION or result._task.args.get("do") == "plan" and not result._result.get("fleet"):
            self.failure = f"{result._host.get_name()}: {clean(result._result.get('msg', 'a step failed'))}"

    def v2_runner_item_on_ok(self, result):
        self._take(result)

    def v2_runner_item_on_failed(self, result):
        self._take(result)

    def v2_runner_on_unreachable(self, result):
        event = {"look": "seen", "name": "seen", "move": "host"}.get(result._task.args.get("do"))
        if result._task.action == ACTION and event:
            self._tell({"event": event, "host": result._host.get_name(), "outcome": "gone", "why": clean(result._result.get("msg", ""))})

    def v2_playbook_on_stats(self, stats):
        if self.plan is None:
            if not self.seen and not self.failure:
                self._end(EXIT["usage"], "the inventory has no such host")
            self._end(EXIT["unexpected"], self.failure or "Ansible ended before there was a plan")
        never = [host for host, it in self.rows.items() if it["outcome"] is None]
        if never and self.stop is None and not self.plan["check"]:
            self.stop = {"why": self.failure or f"Ansible ended before the turn of {never[0]}", "exit": EXIT["unexpected"]}
        result = ended(self.rows, self.stop, self.plan["release"], self.plan["check"], self.plan["survey"])
        self._tell(result)
        self._give(result)

    # ---- what is known

    def _hosts(self):
        return self.play.get_variable_manager()._inventory.get_hosts(self.play.hosts, order=self.play.order)

    def _take(self, result):
        self._alive()
        event = result._result.get("fleet") if result._task.action == ACTION else None
        if event:
            self._tell(event)

    def _tell(self, event):
        """Keeps what an event says, appends it to the report, and shows it."""
        kind, host = event["event"], event.get("host")
        if kind == "seen":
            self.seen[host] = event
        elif kind == "plan":
            # each batch of a play that has the role by itself has its own plan
            self.plan, self.stop = event, event["stop"]
            self.rows.update({host: {"wave": None, **it} for host, it in event["rows"].items()})
        elif kind in ("host", "back"):
            kept = {key: event[key] for key in ("from", "to", "outcome", "why", "exit", "ms") if event.get(key) is not None}
            self.rows[host] = {**(self.rows.get(host) or row()), **kept}
        elif kind in ("wave", "stop"):
            for one in event["hosts"]:
                self.rows[one] = {**self.rows[one], **_public((event.get("rows") or {}).get(one) or {}), "wave": event["wave"]}
            self.stop = event if kind == "stop" else self.stop
        if kind == "host":
            event = {**event, "from": self.rows[host]["from"], "to": self.rows[host]["to"], "wave": self.wave}
        public = {key: value for key, value in event.items() if key != "rows"}
        if kind == "plan":
            public["hosts"] = [{"host": host, **it} for host, it in event["rows"].items()]
        self._write({"event": kind, "at": datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z"), **public})
        if self.get_option("show") == "lines":
            for line in self._lines(event):
                self._show(line)

    # ---- for a person

    def _lines(self, event):
        kind = event["event"]
        if kind == "plan":
            return _table(self.seen, self.rows)
        if kind == "wave" and event["step"] == "begin":
            return [f"wave {event['wave']} to {self.plan['release'] or 'each backup'}: {', '.join(event['hosts'])}"]
        if kind == "wave":
            soak = f"soaking for {event['seconds']} s" if event["step"] == "soak" else "good"
            return [f"wave {event['wave']}: {soak}"]
        if kind == "host":
            return [_line(event["host"], event)]
        if kind == "stop":
            return [f"wave {event['wave']} stopped: {event['why']}"]
        if kind == "back":
            return [_line(event["host"], {**event, "outcome": "is back" if event["outcome"] == "taken_back" else event["outcome"]})]
        if kind == "result":
            counts = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in event["counts"].items())
            hosts = [it for it in event["hosts"] if it["outcome"] not in (*GOOD, "untouched") and it["host"] not in event["look"]]
            return [*(_line(it["host"], it) for it in hosts), f"{event['outcome']}{' ' if event['release'] else ''}{event['release']}: {counts}"]
        return []

    def _show(self, line):
        try:
            os.write(self.get_option("screen"), f"{line}\n".encode(errors="replace"))
        except OSError:
            pass  # the reader of the output may go away

    # ---- the file

    def _write(self, event):
        line = f"{json.dumps(event, default=str)}\n"
        if self.get_option("show") == "json":
            self._show(line[:-1])
        if self.file is not None:
            self._put(line.encode())

    def _put(self, data):
        """Ends the run if it cannot write: a step that is not in the report must not begin."""
        try:
            while data:
                data = data[os.write(self.file, data) :]
        except OSError as error:
            self._unwritable(error)

    def _open(self):
        if not self.path:
            return
        try:
            self.file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            self._unwritable(error)
        deadline = time.monotonic() + self.get_option("lock_seconds")
        while True:
            try:
                # Ansible's workers keep the lock too: a killed run frees it when the last host it is at has answered
                fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                self._alive()
                if time.monotonic() > deadline:
                    self._end(EXIT["locked"], f"another run is writing to {self.path}", "wait for that run, or name another file with --report")
                time.sleep(0.2)
        # the last line of a run that was killed may be cut off
        size = os.fstat(self.file).st_size
        if size and os.pread(self.file, 1, size - 1) != b"\n":
            self._put(b"\n")

    def _unwritable(self, error):
        why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else os.strerror(error.errno)
        self._end(EXIT["refused"], f"the report {self.path} cannot be written: {why}", "hosts already updating will finish on their own")

    def _end(self, code, why, hint=None):
        self._give({"exit": code, "why": why, "hint": hint, "look": [], "hosts": []})
        raise SystemExit(code)

    def _give(self, result):
        """For deploy-fleet.ts: the exit code, and what comes last on the screen. For a playbook of one's own, this is what comes last."""
        by_name = {it["host"]: it for it in result["hosts"]}
        look = [_line(host, by_name[host]) for host in result["look"]]
        if self.get_option("end"):
            with open(self.get_option("end"), "w", encoding="utf-8") as file:
                json.dump({"exit": result["exit"], "why": result["why"], "hint": result.get("hint"), "look": look}, file)
        elif result["why"]:
            self._display.error(result["why"], wrap_text=False)
            for line in look:
                self._display.display(line, stderr=True)

    def _alive(self):
        if self.parent and os.getppid() != self.parent:
            raise KeyboardInterrupt


def _is_plain(host):
    """Whether Ansible takes this name as it is: braces are a template that it would expand here."""
    try:
        return bool(ip_address(host))
    except ValueError:
        return clean(host) == host and not any(one.isspace() or one in ",:{}" for one in host)


def _public(it):
    return {key: it[key] for key in ("from", "to", "outcome", "why", "exit", "ms") if key in it}


def _line(host, it):
    """`web7       v1.0.0 to v1.1.0   updated   33.2 s`"""
    way = f"{it['from']} to {it['to']}" if it.get("from") and it.get("to") and it["from"] != it["to"] else it.get("to") or it.get("from") or ""
    seconds = f"{it['ms'] / 1000:.1f} s" if it.get("ms") is not None else ""
    return "  ".join(part for part in (host.ljust(12), way.ljust(18), it["outcome"].replace("_", " "), seconds, it.get("why") or "") if part)


def _table(seen, rows):
    lines = [("host", "runs", "installed", "backup", "")]
    for host, it in rows.items():
        now = seen.get(host) or {}
        lines.append((host, *(now.get(key) or "-" for key in ("running", "installed", "backup")), _remark(now, it)))
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    return ["  ".join([*(cell.ljust(widths[column]) for column, cell in enumerate(line[:4])), line[4]]).rstrip() for line in lines]


def _remark(now, it):
    if it["outcome"] == "gone":
        return f"cannot be reached: {now.get('why') or it['why']}"
    if it["outcome"] == "refused":
        return f"left out: {it['why']}"
    if now.get("inFlight"):
        flight = now["inFlight"]
        return f"an operation is running: {flight['kind']} from {flight['from']} to {flight['to'] or 'another release'}"
    if now.get("probation"):
        return f"{now['probation']['tag']} is still on probation"
    tried = TRIED.get((now.get("trial") or {}).get("verdict"), "not on a copy of its data") if now.get("trial") else ""
    parts = ("is already there" if it["outcome"] == "up_to_date" else tried and f"tried there: {tried}", "container" if now.get("route") == "container" else "")
    alone = f"is installed automatically: {now['byItself']}" if now.get("byItself") else ""
    return ", ".join(part for part in (*parts, alone) if part)
