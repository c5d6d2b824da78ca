# SPDX-License-Identifier: MIT
"""One namespace asked twice: natively, by nvme-cli and the kernel's driver, and by sg3_utils through our translation of the
same ng node. What both say must agree. test_drives.py runs these.
"""
import json
import os
import re
import shutil
import unittest

from guest import node
from drives import DriveCase, Injected, controller_node
from harness import BUILD, MKFS, run

SHIM = os.path.join(BUILD, "tests/scsi/libnvefs-sg-shim.so")
SHIM_NODE = "/dev/sg-nvefs"
DISKS = {"/dev/test/ng0-1": "nvme0-1", "/dev/test/ng0-2": "nvme0-2"}
STATUS = re.compile(r"\((?:0x)?([0-9a-f]+)\)\s*$", re.M)
# NVMe status (SCT and SC) to sense key and additional sense (SNTL, section 7), as both tools' texts have it.
CLASSES = {
    "beyond the end": (0x080, "Illegal Request", "Logical block address out of range"),
    "read error": (0x281, "Medium Error", "Unrecovered read error"),
    "write error": (0x280, "Medium Error", "Peripheral device write fault"),
    "flush error": (0x280, "Medium Error", "Peripheral device write fault"),
    "different data": (0x285, "Miscompare", "Miscompare during verify operation"),
}


def text_of(r):
    return r.stdout + r.stderr


