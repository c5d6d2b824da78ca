#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The file system on the kernel's NVMe and SCSI drivers, by every way to them, and across ways."""
import json
import os
import shutil
import struct
import subprocess
import sys
import unittest

from guest import HERE, Disk, Machine, Nvme, main, node
from drives import TOP, DriveCase, Way, interrupts, tree_digest
from harness import CTL, FSCK, MKFS, NVEFS, run
from test_same import Same  # pylint: disable=unused-import  # run with the others, in one guest

MACHINE = Machine(
    nvme=[Nvme(Disk("128M", eui64=0x1122334455667788), Disk("128M", lba=4096, eui64=0x1122334455667799), mdts=5),
          Nvme(Disk("128M", ms=8), Disk("128M", zoned="on", **{"zoned.zone_size": "16M"})),
          Nvme(Disk("128M", lba=4096), mdts=1, queues=1)],
    scsi=[Disk("128M"), Disk("128M", lba=4096)], limit=900)

NG, BLOCK, NG4K, SMALL = "/dev/test/ng0-1", "/dev/test/nvme0-1", "/dev/test/ng0-2", "/dev/test/ng2-1"
WAYS = [
    Way("ng by io_uring", NG, device="nvme"),
    Way("block node by ioctl", BLOCK + ",passthrough=ioctl", device="nvme"),
    Way("NVMe by the scsi route", BLOCK, route="scsi", device="nvme"),
    Way("ng, LBA 4096, 8 KiB a command, one queue", SMALL, device="small"),
    Way("sg by SG_IO", "/dev/test/sg0,sg_io=sg", device="scsi"),
    Way("sd by SG_IO", "/dev/test/sd0", device="scsi"),
    Way("sg, LBA 4096", "/dev/test/sg1,sg_io=sg", device="scsi4k"),
]
TREE = os.path.join(TOP, "src", "nvme")


class Ways(DriveCase):
    def work(self, way):
        self.make(way)
        self.mount_way(way)
        shutil.copytree(TREE, self.path("tree"), symlinks=True)
        self.fio()
        self.big = os.urandom(3 << 20)
        self.put("big", self.big)
        os.unlink(self.path("verify.0.0"))
        run("sync", self.path("big"))
        run(CTL, "trim", self.mnt)
        self.assertGreater(self.stats()["device"]["commands"]["discard"], 0)
        run(CTL, "scrub", self.mnt)
        st = self.stats()
        self.assertEqual((st["device"]["errors"], st["errors"]["checksum"]), (0, 0))
        self.umount()
        self.check(way)

    def test_all(self):
        """mkfs, mount, copy, fio verify, unmount, fsck; then what was written is read by every other way."""
        want = tree_digest(TREE)
        for way in WAYS:
            with self.subTest(way.name):
                self.work(way)
                for other in [w for w in WAYS if w.device == way.device]:
                    self.mount_way(other, "ro")
                    self.assertEqual(tree_digest(self.path("tree")), want, other.name)
                    self.assertEqual(self.get("big"), self.big, other.name)
                    self.umount()

    def test_without_disk_driver(self):
        """A unit that sd does not have goes by its sg node, and is locked by it."""
        sg = "/dev/test/sg1"
        device = os.path.realpath(f"/sys/class/scsi_generic/{os.path.basename(node(sg))}/device")

        def driver(action):
            with open(f"/sys/bus/scsi/drivers/sd/{action}", "w", encoding="utf-8") as f:
                f.write(os.path.basename(device))
        driver("unbind")
        try:
            self.assertIn("SG_IO on " + node(sg), run(MKFS, "-n", "-f", sg).stdout)
            r = run(MKFS, "-n", "-f", sg + ",sg_io=sd", check=False)
            self.assertEqual(r.returncode, 1)
            self.assertIn("the kernel's disk driver does not have it", r.stderr)
            self.work(Way("SG_IO on sg", sg))
            self.mount(target=sg)
            r = run(MKFS, "-f", sg, check=False)
            self.assertEqual(r.returncode, 1)
            self.assertIn("in use", r.stderr)
            self.umount()
        finally:
            driver("bind")
        self.wait_until("sd to have it again", lambda: os.path.exists(device + "/block"))
        self.mount("ro", target=sg)
        self.assertEqual(self.get("big"), self.big)
        self.umount()


