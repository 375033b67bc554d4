# The guard of a testbed: $1 is the testbed's folder. $2 is `keep` or `remove`, for an end without a word.
trap '' TERM INT HUP
read -r word
if [ -n "$word" ]; then
  set -- "$1" "$word"
else
  kill -TERM 0
  sleep 1
fi

# Control groups with the folder's name, in each hierarchy of version 1, or in the hierarchy of version 2.
control_groups() { find /sys/fs/cgroup -maxdepth 2 -type d -name "${1##*/}" 2>/dev/null; }

clean() {
  control_groups "$1" | while read -r top; do find "$top" -depth -type d -exec rmdir {} +; done
  [ "$2" = keep ] || rm -rf -- "$1"
  [ -z "$(control_groups "$1")" ] && { [ "$2" = keep ] || [ ! -e "$1" ]; }
}

# A control group can be removed after its last process has ended, which takes a moment after the kill.
tries=50
until clean "$1" "$2" 2>/dev/null || [ $((tries -= 1)) -eq 0 ]; do sleep 0.1; done

[ -n "$word" ] || kill -KILL 0