@unittest.skipUnless(shutil.which("sg_raw") and shutil.which("nvme"), "sg3_utils and nvme-cli are needed")
class Same(DriveCase):
    def scsi(self, program, *args, target, check=True):
        env = dict(os.environ, LD_PRELOAD=SHIM, NVEFS_SHIM_NODE=SHIM_NODE, NVEFS_SHIM_TARGET=target)
        return run(program, *args, env=env, check=check)

    def raw(self, target, *cdb, lbas=0, send=None, lba_size=512):
        """sg_raw: what it says. `send` is a file with the data."""
        args = ["-s", lbas * lba_size, "-i", send] if send else ["-r", lbas * lba_size] if lbas else []
        return text_of(self.scsi("sg_raw", *args, SHIM_NODE, *cdb, target=target, check=False))

    def identify(self, target, what):
        return json.loads(run("nvme", what, node(target), "-o", "json").stdout)

    def namespace(self, target):
        ns = self.identify(target, "id-ns")
        return ns, 1 << ns["lbafs"][ns["flbas"] & 15]["ds"]

    def pages(self, target, *args):
        return self.scsi("sg_vpd", *args, SHIM_NODE, target=target).stdout

    def number(self, text, pattern):
        m = re.search(pattern, text)
        self.assertTrue(m, f"no {pattern} in\n{text}")
        return int(m[1], 16 if m[1].startswith("0x") else 10)

    def test_sizes(self):
        for target in DISKS:
            ns, lba = self.namespace(target)
            said = self.scsi("sg_readcap", "--16", SHIM_NODE, target=target).stdout
            self.assertEqual(self.number(said, r"Number of logical blocks=(\d+)"), ns["nsze"], target)
            self.assertEqual(self.number(said, r"Logical block length=(\d+)"), lba, target)

    def test_identity(self):
        """The names by which hosts know a namespace again."""
        for target in DISKS:
            ns, _ = self.namespace(target)
            ctrl = self.identify(target, "id-ctrl")
            told = self.pages(target, "-p", "di").replace(" ", "").lower()
            self.assertNotEqual(int(ns["eui64"], 16), 0)
            self.assertIn("0x" + ns["eui64"].lower(), told)
            said = self.scsi("sg_inq", SHIM_NODE, target=target).stdout
            self.assertIn("Vendor identification: NVMe", said)
            self.assertIn("Product identification: " + ctrl["mn"].strip()[:16], said)

    def test_limits(self):
        """The longest transfer, and whether blocks can be given back."""
        for target in DISKS:
            _, lba = self.namespace(target)
            ctrl = self.identify(target, "id-ctrl")
            said = self.pages(target, "-p", "bl")
            longest = self.number(said, r"Maximum transfer length: (0x[0-9a-f]+|\d+)") * lba
            # The kernel's own limit, by pages of a transfer, may be below the drive's.
            kernel = f"/sys/block/{os.path.basename(node(target)).replace('ng', 'nvme')}/queue/"
            with open(kernel + "max_hw_sectors_kb", encoding="utf-8") as f:
                allowed = int(f.read()) << 10
            with open(kernel + "max_segments", encoding="utf-8") as f:
                allowed = min(allowed, int(f.read()) * 4096)
            self.assertEqual(longest, min(4096 << ctrl["mdts"], allowed), target)
            has_dsm = ctrl["oncs"] >> 2 & 1
            said = self.scsi("sg_readcap", "--16", SHIM_NODE, target=target).stdout
            self.assertEqual(self.number(said, r"lbpme=(\d)"), has_dsm)
            self.assertEqual(self.number(self.pages(target, "-p", "lbpv"), r"\bLBPU\b[)]?[:=] ?(\d)"), has_dsm)

    def wce(self, target):
        native = self.number(run("nvme", "get-feature", controller_node(target), "-f", "6").stdout.replace("0x", ""),
                             r"[Vv]alue:0*(\d)\b")
        page = re.search(r"^ 00\s+08 12 (\w\w)",
                         self.scsi("sg_modes", "-p", "8", SHIM_NODE, target=target).stdout.split(">>")[1], re.M)
        return native, int(page[1], 16) >> 2 & 1

    def test_cache(self):
        """On and off, by both, and as the file system is told by both routes."""
        target = "/dev/test/ng0-1"
        try:
            for value, word in ((1, "on"), (0, "off")):
                run("nvme", "set-feature", controller_node(target), "-f", "6", f"--value={value}")
                self.assertEqual(self.wce(target), (value, value))
                run(MKFS, "-q", "-f", target)
                for route in ("native", "scsi"):
                    self.mount(f"route={route}", target=target)
                    told = self.info()["drive"]
                    self.assertEqual(told["nvme"]["volatile_write_cache"], word, route)
                    if route == "scsi":
                        self.assertEqual(told["scsi"]["volatile_write_cache"], word)
                    self.umount()
        finally:
            run("nvme", "set-feature", controller_node(target), "-f", "6", "--value=1")

    def test_data(self):
        """What one writes the other reads, at the first, some middle and the last block."""
        path = os.path.join(self.dir, "data")
        for target in DISKS:
            ns, lba = self.namespace(target)
            for first in (0, 4711, ns["nsze"] - 3):
                place = [f"{b:02x}" for b in first.to_bytes(8, "big")] + ["0", "0", "0", "3", "0", "0"]
                data = os.urandom(3 * lba)
                with open(path, "wb") as f:
                    f.write(data)
                self.raw(target, "8a", "0", *place, lbas=3, send=path, lba_size=lba)
                run("nvme", "read", node(target), "-s", first, "-c", 2, "-z", 3 * lba, "-d", path + ".back")
                with open(path + ".back", "rb") as f:
                    self.assertEqual(f.read(), data, f"{target} {first}: written by SCSI")
                with open(path, "wb") as f:
                    f.write(data[::-1])
                run("nvme", "write", node(target), "-s", first, "-c", 2, "-z", 3 * lba, "-d", path)
                self.scsi("sg_raw", "-r", 3 * lba, "-o", path + ".back", SHIM_NODE, "88", "0", *place, target=target)
                with open(path + ".back", "rb") as f:
                    self.assertEqual(f.read(), data[::-1], f"{target} {first}: written by NVMe")

    def native(self, target, verb, first, lba, path):
        """The status of one command, without Do Not Retry and More."""
        args = ["-n", target[-1]] if verb == "flush" else ["-s", first, "-c", 0, "-z", lba, "-d", path]
        said = text_of(run("nvme", verb, node(target), *args, check=False))
        m = STATUS.search(said)
        return int(m[1], 16) & 0x7ff if m else said

    def assert_class(self, target, kind, verb, cdb, first=0):
        """The native command and its SCSI counterpart fail alike."""
        _, lba = self.namespace(target)
        path = os.path.join(self.dir, "one")
        if verb != "read":
            with open(path, "wb") as f:
                f.write(b"\x5a" * lba)
        status, key, asc = CLASSES[kind]
        self.assertEqual(self.native(target, verb, first, lba, path), status, f"{target}: {kind}")
        place = [f"{b:02x}" for b in first.to_bytes(8, "big")] + ["0", "0", "0", "1", "0", "0"]
        said = self.raw(target, *cdb, *place, lbas=verb != "flush", send=path if verb in ("write", "compare") else None,
                        lba_size=lba)
        self.assertIn(f"Sense key: {key}", said, f"{target}: {kind}")
        self.assertIn(f"Additional sense: {asc}", said, f"{target}: {kind}")

    def test_errors(self):
        for target, disk in DISKS.items():
            ns, lba = self.namespace(target)
            self.assert_class(target, "beyond the end", "read", ("88", "0"), ns["nsze"])
            run("nvme", "write-zeroes", node(target), "-s", 0, "-c", 7)
            self.assert_class(target, "different data", "compare", ("8f", "2"))
            for kind, iotype, verb, cdb in (("read error", "read", "read", ("88", "0")),
                                            ("write error", "write", "write", ("8a", "0")),
                                            ("flush error", "flush", "flush", ("91", "0"))):
                with Injected(disk, iotype):
                    if kind == "flush error":  # QEMU flushes only what was written since
                        self.native(target, "write", 0, lba, os.path.join(self.dir, "one"))
                    self.assert_class(target, kind, verb, cdb)
