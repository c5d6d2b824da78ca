#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The guest boots, and has the devices that the other tests want, with the properties that they were given."""
import os
import stat
import unittest

from guest import Disk, Machine, Nvme, Qmp, main, node

MACHINE = Machine(nvme=[Nvme(Disk("64M"), Disk("64M", lba=4096), mdts=5)], scsi=[Disk("64M")])


def attribute(path):
    with open(path, encoding="utf-8") as f:
        return f.read().strip()


class Boot(unittest.TestCase):
    def test_nodes(self):
        for name, is_kind in (("ng0-1", stat.S_ISCHR), ("ng0-2", stat.S_ISCHR), ("nvme0-1", stat.S_ISBLK),
                              ("nvme0-2", stat.S_ISBLK), ("sg0", stat.S_ISCHR), ("sd0", stat.S_ISBLK)):
            self.assertTrue(is_kind(os.stat("/dev/test/" + name).st_mode), name)
        for number in ("1", "2"):
            block = os.path.basename(node("/dev/test/nvme0-" + number))
            self.assertEqual(node("/dev/test/ng0-" + number), "/dev/" + block.replace("nvme", "ng"))
            self.assertEqual(attribute(f"/sys/class/block/{block}/nsid"), number)

    def test_limits(self):
        queue = f"/sys/block/{os.path.basename(node('/dev/test/nvme0-2'))}/queue"
        self.assertEqual(attribute(queue + "/logical_block_size"), "4096")
        self.assertEqual(attribute(queue + "/max_hw_sectors_kb"), "128")
        self.assertEqual(len(os.listdir(f"/sys/block/{os.path.basename(node('/dev/test/nvme0-1'))}/mq")), 2)

    def test_monitor(self):
        qmp = Qmp()
        names = {n["node-name"] for n in qmp.call("query-named-block-nodes")}
        qmp.close()
        self.assertLessEqual({"nvme0-1", "nvme0-2", "scsi0"}, names)


if __name__ == "__main__":
    main(MACHINE)
