#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# external.sh
#
# Run two public suites, which this project does not carry, on mounts of all
# four combinations of route and dedup; check each image when it is unmounted.
#	PJDFSTEST_DIR	directory of a built pjdfstest, with its tests/ below
#	FSX		the program fsx of xfstests
#	FSX_OPS		how many operations of fsx (100000)
#	FSX_ARGS	more options for it, as "-f" or "-Z -r 4096 -w 4096 -t 4096"
#	FSX_SEED	its seed; by default the time's, which is printed
#	EXTERNAL_JOBS	how many files of pjdfstest at once (4)
# What is not given is skipped; the counts are printed for each combination.
set -u
build=${NVEFS_BUILD:-$(dirname "$0")/../../build}
ops=${FSX_OPS:-100000} seed=${FSX_SEED:-$(date +%s)} jobs=${EXTERNAL_JOBS:-4}
failed=0

skip() {
	echo "SKIP: $1"
	exit 77
}

verdict() { # STATUS WHAT
	if [ "$1" -eq 0 ]; then
		echo "PASS: $2"
	else
		echo "FAIL: $2"
		failed=1
	fi
}

[ "$(id -u)" -eq 0 ] || skip "needs root to mount"
[ -c /dev/fuse ] || skip "there is no /dev/fuse"
[ -n "${PJDFSTEST_DIR:-}${FSX:-}" ] || skip "neither PJDFSTEST_DIR nor FSX is set"
[ -z "${PJDFSTEST_DIR:-}" ] || [ -x "$PJDFSTEST_DIR/pjdfstest" ] ||
	skip "PJDFSTEST_DIR: $PJDFSTEST_DIR/pjdfstest is not there, or not built"
[ -z "${PJDFSTEST_DIR:-}" ] || command -v prove >/dev/null || skip "prove, which comes with perl, is missing"
[ -z "${FSX:-}" ] || [ -x "$FSX" ] || skip "FSX: $FSX is no program"

dir=$(mktemp -d "${TMPDIR:-/tmp}/nvefs-external-XXXXXX")
image=$dir/disk.img mnt=$dir/mnt
mkdir "$mnt"
chmod 755 "$dir"

clean() {
	cd /
	"$build/src/fuse/umount.nvefs" "$mnt" 2>/dev/null || umount -i -l "$mnt" 2>/dev/null
	rm -rf "$dir"
}
trap clean EXIT
trap 'exit 1' INT TERM

# Every file that has failures, and how many of all tests failed.
pjdfstest() { # LABEL
	local log=$dir/pjdfstest.log status
	(cd "$mnt" && prove -j "$jobs" -r "$PJDFSTEST_DIR/tests") >"$log" 2>&1
	status=$?
	grep -E 'Failed|Parse errors|Wstat|^Files=|^Result:' "$log"
	verdict $status "$1 pjdfstest: $(grep '^Files=' "$log" | cut -d, -f1,2)"
}

# On failure fsx leaves what it did, and what it wanted to see, in this directory: show the end.
fsx() { # LABEL
	local log=$dir/fsx.log status
	# shellcheck disable=SC2086
	"$FSX" ${FSX_ARGS:-} -q -S "$seed" -N "$ops" -P "$dir" "$mnt/fsx" >"$log" 2>&1
	status=$?
	[ $status -eq 0 ] || tail -n 60 "$log"
	verdict $status "$1 fsx ${FSX_ARGS:-}: $ops operations, FSX_SEED=$seed"
}

for route in native scsi; do
	for dedup in off on; do
		label="route=$route dedup=$dedup"
		"$build/mkfs/mkfs.nvefs" -q -s 1G "$image" &&
			"$build/src/fuse/nvefs" "$image" "$mnt" -o "route=$route,dedup=$dedup"
		status=$?
		verdict $status "$label mount"
		[ $status -eq 0 ] || continue
		[ -z "${PJDFSTEST_DIR:-}" ] || pjdfstest "$label"
		[ -z "${FSX:-}" ] || fsx "$label"
		"$build/src/fuse/umount.nvefs" "$mnt" && "$build/fsck/fsck.nvefs" -n -f "$image"
		verdict $? "$label unmount and fsck"
		rm -f "$image"
	done
done
exit $failed