class Told(DriveCase):
    """What is used is told, before and while."""

    def test_mkfs_dry_run(self):
        said = run(MKFS, "-n", "-f", NG).stdout
        self.assertIn(f"io_uring on {node(NG)}", said)
        self.assertIn("LBA 512", said)
        self.assertIn("transfer 128 KiB", said)
        said = run(MKFS, "-n", "-f", SMALL).stdout
        for word in ("LBA 4096", "transfer 8 KiB", "hardware queues 1,"):
            self.assertIn(word, said)
        for name in ("/dev/test/sg0", "/dev/test/sd0"):
            self.assertIn("SG_IO on " + node("/dev/test/sd0"), run(MKFS, "-n", "-f", name).stdout)
            self.assertIn("SG_IO on " + node("/dev/test/sd0"), run(MKFS, "-n", "-f", name + ",sg_io=sd").stdout)
            self.assertIn("SG_IO on " + node("/dev/test/sg0"), run(MKFS, "-n", "-f", name + ",sg_io=sg").stdout)
        self.assertIn("LBA 4096", run(MKFS, "-n", "-f", "/dev/test/sd1").stdout)

    def test_info(self):
        for way, word in ((WAYS[0], "io_uring on"), (WAYS[1], "ioctl on"), (WAYS[2], "scsi route"),
                          (WAYS[5], "SG_IO on")):
            self.make(way)
            self.mount_way(way)
            said = run(CTL, "info", self.mnt).stdout
            self.umount()
            self.assertIn(word, said)

    def nvme_cli(self, command, node_name):
        return json.loads(run("nvme", command, node_name, "-o", "json").stdout)

    def test_info_is_nvme_cli_s(self):
        """What is told of a namespace is what nvme-cli reads of it."""
        for way in (WAYS[0], WAYS[3]):
            self.make(way)
            self.mount_way(way)
            before = self.nvme_cli("smart-log", node(way.target))
            told = self.info()
            after = self.nvme_cli("smart-log", node(way.target))
            ns, ctrl = (self.nvme_cli(c, node(way.target)) for c in ("id-ns", "id-ctrl"))
            self.umount()
            drive, health = told["drive"]["nvme"], told["health"]
            lba = 1 << ns["lbafs"][ns["flbas"] & 15]["ds"]
            block = os.path.basename(node(way.target)).replace("ng", "nvme")
            queues = len(os.listdir(f"/sys/block/{block}/mq"))
            for key, value in (("model", ctrl["mn"].strip()), ("serial", ctrl["sn"].strip()), ("lba_bytes", lba),
                               ("firmware", ctrl["fr"].strip()), ("controller_id", ctrl["cntlid"]),
                               ("size_bytes", ns["nsze"] * lba), ("used_bytes", ns["nuse"] * lba),
                               ("mdts_bytes", 4096 << ctrl["mdts"]), ("npwg_bytes", (ns["npwg"] + 1) * lba),
                               ("npdg_bytes", (ns["npdg"] + 1) * lba), ("nows_bytes", (ns["nows"] + 1) * lba),
                               ("awupf_bytes", (ctrl["awupf"] + 1) * lba), ("transfer_bytes", 4096 << ctrl["mdts"]),
                               ("lba_format", ns["flbas"] & 15), ("lba_formats", ns["nlbaf"] + 1),
                               ("volatile_write_cache", "on"), ("shared", bool(ns["nmic"] & 1)), ("hw_queues", queues)):
                self.assertEqual(drive[key], value, (way.name, key))
            self.assertEqual(drive["nguid"].strip("0"), ns["nguid"].strip("0"))
            self.assertEqual(health["temperature_celsius"], before["temperature"] - 273)
            self.assertEqual(health["spare_percent"], before["avail_spare"])
            for key, name, unit in (("read_bytes", "data_units_read", 512000), ("media_errors", "media_errors", 1),
                                    ("written_bytes", "data_units_written", 512000),
                                    ("read_commands", "host_read_commands", 1), ("power_cycles", "power_cycles", 1),
                                    ("unsafe_shutdowns", "unsafe_shutdowns", 1)):
                self.assertLessEqual(int(before[name]) * unit, health[key], key)
                self.assertLessEqual(health[key], int(after[name]) * unit, key)

    def test_without_ng_node(self):
        """The block node goes by ioctl when its ng node is missing, and says so."""
        real = node(NG4K)
        os.rename(real, real + ".away")
        try:
            said = run(MKFS, "-n", "-f", "/dev/test/nvme0-2").stdout
        finally:
            os.rename(real + ".away", real)
        self.assertIn("ioctl on " + node("/dev/test/nvme0-2"), said)
        self.assertIn("no ng node", said)


