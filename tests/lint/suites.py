#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Suites, from what meson knows of the tests: suites.py BUILD.

`meson test --suite NAME` runs all of a suite, whatever the set-up leaves out. So a test in suite slow is in no
other one, but for the one that is named after its part: crash-slow beside crash.
"""
import json
import pathlib
import sys


def faults(tests):
    for t in tests:
        suites = {s.split(":", 1)[-1] for s in t["suite"]}
        slow = {s for s in suites if s == "slow" or s.endswith("-slow")}
        if slow and suites - slow:
            yield f"{t['name']}: in {', '.join(sorted(slow))} and also in {', '.join(sorted(suites - slow))}"
        if slow and "slow" not in slow:
            yield f"{t['name']}: in {', '.join(sorted(slow))} and not in slow, which the default set-up leaves out"
        if not suites:
            yield f"{t['name']}: in no suite"


def main():
    tests = json.loads((pathlib.Path(sys.argv[1]) / "meson-info/intro-tests.json").read_text())
    bad = list(faults(tests))
    print("\n".join(bad) if bad else f"{len(tests)} tests")
    return 1 if bad or not tests else 0


sys.exit(main())
