#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Drives that fail, are reset and go away, with a file system at work on them."""
import errno
import json
import os
import subprocess
import time

from guest import Disk, Machine, Nvme, main, node
from drives import DriveCase, Injected, Way, controller_node, sample
from harness import BUILD, FSCK, MKFS, NVEFS, run

MACHINE = Machine(nvme=[Nvme(Disk("128M"), Disk("128M", lba=4096)), Nvme(Disk("128M"), subsystem=True)],
                  scsi=[Disk("128M"), Disk("128M", lba=4096)],
                  modprobe=["scsi_debug dev_size_mb=96 lbpu=1"], more_scsi=1,
                  append="nvme_core.io_timeout=5", limit=1500)

NVME, SCSI = Way("NVMe", "/dev/test/ng0-1", disk="nvme0-1"), Way("SCSI by sg", "/dev/test/sg0,sg_io=sg", disk="scsi0")
IOCTL = Way("NVMe by ioctl", "/dev/test/nvme0-1,passthrough=ioctl", disk="nvme0-1")
ROUTE = Way("NVMe by the scsi route", "/dev/test/ng0-1", route="scsi", disk="nvme0-1")
NVME4K = Way("NVMe, LBA 4096", "/dev/test/ng0-2", disk="nvme0-2")
SD = Way("SCSI by sd", "/dev/test/sd0", disk="scsi0")
SCSI4K = Way("SCSI by sg, LBA 4096", "/dev/test/sg1,sg_io=sg", disk="scsi1")
HEAD = Way("NVMe with several paths", "/dev/test/ng1-1")
DEBUG = Way("scsi_debug", "/dev/test/sgdebug0,sg_io=sg")


def pci_address(controller):
    return os.path.basename(os.path.realpath(f"/sys/class/nvme/{controller}/device"))


def controller_of(way):
    return os.path.basename(controller_node(way.device))


class Removal:
    """What is written where to take a drive away, and to have it back."""

    def __init__(self, takes_away, brings_back, word):
        self.takes_away, self.brings_back, self.word = takes_away, brings_back, word


def removal(way):
    if way.disk.startswith("nvme"):
        return Removal(f"/sys/bus/pci/devices/{pci_address(controller_of(way))}/remove", "/sys/bus/pci/rescan", "1")
    name = os.path.basename(node(way.device))
    kind = "scsi_generic" if name.startswith("sg") else "block"
    device = os.path.realpath(f"/sys/class/{kind}/{name}/device")
    host, bus, target, lun = os.path.basename(device).split(":")
    return Removal(device + "/delete", f"/sys/class/scsi_host/host{host}/scan", f"{bus} {target} {lun}")


