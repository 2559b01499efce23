#!/usr/bin/env bash
# Boots systemd in the namespaces that this process is in.
#
#     unshare --pid --fork --kill-child --mount --uts --ipc --cgroup boot.sh BASE WORK [PATH[=INSIDE]...]
#
# BASE is a Debian tree with systemd, which stays as it is; what the machine writes goes to memory
# under WORK and ends with the namespaces. Each PATH is seen inside, read-only, at the same place or
# where it says.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin # where chroot is, also for a user without it
base=$1 work=$2
shift 2
mount --make-rprivate /
mount -t tmpfs -o mode=755 layer "$work"
mkdir "$work/upper" "$work/work" "$work/root"
root=$work/root
mount -t overlay -o "lowerdir=$base,upperdir=$work/upper,workdir=$work/work" overlay "$root"
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,ro,bind "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 run "$root/run"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
mount -t tmpfs -o mode=755 dev "$root/dev"
for node in null zero full random urandom tty; do
    touch "$root/dev/$node"
    mount --bind "/dev/$node" "$root/dev/$node"
done
# Stand-ins for GPUs, with the numbers of FUSE and TUN: every user may open them, and nothing comes
# of it; systemd's closed device policy has neither among what it allows to all.
mknod -m 666 "$root/dev/gpu0" c 10 229
mknod -m 666 "$root/dev/gpu1" c 10 200
mkdir "$root/dev/shm" "$root/dev/pts" "$root/dev/mqueue"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666,gid=5,mode=620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ip link set lo up 2>/dev/null || true
for pair in "$@"; do
    path=${pair%%=*} inside=${pair#*=}
    mkdir -p "$root$inside"
    mount --rbind "$path" "$root$inside"
    mount -o remount,ro,bind "$root$inside"
done
exec chroot "$root" env -i container=lxc \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=multi-user.target
