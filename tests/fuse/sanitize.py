#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""sanitize.py asan|tsan: the daemon, built with sanitizers, under many kinds of load at once.

It builds into a directory of its own, mounts by each route with dedup on and four queues, and runs fio with
verification, names, attributes, trees, fsyncs, holes, clones, scrub, trim and the control channel side by side, with little
memory for maps, so that they are dropped and folded all the time. The daemon must end with 0 and have logged no report.

NVEFS_TEST_SECONDS of load on each route (default 20); NVEFS_SANITIZE_DIR keeps the builds in that directory.
"""
import atexit
import errno
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import harness
from harness import ROUTES, Case, run

SECONDS = float(os.environ.get("NVEFS_TEST_SECONDS", "20"))
SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
KEEP = os.environ.get("NVEFS_SANITIZE_DIR")
KINDS = {"asan": "address,undefined", "tsan": "thread"}
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "second_deadlock_stack=1:history_size=4",
}
REPORTS = ("Sanitizer", "runtime error:", "WARNING: ThreadSanitizer", "Assertion")
PART = 64 << 10
kind = None


def build():
    """The programs with the sanitizers in, or the reason why there are none."""
    top = KEEP or tempfile.mkdtemp(prefix="nvefs-sanitize-")
    if not KEEP:
        atexit.register(shutil.rmtree, top, True)
    out = os.path.join(top, kind)
    if not os.path.exists(os.path.join(out, "build.ninja")):
        r = run("meson", "setup", out, SOURCE, f"-Db_sanitize={KINDS[kind]}", "-Db_lundef=false", check=False,
                timeout=300)
        if r.returncode:
            return None, f"no build with -Db_sanitize={KINDS[kind]}: {(r.stdout + r.stderr)[-300:]}"
    run("ninja", "-C", out, "-j2", "src/fuse/nvefs", "src/fuse/umount.nvefs", "src/ctl/nvefsctl", "mkfs/mkfs.nvefs",
        "fsck/fsck.nvefs", timeout=3600)
    return out, None


class Load:
    """Threads that each repeat one thing until the time is over; the first failure of each is kept."""

    def __init__(self, mnt):
        self.mnt, self.end, self.failures, self.rounds = mnt, time.monotonic() + SECONDS, [], {}
        self.threads = []

    def left(self):
        return self.end - time.monotonic()

    def start(self, work, *args):
        name = work.__name__ + "".join(f" {a}" for a in args)

        def repeat():
            n = 0
            try:
                while self.left() > 0:
                    work(n, *args)
                    n += 1
            except Exception:  # whatever it is, it is the test's failure
                self.failures.append(f"{name}, round {n}: {traceback.format_exc()}")
            self.rounds[name] = n

        t = threading.Thread(target=repeat, name=name)
        self.threads.append(t)
        t.start()

    def join(self):
        for t in self.threads:
            t.join()

    def path(self, *names):
        return os.path.join(self.mnt, *names)

    def ctl(self, *args, check=True):
        return run(harness.CTL, *args, check=check, timeout=300)

    # ---- What they do ----

    def fio(self, n, job):
        """Verified random I/O of half-duplicate data, while half of it is synced now and then."""
        where = self.path(f"fio{job}")
        os.makedirs(where, exist_ok=True)
        run("fio", f"--name=j{job}", f"--directory={where}", "--rw=randrw", "--bsrange=4k-64k", "--size=6M",
            "--ioengine=libaio", "--direct=1", "--iodepth=8", "--verify=crc32c", "--verify_fatal=1", "--do_verify=1",
            "--verify_state_save=0", "--dedupe_percentage=50", f"--randseed={job * 1000 + n}", "--fallocate=none",
            f"--fsync={32 if job % 2 else 0}", "--output-format=terse", timeout=600)

    def shared_file(self, _, job):
        """Overlapping reads, writes, appends, truncates and stats of one file by all."""
        fd = os.open(self.path("shared"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            for i in range(16):
                at = (i * 7919 + job * 4099) % (1 << 20)
                os.pwrite(fd, bytes([i]) * (9000 + 1000 * job), at)
                os.pread(fd, 65536, at // 2)
                os.fstat(fd)
            os.ftruncate(fd, (job + 1) * 100003)
            os.lseek(fd, 0, os.SEEK_DATA)
            os.lseek(fd, 0, os.SEEK_HOLE)
        except OSError as e:
            if e.errno != errno.ENXIO:  # nothing but a hole
                raise
        finally:
            os.close(fd)
        with open(self.path("log"), "ab") as f:
            f.write(b"line\n" * 100)

    def names(self, _, job):
        """Create, link, rename across directories, attributes, unlink; open files without a name."""
        there, here = self.path("d0"), self.path(f"d{job}")
        for d in (there, here):
            os.makedirs(d, exist_ok=True)
        for i in range(20):
            a, b = os.path.join(here, f"a{i}-{job}"), os.path.join(there, f"b{i}-{job}")
            with open(a, "wb") as f:
                f.write(b"x" * (i * 700))
                os.setxattr(a, "user.k", bytes(i * 20))
                os.chmod(a, 0o600 + i)
                os.utime(a)
            os.link(a, a + "l")
            os.rename(a, b)
            os.getxattr(b, "user.k")
            os.listxattr(b)
            os.symlink(b, a)
            os.readlink(a)
            os.stat(b)
            os.unlink(a)
            os.unlink(a + "l")
            with open(b, "rb") as f:
                os.unlink(b)
                f.read()
        os.listdir(there)
        os.statvfs(there)
        if job:
            os.rename(here, here + "-moved")
            os.rename(here + "-moved", here)

    def tree(self, _):
        """A real tree, copied, compared, removed."""
        to = self.path("tree")
        run("cp", "-a", os.path.join(SOURCE, "src"), to, timeout=600)
        run("diff", "-r", os.path.join(SOURCE, "src"), to, timeout=600)
        shutil.rmtree(to)

    def fsyncs(self, _, job):
        fd = os.open(self.path(f"sync{job}"), os.O_WRONLY | os.O_CREAT | (os.O_DSYNC if job else 0), 0o644)
        try:
            for i in range(8):
                os.pwrite(fd, os.urandom(5000), i * 6000)
                if not job:
                    (os.fsync if i % 2 else os.fdatasync)(fd)
        finally:
            os.close(fd)

    def holes(self, n, job):
        """Preallocate, write, punch, zero, clone within and between files, truncate, read back."""
        a, b = self.path(f"hole{job}"), self.path(f"clone{job}")
        with open(a, "w+b") as f, open(b, "w+b") as g:
            os.posix_fallocate(f.fileno(), 0, 1 << 20)
            f.write(os.urandom(PART) * 8)
            f.flush()
            run("fallocate", "-p", "-o", str(PART + 100), "-l", str(PART), a)
            run("fallocate", "-z", "-o", str(3 * PART), "-l", "5000", a)
            for i in range(4):
                os.copy_file_range(f.fileno(), g.fileno(), PART * 2, i * PART, i * PART)
            os.copy_file_range(g.fileno(), f.fileno(), PART, 0, 6 * PART)
            f.truncate(300001)
            f.seek(0)
            f.read()
            os.fsync(g.fileno())
        os.unlink(b if n % 2 else a)

    def mapped(self, n):
        """Through the page cache: a mapping that is written and synced."""
        with open(self.path("mapped"), "w+b") as f:
            f.truncate(1 << 20)
            with mmap.mmap(f.fileno(), 1 << 20) as m:
                for i in range(0, 1 << 20, 12288):
                    m[i:i + 100] = bytes([n % 256]) * 100
                m.flush()

    def control(self, n):
        for args in (("stats", "--json", self.mnt), ("info", self.mnt), ("dedup", self.mnt, "on" if n % 2 else "off"),
                     ("label", self.mnt, f"label {n}"), ("label", self.mnt), ("sync", self.mnt)):
            self.ctl(*args)

    def labels(self, n):
        self.ctl("label", self.mnt, f"other {n}")
        self.ctl("info", self.mnt)

    def scrub(self, _):
        r = self.ctl("scrub", self.mnt, check=False)
        if r.returncode and "already" not in r.stderr:
            raise AssertionError(r.stdout + r.stderr)
        self.ctl("trim", self.mnt)
        time.sleep(0.5)


class Sanitize(Case):
    def setUp(self):
        super().setUp()
        if os.path.isdir("/dev/shm"):
            self.img = os.path.join(tempfile.mkdtemp(prefix="nvefs-sanitize-", dir="/dev/shm"), "disk.img")
            self.addCleanup(shutil.rmtree, os.path.dirname(self.img), True)

    def start_daemon(self, *opts):
        self.log = os.path.join(self.dir, "daemon.log")
        with open(self.log, "w", encoding="utf-8") as out:
            self.daemon = subprocess.Popen([harness.NVEFS, self.img, self.mnt, "-f", "-o", ",".join(opts)],
                                           stdout=out, stderr=out)
        self.wait_until("the mount", lambda: self.is_mounted() or self.daemon.poll() is not None, 60)

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def check_daemon(self):
        code = self.daemon.wait(timeout=300)
        text = self.said()
        if KEEP:
            shutil.copy(self.log, os.path.join(KEEP, f"{kind}-{self.id().split('.')[-1]}.log"))
        self.assertFalse([w for w in REPORTS if w in text], text[:20000])
        self.assertEqual(code, 0, text[:20000])

    def everything(self, route):
        self.mkfs("640M")
        self.start_daemon(f"route={route}", "dedup=on", "queues=4", "cache=8M", "dedup_mem=4M", "commit=1", "discard")
        load = Load(self.mnt)
        for job in range(2):
            load.start(load.fio, job)
            load.start(load.names, job)
            load.start(load.fsyncs, job)
            load.start(load.holes, job)
            load.start(load.shared_file, job)
        for work in (load.tree, load.mapped, load.control, load.labels, load.scrub):
            load.start(work)
        load.join()
        print(f"{route}:", ", ".join(f"{k} {v}" for k, v in sorted(load.rounds.items())))
        # What is open without a name, and what is dirty, is left to the unmount.
        orphan = [open(self.path(f"orphan{i}"), "wb") for i in range(8)]
        for f in orphan:
            f.write(b"gone" * 50000)
            os.unlink(f.name)
        for f in orphan:
            f.close()
        run(harness.UMOUNT, self.mnt, timeout=300)
        self.check_daemon()
        self.assertEqual(load.failures, [])
        self.fsck()

    def test_native(self):
        self.everything("native")

    def test_scsi(self):
        self.everything("scsi")


def main():
    global kind
    if len(sys.argv) < 2 or sys.argv[1] not in KINDS:
        print(__doc__)
        sys.exit(2)
    kind = sys.argv.pop(1)
    for program in ("fio", "meson", "ninja", "fallocate"):
        if not shutil.which(program):
            print(f"SKIP: {program} is not installed")
            sys.exit(77)
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        print("SKIP: needs root and /dev/fuse")
        sys.exit(77)
    if "NVEFS_SANITIZE_ALONE" not in os.environ and shutil.which("unshare"):
        # Whoever copies a mount into a namespace of their own would keep the daemon from ending.
        os.environ["NVEFS_SANITIZE_ALONE"] = "1"
        os.execvp("unshare", ["unshare", "-m", "--propagation", "private", sys.executable, __file__, kind])
    out, reason = build()
    if reason:
        print(f"SKIP: {reason}")
        sys.exit(77)
    harness.use_build(out)
    for name, value in OPTIONS.items():
        os.environ[name] = value
    harness.main()


if __name__ == "__main__":
    main()
