#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The SCSI translation as programs of others find it: iscsi-test-cu and sg3_utils, through a preloaded library."""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "fuse"))
from harness import BUILD, run, run_tests  # noqa: E402

SHIM = os.path.join(BUILD, "tests/scsi/libnvefs-sg-shim.so")
NODE = "/dev/sg-nvefs"
# Why iscsi-test-cu does not run a test, by what it says, and why that is right.
EXCLUDED = {
    "(WRITEVERIFY1[026]|ORWRITE|WRITEATOMIC16|PREFETCH1[06]|GET_?LBA_?STATUS|READDEFECTDATA1[02]) is not implemented":
        "no NVMe command does it",
    "(EXTENDEDCOPY|RECEIVE_?COPY_?RESULTS?) is not implemented": "the unit copies nothing by itself",
    "Third-party Copy VPD page is not implemented": "the same",
    "(RESERVE6|PERSISTENT RESERVE IN) is not implemented": "a file system's route does not reserve",
    "PROUT Not Supported": "the same",
    "REPORT_SUPPORTED_OPCODES is not implemented":
        "what is to be refused is refused with a code that iscsi-test-cu takes for a missing command",
    "Not an iSCSI device": "this is no iSCSI target",
    "This (RESERVE6 |PERSISTENT RESERVE )?test is only supported for iSCSI backends": "this is no iSCSI target",
    "Multipath unavailable": "one path was given",
    "--allow-sanitize flag is not set": "the unit sanitizes nothing",
    "(Logical unit|Media) is not (removable|write-protected)": "the drive is neither",
    "WRITESAME1[06] does not support 0-blocks": "page B0h says so (WSNZ)",
}
# Suites in which a version of iscsi-test-cu crashes by itself, and in what.
CRASHES = {"ReportLUNs": "version 1.20 looks into the iSCSI session that a SCSI device does not have"}


class Shim(unittest.TestCase):
    target = "lba=512,mdts=32M"

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="nvefs-scsi-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.image = os.path.join(self.dir, "disk.img")
        with open(self.image, "wb") as f:
            f.truncate(96 << 20)

    def program(self, *args, target=None, check=True):
        env = dict(os.environ, LD_PRELOAD=SHIM, NVEFS_SHIM_NODE=NODE,
                   NVEFS_SHIM_TARGET=f"{self.image},{target or self.target}")
        return run(*args, NODE, env=env, check=check, timeout=300)


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"{program} is not installed")


class IscsiTest(Shim):
    """libiscsi's conformance suite."""

    def suites(self):
        said = self.program("iscsi-test-cu", "--list", check=False).stdout
        return list(dict.fromkeys(re.findall(r"^SCSI\.(\w+)", said, re.M)))

    def suite(self, name, target):
        """(tests, of these not applying) of one suite, in which nothing fails."""
        said = self.program("iscsi-test-cu", "--dataloss", "--verbose", f"--test=SCSI.{name}", target=target, check=False)
        text = said.stdout + said.stderr
        if said.returncode == -signal.SIGSEGV and name in CRASHES:
            print(f"SKIP: iscsi-test-cu, {target}: {name}: {CRASHES[name]}")
            return 0, 0
        m = re.search(r"^\s+tests\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)", text, re.M)
        self.assertTrue(m, text[-2000:])
        self.assertEqual(m[4], "0", "\n".join(l for l in text.splitlines() if "FAILED" in l or "had failures" in l))
        skipped = 0
        for test in re.split(r"^\s+Test: ", text, flags=re.M)[1:]:
            whys = re.findall(r"\[SKIPPED\]\s+(.*)", test)
            skipped += bool(whys)
            for why in whys:
                self.assertTrue(any(re.match(e, why) for e in EXCLUDED), f"not run, for no known reason: {why}")
        return int(m[1]), skipped

    def conform(self, target):
        names = self.suites()
        self.assertGreater(len(names), 30)
        total, skipped = map(sum, zip(*(self.suite(name, target) for name in names)))
        print(f"iscsi-test-cu, {target}: {total - skipped} of {total} tests passed, {skipped} do not apply, 0 failed")
        return total - skipped

    @needs("iscsi-test-cu")
    def test_lba_512(self):
        self.assertGreaterEqual(self.conform("lba=512,mdts=32M"), 100)

    @needs("iscsi-test-cu")
    def test_lba_4096(self):
        # Four logical blocks to a physical one: some tests ask for more than one.
        self.assertGreaterEqual(self.conform("lba=4096,mdts=32M,iu=16k"), 100)


