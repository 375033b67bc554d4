# Process 1 of the real node: $1 is its folder, $2 its control group, $3 the kubelet, the rest are the kubelet's
# arguments.
#
# In namespaces of its own, containerd and kubelet find their usual places, and write nothing to the machine's; what
# they mount is seen by nobody else; and when this process ends, the kernel ends every process of the node.
set -eu
node=$1 group=$2
shift 2

cover() {
  mkdir -p "$node/$1"
  mount --bind "$node/$1" "/$1"
}
for place in var/lib var/log; do cover "$place"; done
mount -t tmpfs run /run

# The kubelet sets some of these, and the network plugin the last, for the whole machine. Here each finds what it wants
# already set, in a file that only looks like the machine's.
pretend() {
  [ -e "/proc/sys/$1" ] || return 0
  mkdir -p "$node/sys/${1%/*}"
  echo "$2" >"$node/sys/$1"
  mount --bind "$node/sys/$1" "/proc/sys/$1"
}
pretend vm/overcommit_memory 1
pretend vm/panic_on_oom 0
pretend kernel/panic 10
pretend kernel/panic_on_oops 1
pretend kernel/keys/root_maxkeys 1000000
pretend kernel/keys/root_maxbytes 25000000
pretend net/ipv4/ip_forward 1

# The kubelet makes groups in its own one, but not that.
if [ -e /sys/fs/cgroup/cgroup.subtree_control ]; then
  for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
    echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control || true
  done
  mkdir -p "/sys/fs/cgroup/$group"
else
  for hierarchy in /sys/fs/cgroup/*/; do mkdir -p "$hierarchy$group"; done
fi

trap 'exit 0' TERM
trap 'exit 1' USR1
{ containerd --config "$node/containerd.toml" || true; kill -USR1 1; } &
# A kubelet that finds no runtime gives up at once.
until [ -S /run/containerd/containerd.sock ]; do sleep 0.1; done
{ "$@" || true; kill -USR1 1; } &
wait
