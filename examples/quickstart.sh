#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# quickstart.sh [DIR]: build nvefs and show what it is for, step by step.
#
# Works on an image file in DIR (build/quickstart by default), as root or as a
# user who may use FUSE. Leaves nothing mounted; exits 0 only if all of it held.
set -eu
cd "$(dirname "$0")/.."
top=$PWD

case "${1:-}" in
--help | -h)
	sed -n '4,7s/^# \{0,1\}//p' "$0"
	exit 0
	;;
esac

step=0 mnt=
say() {
	step=$((step + 1))
	printf '%2d. %s\n' "$step" "$*"
}
die() {
	echo "quickstart.sh: $*" >&2
	exit 1
}
# Unmount, and come back when all is on the image.
unmount() {
	"$build/src/fuse/umount.nvefs" "$mnt"
}
finish() {
	local status=$?
	trap - EXIT
	if [ -n "$mnt" ] && mountpoint -q "$mnt"; then
		unmount || umount -l "$mnt" || fusermount3 -uz "$mnt" || true
	fi
	[ "$status" -eq 0 ] || echo "quickstart.sh: failed; the image, if any, is ${image:-not made}" >&2
	exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM

examples/setup.sh build
build=$top/build log=$top/build/quickstart.log
mkdir -p "$build"
if ! { [ -f build/build.ninja ] || meson setup build; } >"$log" 2>&1 || ! meson compile -C build >>"$log" 2>&1; then
	cat "$log" >&2
	die "the build failed"
fi
mkfs=$build/mkfs/mkfs.nvefs fsck=$build/fsck/fsck.nvefs nvefs=$build/src/fuse/nvefs
ctl=$build/src/ctl/nvefsctl bench=$build/src/bench/nvefs-bench
say "built $("$nvefs" --version | head -n 1) in $build"
[ -e /dev/fuse ] || die "/dev/fuse: not there: load the fuse module, or give this container the device"

dir=${1:-$build/quickstart}
mkdir -p "$dir/mnt"
image=$dir/disk.img mnt=$dir/mnt
if mountpoint -q "$mnt"; then
	die "$mnt: something is mounted there: unmount it first"
fi
rm -f "$image"

"$mkfs" -q -L quickstart -s 4G "$image"
say "mkfs.nvefs made $image: $(stat -c %s "$image") bytes, of which $(($(stat -c %b "$image") * 512)) are allocated"

"$nvefs" "$image" "$mnt" -o route=native,dedup=on
say "mounted: $(findmnt -n -o FSTYPE,SOURCE "$mnt" | tr -s ' '), route native, dedup on"

# A real tree: what is there of these, until there are 100 MB.
sources= bytes=0
for source in /usr/include /usr/share/doc /usr/lib/python3 /usr/lib/gcc /usr/share/perl /usr/share/locale /usr/lib/git-core /usr/bin; do
	[ -d "$source" ] && [ ! -L "$source" ] || continue
	sources="$sources $source"
	bytes=$((bytes + $(du -sb --apparent-size "$source" | cut -f 1)))
	[ "$bytes" -lt 100000000 ] || break
done
[ "$bytes" -ge 100000000 ] || die "less than 100 MB of files are in$sources: nothing to show with"
preserve=--archive
[ "$(id -u)" -eq 0 ] || preserve="--recursive --no-dereference --preserve=mode,timestamps,links"
for copy in one two; do
	mkdir "$mnt/$copy"
	started=$(date +%s%N)
	# shellcheck disable=SC2086
	cp $preserve $sources "$mnt/$copy"
	ms=$((($(date +%s%N) - started) / 1000000))
	say "copied$sources into $copy: $(find "$mnt/$copy" -type f | wc -l) files, $((bytes / 1000000)) MB, $((ms / 1000)).$(printf %03d $((ms % 1000))) s"
done

"$ctl" sync "$mnt"
"$ctl" stats --json "$mnt" >"$dir/stats.json"
savings=$(python3 - "$dir/stats.json" <<'PY'
import json
import sys
s = json.load(open(sys.argv[1]))
print("files map %.1f MB, which take %.1f MB: %.1f MB saved, dedup ratio %.2f" % (
    s["logical_bytes"] / 1e6, s["physical_bytes"] / 1e6, s["shared_bytes"] / 1e6, s["dedup_ratio"]))
sys.exit(0 if s["physical_bytes"] <= 0.52 * s["logical_bytes"] else 1)
PY
) || die "nvefsctl stats: the second copy was not saved: ${savings:-no figures}"
say "nvefsctl stats: $savings"

unmount
say "unmounted; the image takes $(($(stat -c %b "$image") * 512 / 1000000)) MB on its disk"

verdict=$("$fsck" -f "$image") || die "fsck.nvefs: $verdict"
say "fsck.nvefs: $(echo "$verdict" | tail -n 1 | sed "s|^$image: ||")"

"$nvefs" "$image" "$mnt" -o route=scsi,dedup=off
say "mounted again, route $("$ctl" stats --json "$mnt" | python3 -c 'import json, sys; print(json.load(sys.stdin)["route"])'), dedup off"

files=0
for copy in one two; do
	for source in $sources; do
		diff -r --no-dereference "$source" "$mnt/$copy/${source##*/}" >"$dir/diff.txt" 2>&1 ||
			die "$copy differs from $source: see $dir/diff.txt"
		files=$((files + $(find "$mnt/$copy/${source##*/}" -type f | wc -l)))
	done
done
say "compared with the originals: $files files, all the same"

unmount
say "unmounted; now nvefs-bench matrix --quick on the same image"
"$bench" matrix --quick --out "$dir" "$image"

"$fsck" -f "$image" >"$dir/fsck.txt" || die "fsck.nvefs after the benchmark: $(tail -n 1 "$dir/fsck.txt")"
if mountpoint -q "$mnt"; then
	die "$mnt is still mounted"
fi
say "clean again; nothing is mounted; the image is $image, the figures are in $dir/results.json"
