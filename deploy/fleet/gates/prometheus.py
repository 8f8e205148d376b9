#!/usr/bin/env python3
"""A gate that asks Prometheus: every series of the answer must be at least 1 (or what --at-least says), and there must be one for
each host of the wave. It asks again until --wait is over, as a scrape takes its time.

  --gate 'gates/prometheus.py --url http://prometheus:9090 --query "min_over_time(probe_success{job=\"beacon\"}[1m])"'

BATON_ADDRESSES (set by the fleet) names the hosts: a series belongs to a host whose address is in its label `instance`.
Ends with 0 if all is well, 1 if it is not, 2 if Prometheus cannot be asked. Needs Python, as Ansible does; no package.
"""

import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

ANSWER_MAX_BYTES = 8 * 1024 * 1024
POLL_SECONDS = 1


def ask(url, query, seconds):
    target = f"{url.rstrip('/')}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(target, timeout=seconds) as response:
        answer = json.loads(response.read(ANSWER_MAX_BYTES))
    if answer.get("status") != "success" or answer["data"]["resultType"] != "vector":
        raise ValueError(f"expected a vector, got {json.dumps(answer)[:200]}")
    return [(one["metric"].get("instance", ""), float(one["value"][1])) for one in answer["data"]["result"]]


def objection(series, addresses, at_least):
    """Why the wave is not well, or None. A host without a measurement is not well."""
    ours = [(name, value) for name, value in series if not addresses or any(_names(name, one) for one in addresses)]
    silent = [one for one in addresses if not any(_names(name, one) for name, _ in ours)]
    if silent or not ours:
        return f"nothing is measured for {', '.join(silent) or 'any host'}"
    low = [f"{name} {value:g}" for name, value in ours if not value >= at_least]
    return f"expected at least {at_least:g}, got {', '.join(low)}" if low else None


def _names(instance, address):
    """`10.0.0.7`, `10.0.0.7:8080`, `http://10.0.0.7:8080/healthz`"""
    host = instance.split("://", 1)[-1].split("/", 1)[0]
    return host == address or host.rsplit(":", 1)[0].strip("[]") == address


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--query", required=True)
    parser.add_argument("--at-least", type=float, default=1)
    parser.add_argument("--wait", type=float, default=30, help="seconds to keep asking until all is well")
    options = parser.parse_args()
    addresses = os.environ.get("BATON_ADDRESSES", "").split()
    deadline = time.monotonic() + options.wait
    while True:
        try:
            why, code = objection(ask(options.url, options.query, 10), addresses, options.at_least), 1
        except (OSError, ValueError, KeyError) as error:
            why, code = f"asking {options.url}: {error}", 2
        if why is None:
            return 0
        if time.monotonic() > deadline:
            print(why)
            return code
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
