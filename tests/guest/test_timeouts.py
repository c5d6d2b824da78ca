#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Commands that are late: the kernel gives them up, and the file system neither hangs nor takes them for done.

For NVMe, QEMU's throttle lies below the namespace and below a second one of another controller: what is written to the
second uses up what the first may write, so its next write waits as long as was asked for. After nvme_core.io_timeout the
kernel aborts it (which QEMU does not do), after twice that it resets the controller, and passthrough says EINTR, once for
each try. For SCSI, scsi_debug ignores commands. Both wait most of the time, so they run side by side.
"""
import errno
import os
import subprocess
import sys
import time

import guest
from guest import Disk, Machine, Nvme, Qmp, node
from drives import DriveCase, Way, sample
from harness import FSCK, run, run_tests

LIMIT = 3  # seconds: nvme_core.io_timeout
# Seconds, of each try: what the reset comes before, and little more, since QEMU stands still until what is late is done.
LATE = 12
SCSI_LIMIT = 30  # seconds that we give a SCSI command
MACHINE = Machine(nvme=[Nvme(Disk("96M")), Nvme(Disk("16M"))], modprobe=["scsi_debug dev_size_mb=96 lbpu=1"], more_scsi=1,
                  append=f"nvme_core.io_timeout={LIMIT}", limit=1200)
NVME = Way("ng by io_uring", "/dev/test/ng0-1", disk="nvme0-1")
IOCTL = Way("block node by ioctl", "/dev/test/nvme0-1,passthrough=ioctl", disk="nvme0-1")
ROUTE = Way("NVMe by the scsi route", "/dev/test/ng0-1", route="scsi", disk="nvme0-1")
DEBUG = Way("sg by SG_IO", "/dev/test/sgdebug0,sg_io=sg")
SCSI_DEBUG = "/sys/bus/pseudo/drivers/scsi_debug/"
IGNORE_MEDIUM_ACCESS = 128


def put(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


class Throttle:
    """For as long as the block lasts writes are late: the first by LATE, and each by what went before, at `rate` bytes a
    second."""

    other = "nvme1-1"
    made = False

    def __init__(self, disk, rate):
        self.disk, self.rate = disk, rate

    def aim(self, prefix):
        qmp = Qmp()
        for disk in (self.disk, self.other):
            qmp.call("qom-set", path=f"/machine/peripheral/{disk}-dev", property="drive", value=prefix + disk)
        qmp.close()

    def __enter__(self):
        qmp = Qmp()
        if not Throttle.made:
            qmp.call("object-add", **{"qom-type": "throttle-group", "id": "late"})
            for disk in (self.disk, self.other):
                qmp.call("blockdev-add", **{"driver": "throttle", "node-name": "late-" + disk,
                                            "throttle-group": "late", "file": disk})
            Throttle.made = True
        qmp.call("qom-set", path="/objects/late", property="limits", value={"bps-write": self.rate})
        qmp.close()
        self.aim("late-")
        run("dd", "if=/dev/zero", f"of={node('/dev/test/' + self.other)}", f"bs={LATE * self.rate // 512 * 512}", "count=1",
            "oflag=direct")

    def __exit__(self, *_):
        self.aim("")


def timeouts():
    """How often the kernel has reset a controller for a time-out."""
    return run("dmesg").stdout.count("timeout, reset controller")


class TimeoutCase(DriveCase):
    def prepare(self, way):
        self.make(way)
        self.mount_way(way, "commit=300")
        self.data = os.urandom(100000)
        self.put("old", self.data)
        self.fsync("old")

    def fsync(self, name):
        fd = os.open(self.path(name), os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def assert_eio(self, what, *args):
        with self.assertRaises(OSError) as caught:
            what(*args)
        self.assertEqual(caught.exception.errno, errno.EIO)

    def intact(self, way, **files):
        self.umount(check=False)
        self.mount_way(way)
        for name, data in {"old": self.data, **files}.items():
            self.assertEqual(self.get(name), data, name)
        self.put("after", b"a" * 5000)
        self.umount()
        r = run(FSCK, "-n", "-f", way.target, check=False)
        self.assertEqual(r.returncode, 0, r.stdout + r.stderr)


class NvmeLate(TimeoutCase):
    """Every call ends within what its tries may take: LATE, and the reset."""

    def within(self, tries, begun):
        self.assertLess(time.monotonic() - begun, tries * (LATE + 15))

    def test_once(self):
        """Given up once, done at the second try: nobody notices."""
        for way in sample((), (NVME, IOCTL, ROUTE)):
            with self.subTest(way.name):
                self.prepare(way)
                before, begun = timeouts(), time.monotonic()
                with Throttle(way.disk, 50000):
                    self.put("new", b"n" * 8192)
                    self.fsync("new")
                self.within(1, begun)
                self.assertGreater(timeouts(), before)
                self.assertFalse(self.stats()["read_only"])
                self.intact(way, new=b"n" * 8192)

    def test_data(self):
        """Late at each try: the write says EIO; it is that file's trouble alone."""
        for way in sample((NVME,), (IOCTL, ROUTE), 0):
            with self.subTest(way.name):
                self.prepare(way)
                before, begun = timeouts(), time.monotonic()
                with Throttle(way.disk, 8192 // LATE):
                    self.assert_eio(self.put, "new", b"n" * 8192)
                    self.within(2, begun)
                    self.assertEqual(self.get("old"), self.data)
                self.assertGreaterEqual(timeouts(), before + 2)
                self.assertFalse(self.stats()["read_only"])
                self.put("other", b"o" * 8192)
                self.fsync("other")
                self.intact(way, other=b"o" * 8192)

    def test_commit(self):
        """The journal is late at each try: fsync says EIO, nothing is written any more, and what was durable is there."""
        for way in sample((), (NVME, IOCTL, ROUTE)):
            with self.subTest(way.name):
                self.prepare(way)
                written = self.stats()["device"]["bytes"]["write"]
                os.mkdir(self.path("first"))
                self.fsync("first")
                written = self.stats()["device"]["bytes"]["write"] - written
                os.mkdir(self.path("second"))
                before, begun = timeouts(), time.monotonic()
                with Throttle(way.disk, written * 2 // (3 * LATE)):
                    self.assert_eio(self.fsync, "second")
                    self.within(2, begun)
                    self.assertEqual(self.get("old"), self.data)
                self.assertGreaterEqual(timeouts(), before + 2)
                st = self.stats()
                self.assertTrue(st["read_only"])
                self.assertTrue(st["stopped_by"])
                with self.assertRaises(OSError) as caught:
                    self.put("more", b"m")
                self.assertEqual(caught.exception.errno, errno.EROFS)
                self.intact(way)


class ScsiLate(TimeoutCase):
    def ignore(self, on):
        put(SCSI_DEBUG + "every_nth", "-1" if on else "0")
        put(SCSI_DEBUG + "opts", str(IGNORE_MEDIUM_ACCESS) if on else "0")

    def data_ignored(self):
        begun = time.monotonic()
        self.ignore(True)
        try:
            self.assert_eio(self.put, "new", b"n" * 8192)
        finally:
            self.ignore(False)
        self.assertGreater(time.monotonic() - begun, SCSI_LIMIT)
        self.assertLess(time.monotonic() - begun, 2 * SCSI_LIMIT + 30)
        self.assertEqual(self.get("old"), self.data)
        self.put("other", b"o" * 8192)
        self.fsync("other")
        self.intact(DEBUG, other=b"o" * 8192)

    def commit_ignored(self):
        os.mkdir(self.path("new"))
        self.ignore(True)
        try:
            self.assert_eio(self.fsync, "new")
        finally:
            self.ignore(False)
        self.assertTrue(self.stats()["read_only"])
        self.intact(DEBUG)

    def test_ignored(self):
        """Ignored at each try: EIO when the time of both is over; afterwards all goes on, or is read-only."""
        for case in sample((self.data_ignored,), (self.commit_ignored,), 0):
            with self.subTest(case.__name__):
                self.prepare(DEBUG)
                case()


def side_by_side():
    """The tests of SCSI in a process of their own."""
    with subprocess.Popen([sys.executable, os.path.realpath(__file__), "ScsiLate"]) as scsi:
        code = subprocess.run([sys.executable, os.path.realpath(__file__), "NvmeLate"], check=False).returncode
        sys.exit(scsi.wait() or code)


if __name__ == "__main__":
    if not guest.inside():
        guest.main(MACHINE)
    elif sys.argv[1:]:
        run_tests()
    else:
        side_by_side()