class Refused(DriveCase):
    """One message that says why, and nothing is changed."""

    def refused(self, target, *words, program=(MKFS, "-f")):
        r = run(*program, target, check=False)
        self.assertNotEqual(r.returncode, 0, target)
        for word in words:
            self.assertIn(word, r.stderr)
        self.assertEqual(len(r.stderr.strip().splitlines()), 1, r.stderr)

    def test_formats(self):
        self.refused("/dev/test/ng1-1", "metadata")
        self.refused("/dev/test/ng1-2", "zoned")

    def test_controller(self):
        self.refused(os.path.dirname(node(NG)) + "/" + os.path.basename(node(NG)).replace("ng", "nvme").split("n1")[0],
                     "controller")

    def test_options(self):
        self.refused(NG + ",passthrough=magic", "passthrough=auto|uring|ioctl")
        self.refused("/dev/test/sg0,passthrough=uring", "unknown option")

    def test_partition(self):
        disk = node("/dev/test/nvme0-2")
        subprocess.run(["sfdisk", "-q", disk], input="label: gpt\nsize=32M\n", text=True, check=True)
        self.assertTrue(os.path.exists(disk + "p1"))
        self.refused(disk + "p1", "partition", disk)
        self.refused(NG4K, "gpt", program=(MKFS,))
        run(MKFS, "-q", "-f", NG4K)
        self.assertEqual(run("blkid", "-p", "-o", "value", "-s", "PTTYPE", disk, check=False).stdout, "")
        self.assertFalse(os.path.exists(disk + "p1"), "the old partitions are still there")

    def test_other_file_system(self):
        run("mkfs.ext4", "-q", "-F", node("/dev/test/sd0"))
        for target in ("/dev/test/sg0", "/dev/test/sd0"):
            self.refused(target, "ext4", program=(MKFS,))


class Probed(DriveCase):
    """What udev looks at when a drive appears or is let go of sees no file system, no partitions, and changes nothing."""

    def sees_nothing(self, disk):
        r = run("blkid", "-p", disk, check=False)
        self.assertEqual((r.returncode, r.stdout), (2, ""), r.stderr)  # 2: nothing that it knows
        self.assertEqual(run("wipefs", disk).stdout, "")

    @staticmethod
    def old_signatures(disk):
        """A partition table, and what lies where our own blocks do not: at 32 KiB, and 64 KiB before the end."""
        subprocess.run(["sfdisk", "-q", "--wipe", "always", disk], input="label: gpt\nsize=32M\n", text=True, check=True)
        with open(disk, "r+b") as f:
            f.seek(32 << 10)
            f.write(b"\x01CD001\x01")  # ISO 9660
            f.seek((128 << 20) - (64 << 10))  # a RAID member of the old kind
            f.write(struct.pack("<8I", 0xa92b4efc, 0, 90, 0, 12, 0x11223344, 1700000000, 1))
            f.flush()
            os.fsync(f.fileno())

    def test_after_mkfs(self):
        for target, disk in ((NG, node(BLOCK)), (NG4K, node("/dev/test/nvme0-2")), ("/dev/test/sg0", node("/dev/test/sd0"))):
            self.old_signatures(disk)
            for found in ("gpt", "iso9660", "linux_raid_member"):
                self.assertIn(found, run("wipefs", disk).stdout)
            run(MKFS, "-q", "-f", target)
            self.sees_nothing(disk)
            run("blockdev", "--rereadpt", disk)
            with open("/proc/partitions", encoding="utf-8") as f:
                of_disk = [line.split()[3] for line in f if os.path.basename(disk) in line]
            self.assertEqual(of_disk, [os.path.basename(disk)])
            self.mount(target=target)
            self.put("file", b"f" * 300000)
            self.sees_nothing(disk)  # while it is mounted, and has written
            self.assertNotEqual(run("wipefs", "-a", disk, check=False).returncode, 0, "wipefs took a mounted drive")
            self.assertNotEqual(run("blockdev", "--rereadpt", disk, check=False).returncode, 0)
            self.umount()
            self.sees_nothing(disk)
            run(FSCK, "-n", "-f", target)


