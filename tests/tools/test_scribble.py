#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Damaged metadata with right checksums: fsck, dump and mount neither crash, hang nor take memory without bound.

NVEFS_SCRIBBLE_SEEDS=first-last chooses the seeds; a failure names the one that reproduces it.
"""
import lzma
import os
import resource
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "fuse"))
from harness import BUILD, FSCK, NVEFS, TIMEOUT, UMOUNT, Case, run_tests, why_not  # pylint: disable=wrong-import-position

DUMP = os.path.join(BUILD, "src/ctl/dump.nvefs")
SCRIBBLE = os.path.join(BUILD, "tests/tools/scribble")
GOLDEN = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "golden", "data", "v2.img.xz")
FIRST, LAST = (int(s) for s in os.environ.get("NVEFS_SCRIBBLE_SEEDS", "1-18").split("-"))
SECONDS = TIMEOUT


def is_sanitized():
    with open(FSCK, "rb") as f:
        return b"__asan_init" in f.read() or b"__tsan_init" in f.read()


def limit():
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))


class Scribble(Case):
    limit = None if is_sanitized() else staticmethod(limit)

    def setUp(self):
        super().setUp()
        self.base = os.path.join(self.dir, "base.img")
        with lzma.open(GOLDEN) as src, open(self.base, "wb") as dst:
            while chunk := src.read(1 << 20):
                if chunk.strip(b"\0"):
                    dst.write(chunk)
                else:
                    dst.seek(len(chunk), os.SEEK_CUR)
            dst.truncate()

    def scribble(self, seed):
        subprocess.run(["cp", "--sparse=always", self.base, self.img], check=True, timeout=SECONDS)
        subprocess.run([SCRIBBLE, self.img, str(seed), str(1 + seed % 7)], check=True, stdout=subprocess.DEVNULL,
                       timeout=SECONDS)

    def survive(self, seed, codes, *args):
        """Ends in time with one of these exit codes; says something when it is no success."""
        try:
            r = subprocess.run(args, capture_output=True, timeout=SECONDS, check=False, preexec_fn=self.limit)
        except subprocess.TimeoutExpired:
            self.fail(f"seed {seed}: {args} hangs")
        self.assertIn(r.returncode, codes, f"seed {seed}: {args}: {r.stderr[-2000:]}")
        if r.returncode:
            self.assertTrue(r.stderr or r.stdout, f"seed {seed}: {args}: exit {r.returncode} without a word")
        return r.returncode

    def test_fsck_and_dump(self):
        found = 0
        for seed in range(FIRST, LAST + 1):
            self.scribble(seed)
            found += self.survive(seed, (0, 4, 8), FSCK, "-n", "--data", self.img) != 0
            for command in (["super"], ["root"], ["groups"], ["tree"], ["journal"], ["inode", "/"], ["map", "16"]):
                self.survive(seed, (0, 1), DUMP, "--json", self.img, *command)
            self.survive(seed, (0, 1), DUMP, self.img, "tree")
            self.survive(seed, (0, 1), DUMP, "--no-replay", self.img, "tree")
        # Some of what is scribbled over means nothing.
        self.assertGreater(found, (LAST - FIRST + 1) // 3)

    def use(self, seed):
        """Walk and read all that can be reached, then write a little; errors are answers, too."""
        script = ('cd "$1" || exit 0; find . -xdev -type f -size -4M -exec cat {} + >/dev/null 2>&1; '
                  'ls -laR . >/dev/null 2>&1; mkdir new && echo text >new/file && rm -r new; sync . ; true')
        try:
            subprocess.run(["sh", "-c", script, "sh", self.mnt], capture_output=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            self.fail(f"seed {seed}: using the mount hangs")

    def test_mount(self):
        reason = why_not()
        if reason:
            self.skipTest(reason)
        for seed in range(FIRST, LAST + 1, 3):
            self.scribble(seed)
            code = self.survive(seed, (0, 1, 32), NVEFS, self.img, self.mnt)
            if code:
                self.assertFalse(self.is_mounted())
                continue
            self.use(seed)
            alive = os.path.exists(f"/proc/{self.pid()}")
            r = subprocess.run([UMOUNT, self.mnt], capture_output=True, timeout=SECONDS, check=False)
            self.assertTrue(alive, f"seed {seed}: the daemon is gone")
            self.assertFalse(self.is_mounted(), f"seed {seed}: {r.stderr}")

    def tearDown(self):
        super().tearDown()
        shutil.rmtree(self.dir, ignore_errors=True)


if __name__ == "__main__":
    run_tests()
