#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tests/summary.py counts what it says it counts: on a log made here, with its sum known."""
import json
import os
import subprocess
import sys
import tempfile

SUMMARY = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "summary.py")


def entry(result, stdout="", stderr=""):
    return {"name": "some test", "result": result, "stdout": stdout, "stderr": stderr}


CASES = [  # log entries, last line, exit status
    ([entry("OK", "100%: Checks: 12, Failures: 0, Errors: 0\n")], "12 passed, 0 failed, 0 skipped", 0),
    ([entry("FAIL", "75%: Checks: 12, Failures: 2, Errors: 1\n")], "9 passed, 3 failed, 0 skipped", 1),
    ([entry("OK", "100%: Checks: 2, Failures: 0, Errors: 0\n100%: Checks: 3, Failures: 0, Errors: 0\n")],
     "5 passed, 0 failed, 0 skipped", 0),
    ([entry("OK", "PASS: a\nPASS: b\nSKIP: c: no fio\n")], "2 passed, 0 failed, 1 skipped", 0),
    ([entry("FAIL", "PASS: a\nFAIL: b\n")], "1 passed, 1 failed, 0 skipped", 1),
    ([entry("OK", "nothing to say\n")], "1 passed, 0 failed, 0 skipped", 0),
    ([entry("FAIL")], "0 passed, 1 failed, 0 skipped", 1),
    ([entry("TIMEOUT", "PASS: a\n")], "1 passed, 1 failed, 0 skipped", 1),
    ([entry("SKIP", "SKIP: clang build: clang is not installed\n"), entry("OK")], "1 passed, 0 failed, 1 skipped", 0),
    ([entry("SKIP"), entry("OK", stderr="PASS: a\n")], "1 passed, 0 failed, 1 skipped", 0),
    ([], "0 passed, 1 failed, 0 skipped", 1),
]


def main():
    bad = 0
    for log, last, status in CASES:
        with tempfile.TemporaryDirectory() as directory:
            with open(os.path.join(directory, "testlog-default.json"), "w", encoding="utf-8") as f:
                f.writelines(json.dumps(e) + "\n" for e in log)
            r = subprocess.run([sys.executable, SUMMARY, directory], capture_output=True, text=True, check=False)
        said = r.stdout.splitlines()[-1]
        if (said, r.returncode) != (last, status):
            print(f"{log}: said '{said}' and exit {r.returncode}, expected '{last}' and {status}")
            bad += 1
        if any(e["result"] == "SKIP" for e in log) and "skipped: some test: " not in r.stdout:
            print(f"{log}: the reason of the skip is not told")
            bad += 1
    return 1 if bad else 0


sys.exit(main())