class Exclusive(DriveCase):
    """By whichever name: a mounted or held drive is in use, for ours and for others."""

    def in_use(self, target, program=(MKFS, "-f")):
        r = run(*program, target, check=False)
        self.assertNotEqual(r.returncode, 0, target)
        self.assertIn("in use", r.stderr)

    def test_mounted(self):
        for target, names in ((NG, (NG, BLOCK, node(NG), node(BLOCK))), ("/dev/test/sg0", ("/dev/test/sg0",
                                                                                        "/dev/test/sd0"))):
            run(MKFS, "-q", "-f", target)
            self.mount(target=target)
            for name in names:
                self.in_use(name)
            other = os.path.join(self.dir, "other")
            os.makedirs(other, exist_ok=True)
            r = run(NVEFS, names[-1], other, check=False)
            self.assertIn("in use", r.stderr)
            disk = node(names[-1] if names[-1].startswith("/dev/test/sd") else BLOCK)
            r = run("mkfs.ext4", "-q", "-F", disk, check=False)
            self.assertNotEqual(r.returncode, 0, "mkfs.ext4 took a mounted drive")
            self.umount()
            run(MKFS, "-n", "-f", target)

    def test_held_by_another(self):
        disk = node(BLOCK)
        run("mkfs.ext4", "-q", "-F", disk)
        where = os.path.join(self.dir, "ext4")
        os.mkdir(where)
        run("mount", disk, where)
        try:
            self.in_use(NG)
            self.in_use(BLOCK)
        finally:
            run("umount", where)
        run(MKFS, "-q", "-f", NG)

    def test_page_cache(self):
        """What the block node's cache holds is neither lost nor taken for what is on the drive."""
        disk = node(BLOCK)
        with open(disk, "r+b", buffering=0) as f:
            f.write(b"\xee" * 4096)  # in the cache only
            f.seek(0)
            run(MKFS, "-q", "-f", NG)
            self.assertNotEqual(f.read(4096), b"\xee" * 4096)


class Counted(DriveCase):
    """What the drivers and the drives count."""

    def test_every_hardware_queue(self):
        way = WAYS[0]
        self.make(way)
        controller = os.path.basename(node(NG)).replace("ng", "nvme").split("n1")[0]
        self.mount_way(way)
        before = interrupts(controller + r"q[1-9]\d*")
        self.fio("--direct=1", jobs=2)
        after = interrupts(controller + r"q[1-9]\d*")
        self.umount()
        self.assertEqual(len(before), 2)
        for queue, count in after.items():
            self.assertGreater(count - before[queue], 50, f"{queue}: {before} -> {after}")


class OwnDrive(DriveCase):
    """The test for people with a drive of their own refuses one that holds data, and works."""

    def own(self, drive, *tests):
        env = dict(os.environ, NVEFS_TEST_DRIVE=drive, NVEFS_TEST_DRIVE_SIZE="1M")
        return run(sys.executable, os.path.join(HERE, "test_own_drive.py"), *tests, env=env, check=False, timeout=400)

    def test_own_drive(self):
        disk = node("/dev/test/sd0")
        run("mkfs.ext4", "-q", "-F", disk)
        said = self.own("/dev/test/sg0")
        self.assertNotEqual(said.returncode, 0)
        self.assertIn("ext4", said.stderr)
        run("dd", "if=/dev/zero", f"of={disk}", "bs=1M", "count=128", "conv=fsync")
        with open(disk, "r+b") as f:
            f.seek(5 << 20)
            f.write(b"somebody's")
        said = self.own("/dev/test/sg0")
        self.assertIn("holds data", said.stderr)
        run("dd", "if=/dev/zero", f"of={disk}", "bs=1M", "count=16", "conv=fsync")
        for tests in ((), ("OwnDrive.test_in_use",)):  # the second time it finds what the first has left
            said = self.own("/dev/test/sg0", *tests)
            self.assertEqual(said.returncode, 0, said.stdout + said.stderr)


if __name__ == "__main__":
    main(MACHINE)
