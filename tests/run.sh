#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# run.sh [--slow|--asan|--tsan|--valgrind] [--no-setup] [--no-coverage] [TEST...]
#
# Installs what is missing, builds, runs all tests that this machine can run
# (or the named ones), reports the line coverage of src/, and ends with
#	N passed, N failed, N skipped
# How a test reports is said in tests/summary.py.
set -eu
cd "$(dirname "$0")/.."

setup=yes coverage=yes kind=default
while [ $# -gt 0 ]; do
	case "$1" in
	--slow | --asan | --tsan | --valgrind) kind=${1#--} ;;
	--no-setup) setup=no ;;
	--no-coverage) coverage=no ;;
	--help | -h)
		sed -n '4,9s/^# \{0,1\}//p' "$0"
		exit 0
		;;
	-*)
		echo "run.sh: $1: unknown option: see --help" >&2
		exit 2
		;;
	*) break ;;
	esac
	shift
done

[ "$setup" = no ] || examples/setup.sh test

# build DIR [MESON-OPTION...]
build() {
	local dir=$1 log
	shift
	log=$(mktemp)
	if ! { [ -f "$dir/build.ninja" ] || meson setup "$dir" "$@"; } >"$log" 2>&1 ||
		! meson compile -C "$dir" >>"$log" 2>&1; then
		cat "$log" >&2
		rm -f "$log"
		echo "run.sh: $dir: the build failed" >&2
		return 1
	fi
	rm -f "$log"
}

dir=build options=
case "$kind" in
# Instrumented code draws warnings about variables that are always set: those builds do without -Werror.
asan) dir=build-asan options="-Dwerror=false -Db_sanitize=address,undefined" ;;
tsan) dir=build-tsan options="-Dwerror=false -Db_sanitize=thread" ;;
esac
# shellcheck disable=SC2086
build "$dir" $options || {
	echo "0 passed, 1 failed, 0 skipped"
	exit 1
}

# meson stops at the first test that is not known; a run's own log tells the rest.
rm -f "$dir"/meson-logs/testlog*.json
meson test -C "$dir" --no-rebuild --setup="$kind" "$@" || true

if [ "$coverage" = yes ] && [ "$kind" = default ] && [ $# -eq 0 ]; then
	# Figures, no test: the tests themselves were counted above.
	if build build-cov -Dwerror=false -Db_coverage=true -Dc_args=-fprofile-update=atomic; then
		find build-cov -name '*.gcda' -delete
		meson test -C build-cov --no-rebuild --setup=default -t 3 --suite unit --suite fsck --suite golden \
			>/dev/null 2>&1 || true
		meson test -C build-cov --no-rebuild --setup=default -t 3 crash-fs-scsi-dedup-on >/dev/null 2>&1 || true
		python3 tests/coverage.py build-cov src
	else
		echo "coverage: not measured"
	fi
fi

exec python3 tests/summary.py "$dir"/meson-logs
