#!/bin/sh
# SPDX-License-Identifier: MIT
# The whole project builds with clang, warnings (thread safety included) being errors, and with the
# checks that distributions add: results that must not be ignored are marked by them only.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
command -v clang >/dev/null || {
	echo "SKIP: clang build: clang is not installed"
	exit 77
}
dir=$PWD/build-clang
if [ ! -f "$dir/build.ninja" ]; then
	rm -rf "$dir"
	CC=clang meson setup "$dir" "$top" -Dwerror=true -Dbuildtype=debug -Doptimization=1 \
		-Dc_args=-D_FORTIFY_SOURCE=2 >"$dir.log" 2>&1 || {
		cat "$dir.log"
		exit 1
	}
fi
meson compile -C "$dir"
