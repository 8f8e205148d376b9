#!/usr/bin/env python3
"""A hook that takes a host out of HAProxy before its turn and puts it back after it, over HAProxy's runtime socket.

  --before-host 'hooks/haproxy.py --socket /run/haproxy/admin.sock --backend app'
  --after-host  'hooks/haproxy.py --socket /run/haproxy/admin.sock --backend app'

The server of the backend has the name of the host in the inventory (BATON_HOST); BATON_WHEN says which of the two it is. Before,
it waits until the last session has ended, for at most --wait seconds. The socket may be HOST:PORT.
"""

import argparse
import csv
import os
import socket
import sys
import time

ANSWER_MAX_BYTES = 4 * 1024 * 1024


def tell(where, command):
    family = socket.AF_UNIX if "/" in where else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(10)
        host, _, port = where.rpartition(":")
        connection.connect(where if family == socket.AF_UNIX else (host, int(port)))
        connection.sendall(f"{command}\n".encode())
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
            if len(answer) > ANSWER_MAX_BYTES:
                raise ValueError("the answer is too long")
    return answer.decode()


def sessions(where, backend, server):
    rows = csv.DictReader(tell(where, "show stat").lstrip("# ").splitlines())
    return next((int(row["scur"]) for row in rows if (row["pxname"], row["svname"]) == (backend, server)), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--wait", type=float, default=30)
    options = parser.parse_args()
    host, when = os.environ["BATON_HOST"], os.environ["BATON_WHEN"]
    name = f"{options.backend}/{host}"
    answer = tell(options.socket, f"set server {name} state {'drain' if when == 'before' else 'ready'}").strip()
    if answer:
        print(f"{name}: {answer}")
        return 1
    deadline = time.monotonic() + options.wait
    while when == "before" and sessions(options.socket, options.backend, host) and time.monotonic() < deadline:
        time.sleep(0.2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
