#!/bin/sh
# SPDX-License-Identifier: MIT
# The whole project builds with clang, warnings (thread safety included) being errors.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
command -v clang >/dev/null || {
	echo "SKIP: clang build: clang is not installed"
	exit 77
}
dir=$PWD/build-clang
if [ ! -f "$dir/build.ninja" ]; then
	rm -rf "$dir"
	CC=clang meson setup "$dir" "$top" -Dwerror=true -Dbuildtype=debug >"$dir.log" 2>&1 || {
		cat "$dir.log"
		exit 1
	}
fi
meson compile -C "$dir"
