#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# fuzz.sh [--scale N] [--keep DIRECTORY] [TARGET...]
#
# Coverage-guided fuzzing of all targets, or of the named ones, by clang's libFuzzer with
# AddressSanitizer and UndefinedBehaviorSanitizer, from the seeds and the corpus that are checked in. So many executions
# of each, times N; ends with their sum. --keep: where what is new is gathered and findings are left
# (a temporary directory otherwise, which stays when something was found).
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
scale=1 keep=
while [ $# -gt 0 ]; do
	case "$1" in
	--scale) scale=$2 && shift ;;
	--keep) keep=$2 && shift ;;
	--help | -h)
		sed -n '4,10s/^# \{0,1\}//p' "$0"
		exit 0
		;;
	-*)
		echo "fuzz.sh: $1: unknown option: see --help" >&2
		exit 2
		;;
	*) break ;;
	esac
	shift
done
command -v clang >/dev/null || {
	echo "SKIP: clang is not installed"
	exit 77
}
# Executions, and seconds that one input may take.
declare -A runs=([format]=6000000 [scsi]=4000000 [ctrl]=200000 [image]=10000)
declare -A limit=([format]=5 [scsi]=5 [ctrl]=20 [image]=120)

work=${keep:-$(mktemp -d "${TMPDIR:-/tmp}/nvefs-fuzz-XXXXXX")}
mkdir -p "$work/found"
build=${NVEFS_FUZZ_BUILD:-$work/build}
[ -f "$build/build.ninja" ] ||
	CC=clang meson setup "$build" "$top" -Dwerror=false -Db_lundef=false -Db_sanitize=address,undefined \
		-Dc_args=-fsanitize=fuzzer-no-link >"$work/setup.log" 2>&1 || {
	cat "$work/setup.log"
	exit 1
}
[ $# -gt 0 ] || set -- format scsi ctrl image
total=0 failed=0
for target; do
	[ -n "${runs[$target]:-}" ] || {
		echo "fuzz.sh: $target: no such target: one of ${!runs[*]}" >&2
		exit 2
	}
	ninja -C "$build" "tests/fuzz/fuzz_$target" "tests/fuzz/replay_$target" >"$work/build.log" 2>&1 || {
		cat "$work/build.log"
		exit 1
	}
	corpus=$work/corpus/$target
	mkdir -p "$corpus"
	"$build/tests/fuzz/replay_$target" -w "$corpus"
	status=0
	"$build/tests/fuzz/fuzz_$target" -runs=$((runs[$target] * scale)) -timeout="${limit[$target]}" -rss_limit_mb=2048 \
		-artifact_prefix="$work/found/$target-" -print_final_stats=1 "$corpus" "$top/tests/fuzz/corpus/$target" \
		>"$work/$target.log" 2>&1 || status=$?
	n=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$target.log")
	total=$((total + ${n:-0}))
	if [ $status -eq 0 ]; then
		echo "PASS: $target: ${n:-0} executions, peak $(sed -n 's/^stat::peak_rss_mb: *//p' "$work/$target.log") MiB"
	else
		echo "FAIL: $target: see below; the input is in $work/found"
		tail -n 40 "$work/$target.log"
		failed=1
	fi
done
echo "$total executions"
[ -n "$keep" ] || [ $failed -ne 0 ] || rm -rf "$work"
exit $failed
