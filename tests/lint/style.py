#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Licence lines, the top level, paths of somebody's machine: errors. Lengths: warnings."""
import re
import sys

import sources

TOP_LEVEL = {"meson.build", "src", "include", "mkfs", "fsck", "tests", "examples", "README.md",
             "LICENSE"}
NO_LICENCE = re.compile(r"^\.|^LICENSE$|\.md$|\.(img|xz|gz|bin|json|csv|svg|png)$|^tests/(golden|fuzz)/.*data|corpus/")
LOCAL_PATH = re.compile(r"(?<![\w.])/(home/\w+|work|tmp/(wt|b))/")
MAX_FUNCTION, MAX_FILE, MAX_HEADER = 60, 800, 150


def lengths(name, text):
    lines = text.split("\n")
    limit = MAX_HEADER if name.endswith(".h") else MAX_FILE
    if len(lines) > limit and not name.startswith("include/"):
        yield f"{name}: {len(lines)} lines, more than {limit}"
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            start = number
        elif line == "}" and start:
            if number - start - 1 > MAX_FUNCTION:
                yield f"{name}:{start}: function of {number - start - 1} lines, more than {MAX_FUNCTION}"
            start = None


def main():
    bad, warn = [], []
    for name in sources.files():
        top = name.split("/")[0]
        if top not in TOP_LEVEL and not top.startswith("."):
            bad.append(f"{name}: {top} does not belong at the top level")
        text = sources.read(name)
        if not NO_LICENCE.search(name) and "SPDX-License-Identifier: MIT" not in text[:400]:
            bad.append(f"{name}: no SPDX-License-Identifier: MIT line at its start")
        for m in LOCAL_PATH.finditer(text):
            if not name.startswith("tests/lint/"):
                bad.append(f"{name}:{text.count(chr(10), 0, m.start()) + 1}: path of one machine: {m[0]}")
        if name.endswith((".c", ".h")):
            warn += lengths(name, text)
    for line in warn:
        print("warning: " + line)
    print("\n".join(bad))
    print(f"{len(bad)} errors, {len(warn)} warnings")
    return 1 if bad else 0


sys.exit(main())
