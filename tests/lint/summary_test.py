#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tests/summary.py counts what it says it counts: on a log made here, with its sum known."""
import json
import os
import subprocess
import sys
import tempfile

FUSE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "fuse")
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

# A program of tests as tests/fuse has them: three fail, of which two do so in several subtests.
PROGRAM = """
import sys
import unittest
sys.path.insert(0, sys.argv.pop())
from harness import run_tests

class Some(unittest.TestCase):
    def test_good(self):
        for i in range(3):
            with self.subTest(i=i):
                self.assertLess(i, 3)
    def test_subtests(self):
        for i in range(3):
            with self.subTest(i=i):
                self.assertLess(i, 1)
    def test_subtest_and_rest(self):
        with self.subTest("first"):
            self.fail()
        raise OSError("then")
    def test_rest(self):
        self.fail()
    def test_skipped(self):
        self.skipTest("no reason")

class Other(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise OSError("no class")
    def test_nothing(self):
        pass

run_tests()
"""


def program_case():
    r = subprocess.run([sys.executable, "-c", PROGRAM, FUSE], capture_output=True, text=True, check=False)
    return [entry("FAIL" if r.returncode else "OK", r.stdout, r.stderr)], "1 passed, 4 failed, 1 skipped", 1


def main():
    bad = 0
    for log, last, status in CASES + [program_case()]:
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
