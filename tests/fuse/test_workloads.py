#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs that people run, on the combinations of route and dedup.

NVEFS_TEST_SCALE multiplies sizes and times; the default of 1 takes only two of the combinations. A program
that is not here is a skip.
"""
import os
import shutil
import sqlite3
import subprocess
import sys
import unittest

from harness import ROUTES, SWITCH, Case, main, run

SCALE = int(os.environ.get("NVEFS_TEST_SCALE", "1"))
LONG = 600 * SCALE
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))

STRESSORS = ["chmod", "chown", "copy-file", "dentry", "dir", "fallocate", "fstat", "hdd", "iomix", "link", "mmap",
             "rename", "seek", "symlink", "sync-file", "utime", "xattr"]

SQLITE = r"""
import random, sqlite3, sys
path, seed = sys.argv[1], int(sys.argv[2])
rnd = random.Random(seed)
db = sqlite3.connect(path, timeout=600, isolation_level=None)
for i in range(int(sys.argv[3])):
    db.execute("begin immediate")
    db.execute("insert into t values (?, ?)", (seed * 1000000 + i, rnd.randbytes(rnd.randrange(6000))))
    if i % 7 == 0:
        db.execute("delete from t where k = ?", (seed * 1000000 + rnd.randrange(i + 1),))
    db.execute("commit")
"""


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"{program} is not installed")


class Workloads(Case):
    def everywhere(self, work):
        combinations = [(r, d) for r in ROUTES for d in SWITCH] if SCALE > 1 else [("native", "on"), ("scsi", "off")]
        for route, dedup in combinations:
            with self.subTest(route=route, dedup=dedup):
                self.mkfs("768M", "-f")
                self.mount(f"route={route}", f"dedup={dedup}")
                work()
                self.umount()
                self.fsck()

    @needs("fio")
    def test_fio_verify(self):
        def work():
            run("fio", "--name=verify", f"--directory={self.mnt}", "--rw=randrw", "--bsrange=4k-64k",
                f"--size={12 * SCALE}M", "--numjobs=2", "--ioengine=libaio", "--direct=1", "--iodepth=16",
                "--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--dedupe_percentage=40",
                "--output-format=terse", timeout=LONG, cwd=self.dir)
        self.everywhere(work)

    @needs("git")
    def test_git(self):
        def work():
            repo = self.path("repo")
            shutil.copytree(os.path.join(ROOT, "src"), os.path.join(repo, "src"))
            shutil.copytree(os.path.join(ROOT, "tests"), os.path.join(repo, "tests"))
            git = ["git", "-C", repo, "-c", "user.name=t", "-c", "user.email=t@example.org"]
            run("git", "init", "-q", repo)
            run(*git, "add", ".")
            run(*git, "commit", "-q", "-m", "all")
            run(*git, "fsck", "--full", "--strict")
            run(*git, "gc", "-q")
            self.assertEqual(run(*git, "status", "--porcelain").stdout, "")
            shutil.rmtree(repo)
        self.everywhere(work)

    def test_sqlite(self):
        def work():
            for mode in ("delete", "wal"):
                path = self.path(f"{mode}.db")
                db = sqlite3.connect(path)
                # Here, and not where others wait: a change of the mode does not wait for locks. It stays with the file.
                self.assertEqual(db.execute(f"pragma journal_mode={mode}").fetchone(), (mode,))
                db.execute("create table t (k integer primary key, v blob)")
                db.commit()
                procs = [subprocess.Popen([sys.executable, "-c", SQLITE, path, str(i), str(25 * SCALE)])
                         for i in (1, 2)]
                for p in procs:
                    self.assertEqual(p.wait(timeout=LONG), 0)
                self.assertEqual(db.execute("pragma integrity_check").fetchall(), [("ok",)])
                db.close()
        self.everywhere(work)

    @needs("meson")
    def test_build(self):
        """This project, built inside the mount; what it built runs."""
        def work():
            source = self.path("nvefs")
            shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns("build*", ".git"), symlinks=True)
            run("meson", "setup", "--buildtype=debug", os.path.join(source, "build"), source, timeout=LONG)
            target = "tests/unit/test_nvme"
            run("ninja", "-C", os.path.join(source, "build"), target, timeout=LONG)
            run(os.path.join(source, "build", target), timeout=LONG)
        if SCALE == 1:
            self.mkfs("768M")
            self.mount("dedup=on")
            work()
            self.umount()
            self.fsck()
        else:
            self.everywhere(work)

    @needs("stress-ng")
    def test_stress(self):
        def work():
            for name in STRESSORS:
                run("stress-ng", "--temp-path", self.mnt, f"--{name}", "2", "--verify", "--timeout",
                    f"{SCALE}s", "--quiet", "--hdd-bytes", "16M", "--fallocate-bytes", "16M", "--iomix-bytes", "16M",
                    "--seek-punch", timeout=LONG)
        self.everywhere(work)


if __name__ == "__main__":
    main()
