#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The file system on a drive of your own, named by NVEFS_TEST_DRIVE: /dev/ng0n1, /dev/nvme0n1, /dev/sg0, /dev/sda.

Everything on the drive is lost. One that holds anything is refused, unless that is what an earlier run of this
test left there.
"""
import os
import shutil
import sys

from drives import TOP, DriveCase, Way, tree_digest
from harness import MKFS, run, run_tests, why_not

DRIVE = os.environ.get("NVEFS_TEST_DRIVE", "")
LABEL = "nvefs-test"
SIZE = os.environ.get("NVEFS_TEST_DRIVE_SIZE", "256M")  # of each file that fio writes
TREE = os.path.join(TOP, "src", "device")


def block_node(path):
    """The block node of the drive, which the kernel reads for us."""
    name = os.path.basename(os.path.realpath(path))
    if name.startswith("ng"):
        return "/dev/nvme" + name[2:]
    if name.startswith("sg"):
        return "/dev/" + os.listdir(f"/sys/class/scsi_generic/{name}/device/block")[0]
    return os.path.realpath(path)


def holds():
    """What is on the drive, or None when there is nothing, or only what we left."""
    said = run(MKFS, "-n", DRIVE, check=False)
    if said.returncode:
        return None if f"nvefs labelled '{LABEL}'" in said.stderr else said.stderr.strip()
    with open(block_node(DRIVE), "rb") as f:
        if any(f.read(16 << 20)):
            return f"{DRIVE}: its first 16 MiB are not all zeros: it holds data (blkdiscard or dd make it empty)"
    return None


def ways():
    if os.path.basename(os.path.realpath(DRIVE)).startswith(("ng", "nvme")):
        return [Way("io_uring or what there is", DRIVE), Way("ioctl", DRIVE + ",passthrough=ioctl"),
                Way("scsi route", DRIVE, route="scsi")]
    return [Way("SG_IO", DRIVE)]


class OwnDrive(DriveCase):
    def test_every_way(self):
        want = tree_digest(TREE)
        for way in ways():
            with self.subTest(way.name):
                self.make(way, "-L", LABEL)
                self.mount_way(way)
                print(self.ctl("info"))
                shutil.copytree(TREE, self.path("tree"), symlinks=True)
                self.fio("--direct=1", jobs=2, size=SIZE)
                self.umount()
                self.check(way)
                for other in ways():
                    self.mount_way(other, "ro")
                    self.assertEqual(tree_digest(self.path("tree")), want, other.name)
                    self.umount()

    def test_in_use(self):
        self.make(ways()[0], "-L", LABEL)
        self.mount_way(ways()[0])
        for way in ways() + [Way("block node", block_node(DRIVE))]:
            said = run(MKFS, "-f", way.target, check=False)
            self.assertIn("in use", said.stderr, way.name)
        self.umount()


if __name__ == "__main__":
    reason = why_not() or (None if DRIVE else "NVEFS_TEST_DRIVE names no drive")
    if reason:
        print(f"SKIP: {reason}")
        sys.exit(77)
    reason = holds()
    if reason:
        sys.exit(f"test_own_drive.py: refused: {reason}")
    run_tests()