def put(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


class FaultCase(DriveCase):
    def prepare(self, way):
        self.make(way)
        self.mount_way(way, "commit=300")
        self.data = os.urandom(300000)
        self.put("old", self.data)
        run("sync", self.path("old"))  # fsync; sync(2) and syncfs(2) do not reach a FUSE daemon

    def intact(self, way):
        """After the trouble: it mounts, what was durable is there, fsck finds nothing."""
        self.mount_way(way)
        self.assertEqual(self.get("old"), self.data)
        self.put("new", b"n" * 5000)
        self.umount()
        r = run(FSCK, "-n", "-f", way.target, check=False)
        self.assertEqual(r.returncode, 0, r.stdout + r.stderr)

    def assert_eio(self, what, *args):
        """Not another error, and no success."""
        with self.assertRaises(OSError) as caught:
            what(*args)
        self.assertEqual(caught.exception.errno, errno.EIO)

    def put_durably(self, name):
        fd = os.open(self.path(name), os.O_WRONLY | os.O_CREAT)
        try:
            os.write(fd, b"x" * 20000)
            os.fsync(fd)
        finally:
            os.close(fd)

    def commit(self):
        """A change that is of metadata alone."""
        os.mkdir(self.path("late"))
        fd = os.open(self.path("late"), os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


class Faults(FaultCase):
    def test_read_error(self):
        for way in sample((NVME,), (SCSI, IOCTL, ROUTE, NVME4K, SD, SCSI4K)):
            with self.subTest(way.name):
                self.prepare(way)
                self.umount()
                self.mount_way(way)
                os.listdir(self.mnt)
                with Injected(way.disk, "read"):
                    self.assert_eio(self.get, "old")
                self.assertEqual(self.get("old"), self.data)
                self.assertGreater(self.stats()["device"]["errors"], 0)
                self.umount()
                self.intact(way)

    def test_write_and_flush_errors(self):
        """Neither is ever reported as done; afterwards the mount is read-only and says why."""
        always = [(NVME, "write"), (SCSI, "flush")]
        others = [(way, iotype) for way in (IOCTL, ROUTE, NVME4K, SD, SCSI4K) for iotype in ("write", "flush")]
        others += [(NVME, "flush"), (SCSI, "write")]
        for way, iotype in sample(always, others):
            with self.subTest(way.name, iotype=iotype):
                self.prepare(way)
                with Injected(way.disk, iotype):
                    self.assert_eio(self.put_durably, "new")
                    if iotype == "write":
                        self.assert_eio(self.commit)
                st = self.stats()
                self.assertTrue(st["read_only"])
                self.assertTrue(st["stopped_by"])
                self.assertEqual(self.get("old"), self.data)
                self.umount(check=False)
                self.intact(way)

    def load(self):
        """fio with verification in the background."""
        return subprocess.Popen(
            ["fio", "--name=load", f"--directory={self.mnt}", "--rw=randrw", "--bs=16k", "--size=4M", "--fsync=8",
             "--ioengine=psync", "--verify=crc32c", "--verify_fatal=1", "--time_based", "--runtime=6"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.dir)

    def test_controller_reset(self):
        """Commands wait or are tried again: nobody notices."""
        for way in sample((), (NVME, HEAD, IOCTL, ROUTE, NVME4K)):
            with self.subTest(way.name):
                self.prepare(way)
                fio = self.load()
                for _ in range(3):
                    time.sleep(1.5)
                    put(f"/sys/class/nvme/{controller_of(way)}/reset_controller", "1")
                said = fio.communicate(timeout=120)[0]
                self.assertEqual(fio.returncode, 0, said)
                self.assertFalse(self.stats()["read_only"])
                self.umount()
                self.intact(way)

    def test_unit_reset(self):
        """The same for a SCSI disk: what a reset leaves to be told, and what it threw out, is tried again."""
        for way in sample((), (SCSI, SD, SCSI4K)):
            with self.subTest(way.name):
                self.prepare(way)
                fio = self.load()
                for _ in range(3):
                    time.sleep(1.5)
                    run("sg_reset", "--device", node(way.device))
                said = fio.communicate(timeout=120)[0]
                self.assertEqual(fio.returncode, 0, said)
                self.assertFalse(self.stats()["read_only"])
                self.umount()
                self.intact(way)

    def test_removal(self):
        """The drive goes: errors, no hang, an end in bounded time; it comes back and is whole."""
        for way in sample((), (NVME, IOCTL, ROUTE, NVME4K, SCSI, SD, SCSI4K)):
            with self.subTest(way.name):
                self.prepare(way)
                comes_back = removal(way)
                fio = self.load()
                time.sleep(2)
                put(comes_back.takes_away, "1")
                said = fio.communicate(timeout=120)[0]
                self.assertNotEqual(fio.returncode, 0, said)
                self.assertRaises(OSError, self.commit)
                self.assertTrue(self.stats()["read_only"])
                begun = time.monotonic()
                self.umount(check=False)
                self.assertLess(time.monotonic() - begun, 30)
                self.assertFalse(self.is_mounted())
                put(comes_back.brings_back, comes_back.word)
                self.wait_until("the drive is back", lambda way=way: os.path.exists(way.device), 20)
                self.intact(way)


class Debug(FaultCase):
    """The kernel's scsi_debug: errors that a SCSI disk itself reports."""

    PARAMETERS = "/sys/bus/pseudo/drivers/scsi_debug/"

    def first_lba(self, name):
        """Where the file's first block lies."""
        dumped = json.loads(run(os.path.join(BUILD, "src/ctl/dump.nvefs"), "--json", DEBUG.target, "inode",
                                "/" + name).stdout)
        return next(item["extents"][0]["pblk"] for item in dumped if item["kind"] == "map") * 8

    def test_medium_error(self):
        """One block cannot be read; only the file that it belongs to is hurt, and only there."""
        self.prepare(DEBUG)
        data = {f"f{i}": os.urandom(100000) for i in range(6)}
        for name, content in data.items():
            self.put(name, content)
        self.umount()
        put("/sys/module/scsi_debug/parameters/medium_error_start", str(self.first_lba("f3") + 8))
        put("/sys/module/scsi_debug/parameters/medium_error_count", "8")
        put(self.PARAMETERS + "opts", "2")
        try:
            self.mount_way(DEBUG)
            for name, content in data.items():
                if name != "f3":
                    self.assertEqual(self.get(name), content)
            with open(self.path("f3"), "rb", buffering=0) as f:
                self.assertEqual(os.pread(f.fileno(), 4096, 0), data["f3"][:4096])
                self.assert_eio(os.pread, f.fileno(), 4096, 4096)
                self.assertEqual(os.pread(f.fileno(), 4096, 8192), data["f3"][8192:12288])
        finally:
            put(self.PARAMETERS + "opts", "0")
        self.assertEqual(self.get("f3"), data["f3"])
        self.umount()
        self.intact(DEBUG)

    def test_unit_attention(self):
        """What a reset leaves to be told is no error of the command that is told it."""
        self.prepare(DEBUG)
        for i in range(5):
            run("sg_reset", "--device", node(DEBUG.device))
            self.put(f"after{i}", b"a" * 9000)
            run("sync", self.path(f"after{i}"))
        self.assertEqual(self.stats()["device"]["errors"], 0)
        self.umount()
        run("sg_reset", "--device", node(DEBUG.device))
        self.intact(DEBUG)


class Health(FaultCase):
    """scsi_debug has log pages; its TEST bit makes it predict a failure. QEMU's disk has none."""

    def predict(self, on):
        run("sg_wr_mode", "--page=1c", f"--contents=1c,a,{'c' if on else '8'},0,0,0,0,0,0,0,0,0", node(DEBUG.device))

    def told(self):
        info = self.info()
        self.assertIsNone(info["health_error"])
        return info["health"]

    def test_of_a_disk(self):
        self.make(DEBUG)
        self.mount_way(DEBUG)
        self.addCleanup(self.predict, False)
        self.assertEqual(self.told(), {"critical_warning": [], "informational_exception": "none",
                                       "temperature_celsius": 38})
        self.predict(True)
        self.assertEqual(self.told(), {"critical_warning": ["failing"], "informational_exception": "5Dh/FFh",
                                       "temperature_celsius": 38})
        self.assertIn("informational exception  5Dh/FFh", self.ctl("info"))
        self.umount()
        warns = "failure is predicted (ASC 5Dh, ASCQ FFh)"
        for args in (("-n", "-f"), ("-q", "-f")):
            self.assertIn(warns, run(MKFS, *args, DEBUG.target).stderr)
        with subprocess.Popen([NVEFS, "-f", DEBUG.target, self.mnt], stderr=subprocess.PIPE, text=True) as p:
            self.wait_until("the mount", self.is_mounted)
            self.umount()
            self.assertIn(warns, p.communicate(timeout=60)[1])

    def test_of_one_that_says_nothing(self):
        self.assertNotIn("warning", self.make(SCSI).stderr)
        self.mount_way(SCSI)
        info = self.info()
        self.assertIsNone(info["health"])
        self.assertIn("no log pages", info["health_error"])
        self.umount()


if __name__ == "__main__":
    main(MACHINE)
