#!/bin/sh
# The container lab: runs a command as root in separate namespaces (network with only a loopback, mounts, processes), so
# that a private engine, its containers and their published ports exist only there and end with it.
# usage: docker.sh FOLDER COMMAND…   makes FOLDER and the lab's cgroup before, and removes both after
# BATON_LAB_MEMORY: size of a tmpfs for all that the lab writes, such as 6g; default: it is on the disk. An engine flushes each image and
# each container to the disk, which costs a seventh of a test's time. A power cut here ends processes and loses no page of either.
set -eu
if [ "${1-}" != --inside ]; then
  folder=$1
  cgroup=baton-lab-$$
  mkdir -p "$folder"
  inside=
  clean() {
    trap - EXIT HUP INT TERM
    [ -z "$inside" ] || kill -KILL "$inside" 2>/dev/null || :
    wait
    rm -rf "$folder"
    # the lab's last processes may still be ending
    for _ in 1 2 3 4 5 6 7 8 9 10; do
      find /sys/fs/cgroup -depth -type d -path "*/$cgroup*" -exec rmdir {} + 2>/dev/null || :
      [ -n "$(find /sys/fs/cgroup -type d -name "$cgroup" 2>/dev/null)" ] || break
      sleep 0.2
    done
  }
  trap 'clean' EXIT
  trap 'clean; exit 143' HUP INT TERM
  # in the background: a shell handles no signal while it waits for a command in the foreground
  BATON_LAB_CGROUP=$cgroup unshare --mount --net --pid --fork --mount-proc --kill-child "$0" --inside "$@" &
  inside=$!
  code=0
  wait "$inside" || code=$?
  inside=
  exit $code
fi
if [ -n "${BATON_LAB_MEMORY-}" ]; then
  # in large pages where the kernel has them, as in systemd-host
  options=mode=700,size=$BATON_LAB_MEMORY
  mount -t tmpfs -o "$options,huge=within_size" baton-lab "$2" 2>/dev/null || mount -t tmpfs -o "$options" baton-lab "$2"
fi
shift 2
ip link set lo up
# no exec: the shell stays as process 1 and reaps what the engine leaves behind
code=0
"$@" || code=$?
exit $code
