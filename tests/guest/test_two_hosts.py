#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Multiple mount protection with two real ways to one namespace: the drive itself, and the kernel's NVMe target in
front of it, over TCP. Each lock of ours is on a device of its own, as on two machines; each host has a name of its own.

A watch takes ten intervals, so that whoever is refused was refused because a heartbeat moved, however slow this is.
"""
import errno
import os
import signal

from guest import Disk, Machine, Nvme, main, node
from drives import SLOW, DriveCase
from harness import CTL, FSCK, MKFS, NVEFS, run
from test_fabrics import Target, connect, remote

MACHINE = Machine(nvme=[Nvme(Disk("96M"), Disk("96M", lba=4096))], modprobe=["configfs", "nvmet-tcp", "nvme-tcp"],
                  limit=400)
INTERVAL_MS = 500
WATCH = f"waiting up to {INTERVAL_MS * 10 // 1000} s"
SHARED = "more than one host may reach it"


class Host:
    """A name, and how it reaches the namespace."""

    def __init__(self, name, target):
        self.name, self.target = name, target

    def run(self, *args, check=True):
        return run("unshare", "--uts", "sh", "-c", 'hostname "$1"; shift; exec "$@"', "sh", self.name, *args, check=check)

    def mount(self, mnt, *opts, check=True):
        return self.run(NVEFS, self.target, mnt, *(["-o", ",".join(opts)] if opts else []), check=check)


class TwoHosts(DriveCase):
    @classmethod
    def setUpClass(cls):
        Target.start()
        connect()

    def setUp(self):
        super().setUp()
        self.wait_until("the namespaces are there", lambda: remote(512) and remote(4096))
        self.near, self.far = Host("near", node("/dev/test/ng0-1")), Host("far", remote(512))
        self.other = os.path.join(self.dir, "other")
        os.mkdir(self.other)

    def make_protected(self, host):
        r = run(MKFS, "-f", "-O", "mmp", "-E", f"mmp_update_interval={INTERVAL_MS}ms", host.target)
        self.assertNotIn(SHARED, r.stdout + r.stderr)

    def put_durably(self, mnt, name, data):
        fd = os.open(os.path.join(mnt, name), os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.write(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)

    def content(self, mnt, name):
        with open(os.path.join(mnt, name), "rb") as f:
            return f.read()

    def kill(self, mnt):
        """The host dies: its daemon at once, and what the kernel still has of the mount."""
        pid = self.pid(mnt)
        os.kill(pid, signal.SIGKILL)
        run("umount", "-i", "-l", mnt)
        self.wait_until("the daemon to be gone", lambda: not os.path.exists(f"/proc/{pid}/exe"))

    def refused(self, host, holder, *command, code, how):
        r = host.run(*command, check=False)
        said = r.stdout + r.stderr
        self.assertEqual(r.returncode, code, said)
        self.assertIn(f"{host.target}: in use by host '{holder.name}', which has mounted it as {holder.target} "
                      "and is alive", said)
        self.assertIn(how, said)

    def one_at_a_time(self, first, second):
        self.make_protected(first)
        self.assertEqual(first.mount(self.mnt).stderr, "")
        self.put_durably(self.mnt, "old", b"o" * 50000)
        for opts in ("rw", "ro"):
            self.refused(second, first, NVEFS, second.target, self.other, "-o", opts, code=32, how="-o mmp=force")
        self.refused(second, first, MKFS, "-f", second.target, code=1, how="--mmp=force")
        self.refused(second, first, FSCK, "-n", second.target, code=8, how="--mmp=force")
        self.put_durably(self.mnt, "new", b"n" * 50000)  # the first one has not noticed anything
        self.assertFalse(self.stats()["read_only"])
        self.kill(self.mnt)
        r = second.mount(self.other)
        self.assertIn(f"host '{first.name}' had mounted it", r.stderr)
        self.assertIn(WATCH, r.stderr)
        self.assertEqual((self.content(self.other, "old"), self.content(self.other, "new")), (b"o" * 50000, b"n" * 50000))
        self.put_durably(self.other, "second", b"s" * 50000)
        self.refused(first, second, NVEFS, first.target, self.mnt, code=32, how="-o mmp=force")
        self.umount(self.other)
        self.assertEqual(first.mount(self.mnt).stderr, "")  # a clean end needs no watch
        self.assertEqual(self.content(self.mnt, "second"), b"s" * 50000)
        self.umount()
        self.assertEqual(run(FSCK, "-n", "-f", second.target).stderr, "")

    def orders(self, turn):
        """(first, second): either way round, or one of them by the run's seed and the test's turn."""
        both = [(self.near, self.far), (self.far, self.near)]
        return both if SLOW else [both[(int(os.environ["NVEFS_TEST_SEED"]) + turn) % 2]]

    def test_one_at_a_time(self):
        for first, second in self.orders(0):
            with self.subTest(first=first.name):
                self.one_at_a_time(first, second)

    def test_taken_by_force(self):
        """The first one is alive, and ends with its next heartbeat; what it had acknowledged is there for the second."""
        for first, second in self.orders(1):
            self.make_protected(first)
            first.mount(self.mnt)
            self.put_durably(self.mnt, "old", b"o" * 50000)
            second.mount(self.other, "mmp=force")
            self.wait_until("the first one to end", lambda: self.stats()["read_only"])
            with self.assertRaises(OSError) as caught:
                self.put_durably(self.mnt, "late", b"l")
            self.assertEqual(caught.exception.errno, errno.EROFS)
            self.assertIn("busy", self.stats()["stopped_by"])
            self.assertEqual(self.content(self.other, "old"), b"o" * 50000)
            self.put_durably(self.other, "new", b"n" * 50000)
            self.umount(check=False)
            self.put_durably(self.other, "newer", b"N" * 50000)  # the end of the first one changed nothing
            self.umount(self.other)
            self.assertEqual(run(FSCK, "-n", "-f", first.target).stderr, "")

    def test_without(self):
        """Nobody would notice: said by mkfs, mount and info where the device says that others reach it."""
        self.assertIn(SHARED, run(MKFS, "-f", self.far.target).stderr)
        self.assertIn(SHARED, self.far.mount(self.mnt).stderr)
        self.assertIn("can reach the device, and would not be noticed", run(CTL, "info", self.mnt).stdout)
        self.umount()


if __name__ == "__main__":
    main(MACHINE)
