#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Count what a `meson test` run did, from its logs in the directory given.

What a test program says decides how it counts:
  Check's last line "100%: Checks: 12, Failures: 0, Errors: 0": that many;
  lines "PASS: what", "FAIL: what", "SKIP: what: why": one each;
  neither: the program is one test, by its exit code.
Exit code 77 is a skip of the whole program; its last SKIP line has the reason.
The last line printed is the sum; exit status 0 only when nothing failed.
"""
import glob
import json
import re
import sys

CHECKS = re.compile(r"^\d+%: Checks: (\d+), Failures: (\d+), Errors: (\d+)", re.M)
LINE = re.compile(r"^(PASS|FAIL|SKIP): (.*)$", re.M)


def count(test):
    """(passed, failed, [reason of each skip]) of one entry of testlog.json."""
    text = (test.get("stdout") or "") + "\n" + (test.get("stderr") or "")
    lines = LINE.findall(text)
    skips = [what for kind, what in lines if kind == "SKIP"]
    if test["result"] == "SKIP":
        return 0, 0, skips[-1:] or ["no reason was given"]
    passed = sum(kind == "PASS" for kind, _ in lines)
    failed = sum(kind == "FAIL" for kind, _ in lines)
    for checks, failures, errors in CHECKS.findall(text):
        bad = int(failures) + int(errors)
        passed += int(checks) - bad
        failed += bad
    good = test["result"] in ("OK", "EXPECTEDFAIL")
    if not good and not failed:
        failed = 1  # it crashed, timed out, or failed without a word
    if good and not passed and not skips:
        passed = 1
    return passed, failed, skips


def main():
    passed = failed = 0
    skipped, bad = [], []
    for path in glob.glob(sys.argv[1] + "/testlog*.json"):
        with open(path, encoding="utf-8", errors="replace") as log:
            for line in log:
                test = json.loads(line)
                p, f, s = count(test)
                passed += p
                failed += f
                skipped += [(test["name"], reason) for reason in s]
                if f:
                    bad.append(test)
    for test in bad:
        print(f"--- {test['name']}: {test['result']}")
        text = (test.get("stdout") or "") + (test.get("stderr") or "")
        print("\n".join(text.splitlines()[-40:]))
    for name, reason in skipped:
        print(f"skipped: {name}: {reason}")
    if passed + failed + len(skipped) == 0:
        print("no test was run")
        failed = 1
    print(f"{passed} passed, {failed} failed, {len(skipped)} skipped")
    return 1 if failed else 0


sys.exit(main())
