#!/bin/sh
# SPDX-License-Identifier: MIT
# Every shell script parses, and is executable; every Python file compiles.
set -eu
cd "$(dirname "$0")/../.."
bad=0
for script in $(find examples tests .ci mkfs fsck src -type f \( -name '*.sh' -o -path '.ci/run' \)); do
	shell=sh
	head -n 1 "$script" | grep -q bash && shell=bash
	$shell -n "$script" || bad=1
	[ -x "$script" ] || {
		echo "$script: not executable"
		bad=1
	}
done
python3 -c 'import ast, sys
for name in sys.argv[1:]:
    ast.parse(open(name).read(), name)' $(find tests examples -name '*.py') || bad=1
exit $bad
