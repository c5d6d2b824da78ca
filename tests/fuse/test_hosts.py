#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Multiple mount protection as its users meet it: messages, exit codes, options.

A file is locked on its host, so the other host is a thread that changes the beat's block in the file, below
all locks. tests/unit/test_mmp.c has two real ones.
"""
import errno
import json
import mmap
import os
import signal
import socket
import subprocess
import threading
import time

from harness import CTL, DUMP, FSCK, MKFS, NVEFS, TIMEOUT, TUNE, Case, has_ended, main, next_line, run, started

BLOCK, CLAIM, BEAT = 4096, 8, 12
INTERVAL = 0.1
WATCH = 10 * INTERVAL


class OtherHost(threading.Thread):
    """Beats, as far as anybody can tell who looks at the block."""

    def __init__(self, image):
        super().__init__(daemon=True)
        # Past the kernel's cache, as a host would; a buffered write beside direct ones makes flushes fail.
        try:
            self.fd = os.open(image, os.O_RDWR | os.O_DIRECT)
        except OSError:
            self.fd = os.open(image, os.O_RDWR)
        self.block, self.end = mmap.mmap(-1, BLOCK), threading.Event()
        self.last, self.late = 0.0, False  # so late that others may take it for gone

    def run(self):
        n = 0
        while not self.end.wait(INTERVAL / 4):
            n += 1
            self.beat_is_due()
            os.preadv(self.fd, [self.block], BEAT * BLOCK)
            self.block[72:80] = n.to_bytes(8, "little")
            os.pwritev(self.fd, [self.block], BEAT * BLOCK)

    def beat_is_due(self):
        now = time.monotonic()
        self.late |= now - self.last > WATCH / 2
        self.last = now

    def __enter__(self):
        self.last = time.monotonic()
        self.start()
        return self

    def __exit__(self, *args):
        self.end.set()
        self.join()
        self.beat_is_due()
        os.close(self.fd)


class Hosts(Case):
    def make(self, *options, interval="100ms"):
        self.mkfs("64M", *options, "-O", "mmp", "-E", f"mmp_update_interval={interval}")

    def kill(self):
        """The daemon dies, and its mount with it."""
        pid = self.pid()
        os.kill(pid, signal.SIGKILL)
        self.wait_until("the daemon to die", lambda: has_ended(pid))
        run("umount", "-i", "-l", self.mnt)

    def refused(self, how, *command, code):
        r = run(*command, check=False)
        self.assertEqual(r.returncode, code, r.stdout + r.stderr)
        self.assertIn(f"in use by host '{socket.gethostname()}'", r.stdout + r.stderr)
        self.assertIn(how, r.stdout + r.stderr)

    def test_clean(self):
        self.make(interval="2")  # a beat is late after ten seconds
        for _ in range(2):
            r = self.mount()
            self.assertEqual(r.stderr, "")
            info = self.info()
            self.assertIs(info["multiple_mount_protection"], True)
            self.assertEqual(info["heartbeat_ms"], 2000)
            self.assertIn("heartbeat every 2000 ms", run(CTL, "info", self.mnt).stdout)
            self.put("f", b"x" * 5000)
            self.assertEqual(self.stats()["errors"]["late_heartbeats"], 0)
            self.umount()
            claim, beat = json.loads(run(DUMP, "--json", self.img, "mmp").stdout)
            self.assertEqual((claim["what"], claim["state"], claim["pblk"]), ("claim", "free", CLAIM))
            self.assertEqual((beat["what"], beat["pblk"], beat["nonce"]), ("beat", BEAT, claim["nonce"]))
            self.assertEqual(claim["host"], socket.gethostname())
            self.assertTrue(claim["target"].endswith("disk.img"))
        for args in (("-n",), ("-p",), ("-y",)):
            self.assertEqual(run(FSCK, *args, self.img).stderr, "")
        self.assertIn("multiple_mount_protection on", run(DUMP, self.img, "super").stdout)

    def test_without(self):
        self.mkfs("64M")
        self.mount()
        self.assertIs(self.info()["multiple_mount_protection"], False)
        self.assertIn("would not be noticed", run(CTL, "info", self.mnt).stdout)
        self.umount()
        self.assertIn("has no multiple mount protection", run(DUMP, self.img, "mmp", check=False).stderr)

    def test_takeover(self):
        self.make()
        self.mount()
        self.put("f", b"y" * 5000)
        run(CTL, "sync", self.mnt)
        self.kill()
        start = time.monotonic()
        r = self.mount()
        self.assertGreaterEqual(time.monotonic() - start, WATCH)
        self.assertIn(f"host '{socket.gethostname()}' had mounted it", r.stderr)
        self.assertIn("waiting up to 1 s", r.stderr)
        self.assertEqual(self.get("f"), b"y" * 5000)
        self.umount()
        # fsck waits as well, and leaves it clean.
        self.mount()
        self.kill()
        r = run(FSCK, "-p", self.img)
        self.assertIn("waiting up to 1 s", r.stderr)
        self.assertNotIn("waiting up to", self.mount().stderr)  # for a host that is gone

    def beside_other_host(self, prepare, work):
        """On a machine that stands still for half a watch the other host is gone, rightly: then once more."""
        for left in range(9, -1, -1):
            prepare()
            other = OtherHost(self.img)
            try:
                with other:
                    work()
                return
            except AssertionError as e:
                if not other.late or not left:
                    raise
                print(f"the other host's beats were late: once more: {e}")
                if self.is_mounted():
                    self.umount(check=False)

    def test_refused(self):
        def prepare():
            self.make("-f", "--mmp=force")
            self.mount()
            self.kill()

        self.beside_other_host(prepare, self.refused_in_all_ways)
        self.assertNotIn("waiting up to", self.mount().stderr)  # for a host that is gone

    def refused_in_all_ways(self):
        for opts in ("rw", "ro"):
            self.refused("-o mmp=force", NVEFS, self.img, self.mnt, "-o", opts, code=32)
        self.refused("--mmp=force", MKFS, "-f", self.img, code=1)
        for args in (("-n",), ("-p",), ("-y", "-f")):
            self.refused("--mmp=force", FSCK, *args, self.img, code=8)
        self.assertEqual(self.mount("ro", "mmp=force").returncode, 0)
        self.umount()
        run(FSCK, "-n", "--mmp=force", self.img)
        # The thread writes no claim, so that it is taken from it.
        self.assertIn("it is taken from there: waiting 1 s", self.mount("mmp=force").stderr)
        self.put("f", b"z")
        self.umount()
        run(FSCK, "-y", "--mmp=force", self.img)
        run(MKFS, "-q", "-f", "--mmp=force", self.img)

    def test_switched_on_and_off(self):
        """By tune.nvefs on what was made without; and not behind the back of a mount, or of another host."""
        def prepare():
            self.mkfs("64M", "-f", "--mmp=force")
            self.switched_on()
            self.kill()

        def work():
            for args in (("-O", "^mmp"), ("-n", "-L", "x")):
                self.refused("--mmp=force", TUNE, *args, self.img, code=1)

        self.beside_other_host(prepare, work)
        self.mount()
        self.umount()
        run(TUNE, "-O", "^mmp", "-U", "random", self.img)
        self.mount()
        info = self.info()
        self.assertEqual((info["heartbeat_ms"], info["read_only"]), (0, False))
        self.umount()
        for slot in json.loads(run(DUMP, "--json", self.img, "super").stdout):
            self.assertEqual(slot["uuid"], info["uuid"])
            self.assertNotEqual(slot["uuid"], slot["mkfs_uuid"])
        self.fsck()

    def switched_on(self):
        self.mount()
        self.put("f", b"1" * 5000)
        r = run(TUNE, "-O", "mmp", self.img, check=False)
        self.assertEqual((r.returncode, r.stdout), (1, ""))
        self.assertIn("in use", r.stderr)
        run(CTL, "sync", self.mnt)
        self.kill()
        r = run(TUNE, "-O", "mmp", self.img, check=False)
        self.assertEqual(r.returncode, 1)
        self.assertIn("mount and unmount it once", r.stderr)
        self.mount()
        self.umount()
        run(TUNE, "-O", "mmp", "-E", "mmp_update_interval=100ms", "-L", "shared", self.img)
        self.fsck()
        self.mount()
        info = self.info()
        self.assertEqual((info["heartbeat_ms"], info["label"], info["read_only"]), (100, "shared", False))
        self.assertEqual(self.get("f"), b"1" * 5000)

    def test_taken_away(self):
        self.make()
        self.mount()
        self.put("f", b"1" * 5000)
        fd = os.open(self.img, os.O_RDWR)
        os.pwrite(fd, bytes(BLOCK), CLAIM * BLOCK)
        os.close(fd)
        self.wait_until("writing to end", lambda: self.stats()["read_only"])
        with self.assertRaises(OSError) as e:
            self.put("g", b"2")
        self.assertEqual(e.exception.errno, errno.EROFS)
        self.assertEqual(self.get("f"), b"1" * 5000)
        self.assertIn("busy", self.stats()["stopped_by"])
        self.assertNotEqual(self.umount(check=False).returncode, 0)
        self.assertIn("damaged", run(DUMP, self.img, "mmp").stdout)

    def test_given_up(self):
        """Whoever waits for the mount goes away: the daemon ends as well, and lets the target go."""
        self.mkfs("64M", "-O", "mmp", "-E", "mmp_update_interval=30")
        self.mount()
        self.kill()
        for sig in (signal.SIGINT, signal.SIGTERM):
            with started(NVEFS, self.img, self.mnt, stderr=subprocess.PIPE, text=True) as p:
                self.assertIn("waiting up to 300 s", next_line(p, p.stderr))
                p.send_signal(sig)
                p.wait(timeout=TIMEOUT)
            self.wait_until("the target to be free", lambda: run(DUMP, self.img, check=False).returncode == 0)
        with started(NVEFS, "-f", self.img, self.mnt, stderr=subprocess.PIPE, text=True) as p:
            self.assertIn("waiting up to 300 s", next_line(p, p.stderr))
            p.send_signal(signal.SIGTERM)
            self.assertIn("given up", p.communicate(timeout=TIMEOUT)[1])
            self.assertEqual(p.returncode, 32)
        with started(FSCK, "-y", self.img, stderr=subprocess.PIPE, text=True) as p:
            self.assertIn("waiting up to 300 s", next_line(p, p.stderr))
            p.send_signal(signal.SIGINT)
            p.communicate(timeout=TIMEOUT)
            self.assertEqual(p.returncode, 32)

    def test_shared_is_told(self):
        """A device that says that others reach it: never silence, and no warning where none is due."""
        word = "more than one host may reach it"
        shared = self.img + ",shared=on"
        self.assertIn(word, self.mkfs("64M", path=shared).stderr)
        self.assertIn(word, run(MKFS, "-n", "-f", shared).stderr)
        self.assertIn(word, self.mount(target=shared).stderr)
        self.assertIn("can reach the device", run(CTL, "info", self.mnt).stdout)
        self.umount()
        self.assertNotIn(word, self.mount().stderr)
        self.umount()
        r = run(MKFS, "-f", "-O", "mmp", "-E", "mmp_update_interval=1", shared)
        self.assertNotIn(word, r.stderr)
        self.assertIn("multiple mount protection", r.stdout)
        self.assertNotIn(word, self.mount(target=shared).stderr)
        self.assertEqual(self.info()["heartbeat_ms"], 1000)

    def test_options(self):
        for args in (("-O", "nothing"), ("-O", "mmp", "-E", "mmp_update_interval=50ms"), ("--mmp=yes",),
                     ("-O", "mmp", "-E", "mmp_update_interval=61"), ("-E", "mmp_update_interval=5"),
                     ("-O", "mmp", "-E", "stride=4"), ("-O", "^mmp,mmp,^mmp", "-E", "mmp_update_interval=5")):
            r = run(MKFS, "-s", "64M", *args, self.img, check=False)
            self.assertEqual(r.returncode, 1, args)
            self.assertTrue(r.stderr.startswith("mkfs.nvefs: -"), r.stderr)
            self.assertFalse(os.path.exists(self.img))
        self.mkfs("64M")
        self.assertEqual(run(FSCK, "--mmp=off", self.img, check=False).returncode, 16)
        r = run(NVEFS, self.img, self.mnt, "-o", "mmp=on", check=False)
        self.assertEqual(r.returncode, 1)
        self.assertIn("use force", r.stderr)


if __name__ == "__main__":
    main()
