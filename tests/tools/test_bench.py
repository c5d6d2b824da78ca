#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""nvefs-bench matrix on an image: what it measures, what it leaves, how it ends when it cannot go on."""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "fuse"))
from harness import BUILD, FSCK, MKFS, TIMEOUT, Case, main, mounts, run, started, users  # pylint: disable=wrong-import-position

BENCH = os.path.join(BUILD, "src/bench/nvefs-bench")
SHORT = ("--runtime", "0.2", "--rounds", "1", "--size", "8M")


class Bench(Case):
    def setUp(self):
        super().setUp()
        if not shutil.which("fio"):
            self.skipTest("fio is not installed")
        run(MKFS, "-q", "-f", "-s", "256M", self.img)
        self.out = os.path.join(self.dir, "out")

    def nothing_mounted(self):
        self.assertEqual([m for m in mounts() if m[2] == self.img], [])
        self.assertEqual(run(FSCK, "-n", self.img, check=False).returncode, 0)

    def results(self):
        with open(os.path.join(self.out, "results.json"), encoding="utf-8") as f:
            return json.load(f)

    def test_all_configurations(self):
        r = run(BENCH, "matrix", *SHORT, "--cells", "read-rand-4k,write-seq-128k", "--out", self.out, self.img)
        doc = self.results()
        self.assertTrue(doc["complete"])
        got = {(c["workload"], c["route"], c["dedup"]) for c in doc["results"]}
        self.assertEqual(got, {(w, r, d) for w in ("read-rand-4k", "write-seq-128k") for r in ("native", "scsi")
                               for d in (False, True)})
        for c in doc["results"]:
            self.assertGreater(c["iops"]["median"], 0)
            self.assertGreater(c["rounds"][0]["latency_mean_ns"], 0)
            self.assertAlmostEqual(c["bytes_per_s"]["median"] / c["iops"]["median"],
                                   4096 if "4k" in c["workload"] else 131072, delta=2048)
        self.assertAlmostEqual(doc["published"]["read-rand-4k"]["native_to_scsi_iops"], 1.65, places=2)
        self.assertIn("native/scsi", r.stdout)
        self.assertRegex(r.stdout, r"read-rand-4k +off +native .* 1\.65")
        self.nothing_mounted()

    def test_rounds_and_selection(self):
        doc = json.loads(run(BENCH, "matrix", *SHORT, "--rounds", "3", "--routes", "native", "--dedup", "on", "--cells",
                             "read-rand-64k", "--json", self.img).stdout)
        self.assertEqual(len(doc["results"]), 1)
        self.assertEqual(len(doc["results"][0]["rounds"]), 3)
        iops = sorted(r["iops"] for r in doc["results"][0]["rounds"])
        self.assertEqual([doc["results"][0]["iops"][k] for k in ("min", "median", "max")], iops)
        self.assertNotIn("native_to_scsi_iops", doc["results"][0])

    def test_leaves_other_files_alone(self):
        self.mount()
        with open(os.path.join(self.mnt, "mine"), "wb") as f:
            f.write(b"x" * 100000)
        self.umount()
        run(BENCH, "matrix", *SHORT, "--cells", "write-rand-4k", self.img)
        self.mount()
        self.assertEqual(os.listdir(self.mnt), ["mine"])
        with open(os.path.join(self.mnt, "mine"), "rb") as f:
            self.assertEqual(f.read(), b"x" * 100000)

    def test_no_room(self):
        r = run(BENCH, "matrix", "--size", "1G", "--runtime", "0.2", self.img, check=False)
        self.assertEqual(r.returncode, 1)
        self.assertRegex(r.stderr, r"nvefs-bench: .*MiB are free.*--size")
        self.nothing_mounted()

    def test_foreign_target(self):
        with open(self.img, "wb") as f:
            f.truncate(64 << 20)
        r = run(BENCH, "matrix", *SHORT, self.img, check=False)
        self.assertEqual(r.returncode, 1)
        self.assertEqual(len(r.stderr.splitlines()), 1, r.stderr)
        self.assertIn(self.img, r.stderr)

    def measuring(self, bench):
        """Whether fio runs on the mount, and writes no job files any more."""
        self.assertIsNone(bench.poll(), "nvefs-bench has ended")
        at = [m[0] for m in mounts() if m[2] == self.img]
        for pid in users(at[0]) if at else ():
            with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as f:
                if b"--time_based" in f.read():
                    return True
        return False

    def test_interrupt(self):
        with started(BENCH, "matrix", "--runtime", "1", "--rounds", "9", "--size", "8M", "--out", self.out, self.img,
                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as p:
            self.wait_until("a cell to be measured", lambda: self.measuring(p))
            os.killpg(p.pid, signal.SIGINT)  # as a terminal does: fio gets it as well
            out, err = p.communicate(timeout=TIMEOUT)
        self.assertEqual(p.returncode, 130, err)
        self.assertIn("interrupted", err)
        if "native/scsi" in out:
            self.assertIn("partial", err)
            self.assertFalse(self.results()["complete"])
        self.nothing_mounted()

    def test_without_fio(self):
        r = subprocess.run([BENCH, "matrix", *SHORT, self.img], capture_output=True, text=True, check=False,
                           timeout=TIMEOUT, env={"PATH": "/nonexistent"})
        self.assertEqual(r.returncode, 1)
        self.assertIn("fio", r.stderr)
        self.nothing_mounted()


if __name__ == "__main__":
    main()
