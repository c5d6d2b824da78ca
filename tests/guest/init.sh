#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Process 1 of the guest, run by a static busybox out of the initramfs.
#
# Loads the modules, mounts the host's root file system (9p, read-only) under
# an overlay whose changes stay in memory, and the directories that are shared
# for writing; waits for the disks; gives them names that do not depend on the
# order in which they were found (/dev/test/); runs /ctl/cmd in the new root with
# its output on a virtio port; writes the exit status to /ctl/status; ends.
export PATH=/bin
say() { echo "<1>guest: $*" >/dev/kmsg; }
die() {
	say "FATAL: $*"
	sleep 0.2
	reboot -f
}
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev

# Parameters MODULE.NAME=VALUE of the kernel's command line go to the module, as modprobe does it.
read -r cmdline </proc/cmdline
while read -r module; do
	name=$(echo "${module%.ko}" | tr - _)
	parameters=
	for word in $cmdline; do
		case $word in "$name".*) parameters="$parameters ${word#"$name".}" ;; esac
	done
	insmod "/modules/$module" $parameters || say "$module: cannot be loaded"
done </modules/order

p9=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o $p9,ro,cache=loose root /lower || die "cannot mount the root"
mount -t 9p -o $p9,rw,cache=none ctl /ctl || die "cannot mount the control directory"
mount -t tmpfs -o mode=755 tmpfs /over
mkdir -p /over/upper /over/work
mount -t overlay -o lowerdir=/lower,upperdir=/over/upper,workdir=/over/work overlay /root || die "no overlay"
cd /root
mkdir -p proc sys dev run tmp
mount -t proc proc proc
mount -t sysfs sys sys
mount -t devtmpfs dev dev
mkdir -p dev/pts dev/shm
mount -t devpts devpts dev/pts
mount -t tmpfs tmpfs dev/shm
mount -t tmpfs tmpfs run
ln -sf /proc/self/fd dev/fd
for i in 0:stdin 1:stdout 2:stderr; do ln -sf "/proc/self/fd/${i%:*}" "dev/${i#*:}"; done
mount -t fusectl fusectl sys/fs/fuse/connections 2>/dev/null
mount -t debugfs debugfs sys/kernel/debug 2>/dev/null
mkdir -p run/ctl
mount -o bind /ctl run/ctl
while read -r tag directory; do
	mkdir -p ".$directory"
	mount -t 9p -o $p9,rw,cache=none "$tag" ".$directory" || die "cannot share $directory"
done </ctl/shares
read -r modules </ctl/modules
release=$(cat /proc/sys/kernel/osrelease)
mkdir -p "lib/modules/$release"
mount -o bind "/lower$modules" "lib/modules/$release"
echo guest >/proc/sys/kernel/hostname
ifconfig lo 127.0.0.1 up

mkdir -p dev/virtio-ports dev/test
for port in /sys/class/virtio-ports/*; do
	name=
	read -r name <"$port/name"
	[ -z "$name" ] || ln -s "../${port##*/}" "dev/virtio-ports/$name"
done
while read -r module; do
	chroot /root /sbin/modprobe $module || say "modprobe $module failed"
done </ctl/modprobe

# The disks appear one by one: at most 15 seconds for as many as the host gave.
read -r want_nvme want_sd </ctl/disks
tries=0
while :; do
	nvme=0 sd=0
	for d in /sys/class/nvme-generic/ng*; do [ -e "$d" ] && nvme=$((nvme + 1)); done
	for d in /sys/bus/scsi/devices/*:*:*:*/scsi_generic/sg*; do [ -e "$d" ] && sd=$((sd + 1)); done
	for d in /sys/block/sd*; do [ -e "$d" ] && sd=$((sd + 1)); done
	[ $nvme -ge "$want_nvme" ] && [ $sd -ge $((2 * want_sd)) ] && break
	tries=$((tries + 1))
	[ $tries -lt 300 ] || {
		say "disks are missing: nvme $nvme of $want_nvme, sd and sg $sd of $((2 * want_sd))"
		break
	}
	sleep 0.05
done
# /dev/test/ngC-N, nvmeC-N: namespace N of controller C; sdK, sgK: disk K.
for c in /sys/class/nvme/nvme*; do
	[ -e "$c/serial" ] || continue
	read -r serial <"$c/serial"
	case $serial in NVEFS*) ;; *) continue ;; esac
	for d in "dev/nvme${c##*/nvme}"n* "dev/ng${c##*/nvme}"n*; do
		case $d in *p[0-9]* | *'*') continue ;; esac
		kind=${d#dev/}
		kind=${kind%%[0-9]*}
		# Kernels from 6.11 on look at namespaces at the same time: the number in a name goes by who was first.
		nsid=${d##*n}
		attribute=/sys/class/block/nvme${d#"dev/$kind"}/nsid
		[ -e "$attribute" ] && read -r nsid <"$attribute"
		ln -s "../${d#dev/}" "dev/test/$kind${serial#NVEFS}-$nsid"
	done
done
for d in /sys/bus/scsi/devices/*:*:*:*; do
	[ -e "$d" ] || continue
	read -r model <"$d/model"
	case $model in "QEMU HARDDISK"*) kind= ;; *) kind=debug ;; esac
	id=${d%:*}
	id=${id##*:}
	for x in "$d"/block/*; do [ -e "$x" ] && ln -s "../${x##*/}" "dev/test/sd$kind$id"; done
	for x in "$d"/scsi_generic/*; do [ -e "$x" ] && ln -s "../${x##*/}" "dev/test/sg$kind$id"; done
done

mkdir -p run/guest
cp /bin/busybox run/guest/busybox
cat >run/guest/run <<'END'
b=/run/guest/busybox
$b setsid /bin/sh /run/ctl/cmd </dev/null >/dev/virtio-ports/out 2>&1
echo $? >/run/ctl/status
$b sync
echo 1 >/proc/sys/kernel/sysrq
echo b >/proc/sysrq-trigger # at once: nothing here wants an orderly end
END
say ready
exec switch_root /root /run/guest/busybox sh /run/guest/run