@needs("sg_inq")
class Sg3(Shim):
    """What sg3_utils say of each answer: decoded whole, no complaint."""

    BAD = re.compile(r"(?i)unknown(?!>)|truncat|too short|strange|unexpected|malformed|illegal|unable|fail")

    def decodes(self, *args, words=()):
        said = self.program(*args)
        self.assertFalse(said.stderr.strip(), f"{args}: {said.stderr}")
        self.assertNotRegex(said.stdout, self.BAD, f"{args}")
        for word in words:
            self.assertIn(word, said.stdout)
        return said.stdout

    def test_identity(self):
        self.decodes("sg_inq", "-d", words=("NVMe", "SBC-3", "SPC-4"))
        serial = re.search(r"serial number: (\S+)\.", self.decodes("sg_vpd", "--page=sn"))[1].replace("_", "")
        self.assertIn("0x" + serial.lower(), self.decodes("sg_vpd", "--page=di"))

    def test_pages(self):
        self.decodes("sg_vpd", "-a", words=("LBPU", "Block limits", "Non-rotating"))
        self.assertRegex(self.decodes("sg_vpd", "--page=lbpv"), r"LBPU(\): |=)1")
        self.decodes("sg_modes", "-a", words=("Caching", "Control", "Power condition"))
        self.decodes("sg_logs", "-a", words=("Current temperature = ", "endurance indicator: 0 %", "IE asc = 0x0"))

    def test_capacity(self):
        self.decodes("sg_readcap", "-l", words=("Last LBA=196607", "block length=512", "lbpme=1"))
        self.decodes("sg_readcap", words=("Last LBA=196607",))

    def test_lists(self):
        self.decodes("sg_luns", words=("1 lun entry",))
        self.decodes("sg_opcodes", "-R", words=("Unmap", "Read capacity(16)", "Report supported operation codes",
                                                "Compare and write", "Mode select(6)", "Mode select(10)"))
        self.decodes("sg_opcodes", "--opcode=0x89", words=("supported",))
        self.assertIn("No Sense", self.program("sg_requests").stderr)

    def test_unit_ready(self):
        said = self.program("sg_turs", "--verbose", "--verbose")
        if "No SCSI command" in said.stderr:
            self.skipTest("this version of sg_turs sends no command (sg3_utils 1.48): " + said.stderr.split("\n")[-2])
        self.decodes("sg_turs")

    def test_commands(self):
        """Written by one program, changed by others, seen in the image itself."""
        block = os.urandom(512)
        path = os.path.join(self.dir, "block")
        with open(path, "wb") as f:
            f.write(block)
        self.decodes("sg_write_same", "--lba=100", "--num=8", f"--in={path}", "--xferlen=512")
        self.decodes("sg_sync")
        self.assertEqual(self.at(100, 8), block * 8)
        self.decodes("sg_verify", "--lba=100", "--count=8")
        self.decodes("sg_unmap", "--lba=102", "--num=2", "--force")
        self.assertEqual(self.at(100, 2), block * 2)
        self.assertEqual(self.at(104, 4), block * 4)

    def mode_page(self, page, target):
        """The page's bytes, as sg_modes shows them."""
        said = self.program("sg_modes", "--raw", "--raw", f"--page={page:#x}", target=target).stdout
        return [int(b, 16) for b in re.findall(r"\b[0-9a-f]{2}\b", said)][-{8: 20, 10: 12, 26: 40}[page]:]

    def wr_mode(self, page, contents, *options, target=None, check=True):
        text = ",".join(f"{b:02x}" for b in contents)
        return self.program("sg_wr_mode", *options, f"--page={page:#x}", f"--contents={text}", target=target, check=check)

    def test_mode_select(self):
        """What was sensed is taken back by both forms; only the cache that there is can be switched."""
        cached, plain = self.target + ",vwc=on", self.target + ",vwc=off"
        for page in (8, 10, 26):
            contents = self.mode_page(page, cached)
            self.assertEqual(contents[0], page)
            for options in ((), ("-6",), ("--dbd",)):
                with self.subTest(page=page, options=options):
                    said = self.wr_mode(page, contents, *options, target=cached)
                    self.assertFalse(said.stderr.strip(), said.stderr)
        on, off = self.mode_page(8, cached), self.mode_page(8, plain)
        self.assertEqual((on[2], off[2]), (4, 0))
        self.wr_mode(8, off, target=cached)  # switches it off
        for name, page, contents, target in (("a cache that is not there", 8, on, plain),
                                             ("read cache disable", 8, on[:2] + [5] + on[3:], cached),
                                             ("fixed sense", 10, [10, 10, 2, 16, 0, 64, 0, 0, 255, 255, 0, 0], cached),
                                             ("an idle timer", 26, [26, 38, 0, 2] + 36 * [0], cached)):
            with self.subTest(name):
                said = self.wr_mode(page, contents, target=target, check=False)
                self.assertNotEqual(said.returncode, 0)
                self.assertRegex(said.stdout + said.stderr, r"(?i)illegal request|invalid field")

    def test_power(self):
        self.decodes("sg_start", "--start")
        self.decodes("sg_start", "--stop")
        said = self.program("sg_start", "--pc=2", check=False)
        self.assertNotEqual(said.returncode, 0)
        self.assertRegex(said.stdout + said.stderr, r"(?i)illegal request|invalid field")

    @needs("sg_compare_and_write")
    def test_compare_and_write(self):
        path = os.path.join(self.dir, "halves")
        new = os.urandom(1024)
        with open(path, "wb") as f:
            f.write(bytes(1024) + new)
        args = ("sg_compare_and_write", "--lba=7", "--num=2", "--xferlen=2048")
        self.program(*args, f"--in={path}")
        self.assertEqual(self.at(7, 2), new)
        with open(path, "wb") as f:
            f.write(new[:700] + bytes(324) + bytes(1024))
        said = self.program(*args, f"--in={path}", check=False)
        self.assertEqual(said.returncode, 14, said.stderr)
        differs = next(i for i in range(700, 1024) if new[i])
        self.assertIn(f"offset: {differs} ", said.stdout + said.stderr)
        self.assertEqual(self.at(7, 2), new)

    def test_refused(self):
        for args in (("sg_unmap", "--lba=196607", "--num=2", "--force"), ("sg_verify", "--lba=196608", "--count=1"),
                     ("sg_start", "--eject"), ("sg_format", "--format", "--quick"), ("sg_sanitize", "--block", "--quick"),
                     ("sg_persist", "-i", "-k"), ("sg_vpd", "--force", "--page=0xb3")):
            with self.subTest(args[0]):
                said = self.program(*args, check=False)
                self.assertNotEqual(said.returncode, 0, args)
                self.assertRegex(said.stdout + said.stderr, r"(?i)illegal|not supported|out of range|invalid")

    def at(self, lba, count):
        with open(self.image, "rb") as f:
            f.seek(lba * 512)
            return f.read(count * 512)


if __name__ == "__main__":
    if not os.path.exists(SHIM):
        print(f"SKIP: {SHIM} has not been built")
        sys.exit(77)
    if subprocess.run([sys.executable, "-c", ""], env=dict(os.environ, LD_PRELOAD=SHIM), check=False).returncode:
        print("SKIP: the library cannot be preloaded here")
        sys.exit(77)
    run_tests()
