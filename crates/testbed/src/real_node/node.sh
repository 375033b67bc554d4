# Process 1 of the real node: $1 is the node's folder, $2 its control group, $3 the kubelet, and the other arguments are
# the kubelet's.
#
# The process has its own mount and process namespaces. containerd and the kubelet use their default paths without writing
# to the folders of the machine, other processes do not see their mounts, and when this process ends, the kernel ends every
# process of the node.
set -eu
node=$1 group=$2
shift 2

bind_mount() {
  mkdir -p "$node/$1"
  mount --bind "$node/$1" "/$1"
}
for place in var/lib var/log; do bind_mount "$place"; done
mount -t tmpfs run /run

# The kubelet would change these settings of the machine, and the network plugin the last one. Each setting gets a file with
# the wanted value, mounted over the machine's setting.
override() {
  [ -e "/proc/sys/$1" ] || return 0
  mkdir -p "$node/sys/${1%/*}"
  echo "$2" >"$node/sys/$1"
  mount --bind "$node/sys/$1" "/proc/sys/$1"
}
override vm/overcommit_memory 1
override vm/panic_on_oom 0
override kernel/panic 10
override kernel/panic_on_oops 1
override kernel/keys/root_maxkeys 1000000
override kernel/keys/root_maxbytes 25000000
override net/ipv4/ip_forward 1

# The kubelet creates control groups below this group, and expects that the group exists.
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
# The kubelet exits if the runtime's socket does not exist.
until [ -S /run/containerd/containerd.sock ]; do sleep 0.1; done
{ "$@" || true; kill -USR1 1; } &
wait
