#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""mkfs.nvefs, fsck.nvefs, dump.nvefs, tune.nvefs and nvefs-bench as programs: what they say, their exit codes, what they leave alone."""
import fcntl
import hashlib
import json
import lzma
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "fuse"))
from harness import run_tests  # pylint: disable=wrong-import-position

BUILD = os.environ["NVEFS_BUILD"]
MKFS = os.path.join(BUILD, "mkfs/mkfs.nvefs")
FSCK = os.path.join(BUILD, "fsck/fsck.nvefs")
DUMP = os.path.join(BUILD, "src/ctl/dump.nvefs")
TUNE = os.path.join(BUILD, "src/ctl/tune.nvefs")
BENCH = os.path.join(BUILD, "src/bench/nvefs-bench")
META_COPIES = os.path.join(BUILD, "tests/bench/meta_copies")
POKE = os.path.join(BUILD, "tests/fuse/poke")
LATE_READ = os.path.join(BUILD, "tests/tools/liblate-read.so")
LONG = 120  # seconds: who takes longer than that hangs
UUID = "0b5f3c1e-7a55-4b43-9f4e-5d2a1c3b4a59"
GOLDEN = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../golden/data/v2.img.xz")
MIB = 1 << 20


def run(*args):
    return subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=LONG, check=False)


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


class Tools(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="nvefs-tools-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.img = os.path.join(self.dir, "disk.img")

    def file(self, size, head=b""):
        with open(self.img, "wb") as f:
            f.write(head)
            f.truncate(size)

    def make(self, *options, size="64M"):
        r = run(MKFS, "-q", "-s", size, *options, self.img)
        self.assertEqual((r.returncode, r.stdout, r.stderr), (0, "", ""))

    def scratch(self, offset, data=b"\xff" * 8):
        with open(self.img, "r+b") as f:
            f.seek(offset)
            f.write(data)

    def refuse(self, code, words, *args):
        """Exit code, one line that begins with the program's name and holds these words; the image untouched."""
        before = digest(self.img) if os.path.isfile(self.img) else None
        r = run(*args)
        self.assertEqual(r.returncode, code, r.stdout + r.stderr)
        lines = r.stderr.splitlines()
        self.assertEqual(len(lines), 1, r.stderr)
        self.assertTrue(lines[0].startswith(os.path.basename(args[0]) + ": "), lines[0])
        for word in words:
            self.assertIn(word.lower(), lines[0].lower())
        self.assertEqual(digest(self.img) if os.path.isfile(self.img) else None, before, "the image was changed")

    # ---- all programs ----

    def test_help_and_version(self):
        for program in (MKFS, FSCK, DUMP, TUNE, BENCH):
            for option in ("--help", "-h"):
                r = run(program, option)
                self.assertEqual((r.returncode, r.stderr), (0, ""))
                self.assertIn("usage: " + os.path.basename(program), r.stdout)
            for option in ("--version", "-V"):
                r = run(program, option)
                self.assertEqual((r.returncode, r.stderr), (0, ""))
                self.assertRegex(r.stdout, r"^" + os.path.basename(program) + r" \d+\.\d+")

    def test_usage(self):
        for program, code in ((MKFS, 1), (FSCK, 16), (DUMP, 2), (TUNE, 2)):
            for args in ([], ["a", "b", "c", "d"], ["--no-such-option", self.img]):
                r = run(program, *args)
                self.assertEqual(r.returncode, code, (program, args))
                self.assertIn("--help", r.stderr)
                self.assertFalse(os.path.exists(self.img))

    def test_absent_target(self):
        self.refuse(1, [self.img, "no such file", "-s"], MKFS, self.img)
        self.refuse(8, [self.img, "no such file"], FSCK, self.img)
        self.refuse(1, [self.img, "no such file"], DUMP, self.img)
        self.refuse(1, [self.img, "no such file"], TUNE, "-L", "x", self.img)

    def test_unknown_target_option(self):
        self.make()
        for program, code in ((MKFS, 1), (FSCK, 8), (DUMP, 1), (TUNE, 1)):
            self.refuse(code, ["wrong", "valid options"], program, *(["-f"] if program == MKFS else []),
                        self.img + ",wrong=1")

    def test_in_use(self):
        self.make()
        with open(self.img, "r+b") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            self.refuse(1, ["in use"], MKFS, "-f", self.img)
            self.refuse(8, ["in use"], FSCK, self.img)
            self.refuse(8, ["in use"], FSCK, "-n", self.img)
            self.refuse(1, ["in use"], DUMP, self.img)
            for args in ([], ["-n", "-L", "x"], ["-L", "x"], ["-O", "mmp"]):
                self.refuse(1, ["in use"], TUNE, *args, self.img)

    def test_no_nvefs(self):
        self.file(64 * MIB)
        self.refuse(8, ["no nvefs"], FSCK, "-n", self.img)
        self.refuse(8, ["no nvefs"], FSCK, self.img)
        self.refuse(1, ["no nvefs"], DUMP, self.img, "root")
        self.refuse(1, ["no nvefs"], TUNE, "-L", "x", self.img)

    def test_future(self):
        """A newer disk version, or a feature that must be understood, in all slots, with right checksums."""
        for field, value in (("disk_version", 99), ("feature_incompat", 1 << 40)):
            self.make()
            self.assertEqual(run(POKE, self.img, field, value).returncode, 0)
            self.refuse(8, [self.img, "newer"], FSCK, self.img)
            self.refuse(1, [self.img], DUMP, self.img, "root")
            self.refuse(1, [self.img], TUNE, "-L", "x", self.img)
            self.refuse(1, ["nvefs", "-f"], MKFS, self.img)
            os.unlink(self.img)

    def test_ro_compat_feature(self):
        """fsck only reads: it may look at a file system that it must not write."""
        self.make()
        self.assertEqual(run(POKE, self.img, "feature_ro_compat", 1 << 40).returncode, 0)
        self.assertEqual(run(FSCK, "-n", self.img).returncode, 0)
        self.refuse(1, [self.img, "feature"], TUNE, "-L", "x", self.img)

    # ---- tune.nvefs ----

    def tuned(self, r):
        """With nothing to say, but that a claim was so slow that it had to be made sure of (a machine that stood still)."""
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertRegex(r.stderr, r"\A(.*: waiting \d+ s, so that .*\n)?\Z")
        return r.stdout

    def tune(self, *args):
        return json.loads(self.tuned(run(TUNE, "--json", *args, self.img)))

    def supers(self):
        return json.loads(run(DUMP, "--json", self.img, "super").stdout)

    def test_tune_says_what_it_changed(self):
        self.make("-L", "one", "-U", UUID)
        r = run(TUNE, self.img)
        for word in ("settings\n", "one\n", UUID, "multiple mount protection  off\n"):
            self.assertIn(word, r.stdout)
        r = run(TUNE, "-L", "two", "-O", "mmp", "-E", "mmp_update_interval=100ms", self.img)
        self.tuned(r)
        for word in ("changed to", "two (before: one)", UUID + "\n", "on, a heartbeat every 100 ms (before: off)"):
            self.assertIn(word, r.stdout)
        self.assertIn("as wanted already", run(TUNE, "-L", "two", self.img).stdout)
        self.assertIn("none (before: two)", run(TUNE, "-L", "", self.img).stdout)
        self.assertEqual(run(TUNE, "-q", "-L", "three", self.img).stdout, "")
        self.assertEqual(run(FSCK, "-f", self.img).returncode, 0)

    def test_tune_json_and_dump(self):
        self.make("-L", "one", "-U", UUID)
        got = self.tune("-U", "random", "-O", "mmp", "-E", "mmp_update_interval=100ms")
        self.assertRegex(got["uuid"], r"^[0-9a-f]{8}-[0-9a-f]{4}-4")
        self.assertEqual(got, {"target": self.img, "changed": True, "dry_run": False, "label": "one", "uuid": got["uuid"],
                               "mkfs_uuid": UUID, "multiple_mount_protection": True, "heartbeat_ms": 100})
        self.assertEqual(len(self.supers()), 3)
        for slot in self.supers():
            self.assertEqual((slot["uuid"], slot["mkfs_uuid"], slot["seq"]), (got["uuid"], UUID, 2))
            self.assertEqual((slot["feature_ro_compat"], slot["feature_incompat"]), ("0x1", "0x1"))
        self.assertEqual(json.loads(run(FSCK, "--json", "-n", self.img).stdout)["uuid"], got["uuid"])
        got = self.tune("-U", UUID, "-O", "^mmp")
        self.assertEqual((got["uuid"], got["multiple_mount_protection"], got["changed"]), (UUID, False, True))
        for slot in self.supers():
            self.assertEqual((slot["feature_ro_compat"], slot["feature_incompat"]), ("0x0", "0x0"))
        self.assertEqual(run(FSCK, "-f", self.img).returncode, 0)

    def test_tune_dry_run_changes_nothing(self):
        self.make("-L", "one")
        before = digest(self.img)
        got = self.tune("-n", "-L", "two", "-O", "mmp")
        self.assertEqual((got["label"], got["changed"], got["dry_run"]), ("two", True, True))
        self.assertIn("would be changed to", run(TUNE, "-n", "-L", "two", self.img).stdout)
        self.assertIs(self.tune("-L", "one")["changed"], False)
        self.assertEqual(digest(self.img), before)

    def test_tune_bad_input(self):
        self.make()
        for words, *args in (
                (["-L", "64 bytes"], "-L", "x" * 64),
                (["-U", "not a UUID"], "-U", "1234"),
                (["-U", "zeros"], "-U", "00000000-0000-0000-0000-000000000000"),
                (["-O", "raid"], "-O", "mmp,raid"),
                (["-E", "stride"], "-E", "stride=3"),
                (["-E", "100ms"], "-O", "mmp", "-E", "mmp_update_interval=10ms"),
                (["-E", "^mmp"], "-O", "^mmp", "-E", "mmp_update_interval=1"),
                (["--mmp"], "--mmp=yes", "-L", "x")):
            self.refuse(2, words, TUNE, *args, self.img)
        self.refuse(1, [self.img, "no multiple mount protection"], TUNE, "-E", "mmp_update_interval=1", self.img)
        self.refuse(1, ["zeros"], MKFS, "-f", "-U", "00000000-0000-0000-0000-000000000000", self.img)

    # ---- mkfs.nvefs ----

    def test_mkfs_says_what_it_made(self):
        r = run(MKFS, "-L", "backup", "-U", UUID, "-s", "64M", "--dedup=on", self.img)
        self.assertEqual((r.returncode, r.stderr), (0, ""))
        for word in (self.img, "backup", UUID, "dedup on"):
            self.assertIn(word, r.stdout)
        self.assertEqual(os.stat(self.img).st_size, 64 * MIB)
        self.assertLess(os.stat(self.img).st_blocks * 512, 4 * MIB, "the image is not sparse")
        slot = json.loads(run(DUMP, "--json", self.img).stdout)[0]
        self.assertEqual((slot["label"], slot["uuid"], slot["dedup"]), ("backup", UUID, "on"))

    def test_mkfs_makes_a_clean_one(self):
        for size in ("64M", "65M", "127M", "1G", "100G"):
            self.make(size=size)
            r = run(FSCK, "-f", self.img)
            self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
            os.unlink(self.img)

    def test_mkfs_tells_what_the_drive_says(self):
        r = run(MKFS, "-n", "ram:128M,lba=512,mdts=128k,iu=64k,vwc=on")
        self.assertEqual((r.returncode, r.stderr), (0, ""))
        said = dict(re.findall(r"^  (\S+(?: \S+)*?)  +(\S.*)$", r.stdout, re.M))
        for key, value in {"model": "nvefs embedded controller", "nvme version": "2.0.0", "lba": "512 B",
                           "size": "134217728 B (128 MiB)", "transfer": "131072 B (128 KiB)",
                           "transfer limited by": "MDTS", "npwg": "65536 B (64 KiB)", "volatile write cache": "on",
                           "write protected": "no", "critical warning": "none", "spare": "100 %",
                           "temperature": "27 C"}.items():
            self.assertEqual(said.get(key), value, key)
        self.assertRegex(said["nguid"], "^[0-9a-f]{32}$")
        self.assertIn("dataset-management", said["optional commands"])
        self.assertEqual(run(MKFS, "-n", "-q", "ram:128M").stdout, "")
        self.assertIn("write protected          yes", run(MKFS, "-n", "ram:128M,ro").stdout)

    def test_mkfs_warns_of_a_dying_drive(self):
        self.make()
        for option, words, works in (("spare=9", ["spare is below", "spare 9 %, threshold 10 %"], True),
                                     ("worn", ["medium is read-only"], False)):
            r = run(MKFS, "-f", f"{self.img},{option}")
            self.assertEqual(r.returncode == 0, works, r.stderr)
            for word in words + ["warning"]:
                self.assertIn(word, r.stderr.splitlines()[0])
        self.assertEqual(run(MKFS, "-f", f"{self.img},spare=10").stderr, "")
        self.refuse(1, ["percent", "spare"], MKFS, "-f", f"{self.img},spare=101")

    def test_mkfs_refuses_a_write_protected_one(self):
        self.refuse(1, ["read-only"], MKFS, "ram:128M,ro")

    def test_mkfs_dry_run(self):
        r = run(MKFS, "-n", "-s", "64M", self.img)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("would make", r.stdout)
        self.assertFalse(os.path.exists(self.img))
        self.file(64 * MIB)
        before = digest(self.img)
        self.assertEqual(run(MKFS, "-n", self.img).returncode, 0)
        self.assertEqual(digest(self.img), before)

    def test_mkfs_too_small(self):
        self.refuse(1, ["64 MiB"], MKFS, "-s", "63M", self.img)
        self.assertFalse(os.path.exists(self.img))
        for size in (0, 1, 4096, 64 * MIB - 4096):
            self.file(size)
            self.refuse(1, ["64 MiB"], MKFS, self.img)
        self.refuse(1, ["64 MiB"], MKFS, "ram:1M")

    def test_mkfs_bad_values(self):
        self.refuse(1, ["63"], MKFS, "-L", "x" * 64, "-s", "64M", self.img)
        self.refuse(1, ["uuid"], MKFS, "-U", "nonsense", "-s", "64M", self.img)
        self.refuse(1, ["size"], MKFS, "-s", "many", self.img)
        self.refuse(1, ["on or off"], MKFS, "--dedup=maybe", "-s", "64M", self.img)
        self.assertFalse(os.path.exists(self.img))

    def test_mkfs_journal_size(self):
        for text, blks in (("2M", 512), ("20M", 5120)):
            self.make("-J", "size=" + text)
            self.assertEqual(json.loads(run(DUMP, "--json", self.img).stdout)[0]["journal_blks"], blks)
            self.assertEqual(run(FSCK, "-f", self.img).returncode, 0)
            os.unlink(self.img)
        for bad in ("2M", "size=", "size=1M", "size=65M", "size=4097k", "size=2M2"):
            self.refuse(1, ["-J"], MKFS, "-J", bad, "-s", "1G", self.img)
        self.refuse(1, ["-J", "first half"], MKFS, "-J", "size=32M", "-s", "64M", self.img)
        self.assertFalse(os.path.exists(self.img))
        self.file(64 * MIB)
        before = digest(self.img)
        self.refuse(1, ["-J", "first half"], MKFS, "-J", "size=32M", self.img)
        self.refuse(1, ["-J", "first half"], MKFS, "-J", "size=32M", "-n", self.img)
        self.assertEqual(digest(self.img), before)

    def test_mkfs_refuses_nvefs(self):
        self.make("-L", "mine")
        self.refuse(1, ["nvefs", "mine", "-f"], MKFS, self.img)
        self.refuse(1, ["nvefs", "-f"], MKFS, "-n", self.img)
        self.scratch(4096 * 0 + 2000)  # a damaged first slot is still somebody's file system
        self.refuse(1, ["nvefs", "-f"], MKFS, "-s", "128M", self.img)
        self.assertEqual(os.stat(self.img).st_size, 64 * MIB)
        r = run(MKFS, "-q", "-f", "-L", "new", self.img)
        self.assertEqual((r.returncode, r.stdout, r.stderr), (0, "", ""))
        self.assertEqual(run(FSCK, "-f", self.img).returncode, 0)

    def test_mkfs_refuses_foreign(self):
        foreign = {"mkfs.ext4": ["-q", "-F"], "mkswap": [], "mkfs.vfat": [], "mkfs.xfs": ["-q"]}
        tried = 0
        for program, options in foreign.items():
            if not shutil.which(program):
                continue
            self.file(320 * MIB)
            if run(program, *options, self.img).returncode:
                continue
            tried += 1
            self.refuse(1, ["already", "-f"], MKFS, self.img)
            r = run(MKFS, "-q", "-f", self.img)
            self.assertEqual(r.returncode, 0, r.stderr)
            if shutil.which("blkid"):
                self.assertNotIn("TYPE", run("blkid", "-p", self.img).stdout.replace("PART_ENTRY", ""), program)
        self.assertGreater(tried, 0)

    def test_mkfs_refuses_partition_table(self):
        # DOS: one Linux partition from sector 2048 on.
        entry = bytes([0, 0, 33, 0, 0x83, 0xaa, 0x28, 2]) + struct.pack("<II", 2048, 100000)
        self.file(64 * MIB, b"\0" * 446 + entry + b"\0" * 48 + b"\x55\xaa")
        self.refuse(1, ["partition table", "-f"], MKFS, self.img)

    def test_mkfs_read_only_target(self):
        self.file(64 * MIB)
        os.chmod(self.img, 0o400)
        if os.geteuid() == 0:
            self.skipTest("root may write to every file")
        self.refuse(1, [self.img, "permission"], MKFS, self.img)

    def test_mkfs_on_shared_memory(self):
        """A path below /dev that is no device node."""
        if not os.path.isdir("/dev/shm"):
            self.skipTest("there is no /dev/shm")
        path = tempfile.mktemp(prefix="nvefs-tools-", dir="/dev/shm")
        r = run(MKFS, "-q", "-s", "64M", path)
        self.addCleanup(lambda: os.path.exists(path) and os.unlink(path))
        self.assertEqual((r.returncode, r.stderr), (0, ""))

    def test_mkfs_directory(self):
        self.refuse(1, [self.dir], MKFS, self.dir)

    # ---- fsck.nvefs ----

    def test_fsck_clean(self):
        self.make()
        for options in ([], ["-n"], ["-p"], ["-a"], ["-y"], ["-f"], ["-a", "-f"], ["-C"], ["-C0"], ["--data"]):
            r = run(FSCK, *options, self.img)
            self.assertEqual((r.returncode, r.stderr), (0, ""), options)
            self.assertIn("clean", r.stdout)

    def test_fsck_usage(self):
        self.make()
        self.refuse(16, ["only one"], FSCK, "-n", "-y", self.img)

    def test_fsck_damaged_root(self):
        self.make("--metadata=single")
        self.scratch(2 * 4096 + 100)
        before = digest(self.img)
        for options in (["-n"], ["-p"], ["-a"], []):
            r = run(FSCK, *options, self.img)
            self.assertEqual(r.returncode, 4, options)
            self.assertIn("NV0202", r.stdout)
            self.assertIn("1 left", r.stdout)
            self.assertEqual(digest(self.img), before)
        self.assertEqual([run(FSCK, "-y", self.img).returncode for _ in range(2)], [1, 0])
        self.assertEqual(run(FSCK, "-n", "--data", self.img).returncode, 0)

    def test_fsck_damaged_slot(self):
        self.make()
        self.scratch(4096 + 100)
        for options, code in ((["-n"], 4), ([], 4), (["-p"], 1), (["-p"], 0), (["-n"], 0)):
            r = run(FSCK, *options, self.img)
            self.assertEqual(r.returncode, code, options)
            self.assertEqual("NV0101" in r.stdout, code != 0, options)

    def test_fsck_preen_looks_further(self):
        """A damaged slot is reason enough to check everything."""
        self.make("--metadata=single")
        self.scratch(4096 + 100)
        self.scratch(3 * 4096 + 2000)
        doc = json.loads(run(FSCK, "-p", "--json", self.img).stdout)
        self.assertIn("NV0606", [p["code"] for p in doc["problems"]])
        self.assertEqual((doc["exit_status"], doc["problems_left"]), (1, 0))

    def test_fsck_mends_some(self):
        """-p mends the slot, and leaves the tree to somebody who says yes: 5 is 1 and 4."""
        self.make("--metadata=single")
        self.scratch(4096 + 100)
        self.scratch(2 * 4096 + 100)
        r = run(FSCK, "-p", self.img)
        self.assertEqual(r.returncode, 5, r.stdout)
        self.assertIn("2 problems found, 1 mended, 1 left", r.stdout)
        self.assertEqual([run(FSCK, o, self.img).returncode for o in ("-p", "-y", "-y")], [4, 1, 0])

    def test_fsck_mends(self):
        """The bitmap: -p and -y mend it, and say so; nothing else changes it."""
        for option in ("-p", "-a", "-y"):
            self.make("-f", "--metadata=single")
            self.scratch(3 * 4096 + 2000)
            self.assertEqual(run(FSCK, self.img).returncode, 4)
            # As at boot, it is not looked at: nothing says that it is damaged.
            if option != "-y":
                self.assertEqual(run(FSCK, option, self.img).returncode, 0)
            r = run(FSCK, option, "-f", "--json", self.img)
            doc = json.loads(r.stdout)
            self.assertEqual((r.returncode, doc["exit_status"]), (1, 1), option)
            self.assertEqual([(p["code"], p["action"]) for p in doc["problems"]], [("NV0606", "mended")])
            self.assertEqual((doc["problems_found"], doc["problems_mended"], doc["problems_left"]), (1, 1, 0))
            self.assertTrue(doc["clean"])
            self.assertEqual(run(FSCK, option, "-f", self.img).returncode, 0)
            self.assertEqual(run(FSCK, "-n", "--data", self.img).returncode, 0)

    def copies(self):
        """Both places of each kind of block: root block, bitmap, newest journal header, the tree's root."""
        sb = json.loads(run(DUMP, "--json", self.img, "super").stdout)[0]
        heads = [h for h in json.loads(run(DUMP, "--json", self.img, "journal").stdout) if h["what"] == "header"]
        newest = max(h["seq"] for h in heads)
        node = json.loads(run(DUMP, "--json", self.img, "tree").stdout)[0]
        return {"root": (2, sb["nblks"] - 2), "bitmap": (3, sb["nblks"] - 5),
                "header": tuple(h["pblk"] for h in heads if h["seq"] == newest),
                "node": (node["node"], node["twin"])}

    def ask(self, *answers, options=(), env=None):
        """fsck.nvefs on a terminal: exit code, what it wrote; each question gets the next answer (None: an interrupt)."""
        main, other = pty.openpty()
        left = list(answers)
        with subprocess.Popen([FSCK, *options, self.img], stdin=other, stdout=other, stderr=other,
                              start_new_session=True, env=dict(os.environ, **(env or {}))) as p:
            os.close(other)
            text = b""
            while True:
                if not select.select([main], [], [], LONG)[0]:
                    p.kill()
                    self.fail(f"fsck.nvefs neither went on nor ended within {LONG} s, {left} not asked for: {text.decode()}")
                try:
                    got = os.read(main, 4096)
                except OSError:
                    break
                if not got:
                    break
                text += got
                if text.endswith(b"asking: ") and left:
                    answer = left.pop(0)
                    if answer is None:
                        os.kill(p.pid, signal.SIGINT)
                    else:
                        os.write(main, answer.encode())
                        text += b"<"
            try:
                code = p.wait(LONG)
            except subprocess.TimeoutExpired:
                p.kill()
                self.fail(f"fsck.nvefs closed the terminal and did not end within {LONG} s: {text.decode()}")
        os.close(main)
        self.assertEqual(left, [], f"not asked as often as that: {text.decode()}")
        return code, text.decode().replace("\r", "")

    def hurt(self):
        """A slot of the superblock, the second copy of the root: two kinds of work."""
        self.make()
        self.scratch(4096)
        self.scratch(16382 * 4096)

    def test_fsck_asks(self):
        self.hurt()
        code, text = self.ask("n\n", "y\n")
        self.assertEqual(code, 5, text)
        self.assertEqual(text.count("asking: "), 2, text)
        self.assertIn("write superblock slots from the best one (all of these)? [y]es", text)
        self.assertIn("2 problems found, 1 mended, 1 left", text)
        r = run(FSCK, "-n", self.img)
        self.assertEqual(r.returncode, 4)
        self.assertIn("NV0101", r.stdout)
        self.assertNotIn("NV0901", r.stdout)
        code, text = self.ask("what?\n", "yes\n", "y\n")
        self.assertEqual(code, 1, text)
        self.assertEqual(run(FSCK, "-n", self.img).returncode, 0)

    def test_fsck_asks_no_more(self):
        self.hurt()
        code, text = self.ask("q\n")
        self.assertEqual((code, text.count("asking: ")), (4, 1), text)
        before = digest(self.img)
        code, text = self.ask("\x04")
        self.assertEqual((code, text.count("asking: ")), (4, 1), text)
        code, text = self.ask("y\n", None)
        self.assertEqual(code, 32, text)
        self.assertEqual(digest(self.img), before)
        code, text = self.ask("a\n")
        self.assertEqual((code, text.count("asking: ")), (1, 1), text)
        self.assertEqual(run(FSCK, "-n", self.img).returncode, 0)

    def test_fsck_interrupt_before_the_read(self):
        """An interrupt that comes when the question is there and its answer not yet waited for."""
        self.hurt()
        before = digest(self.img)
        env = {"LD_PRELOAD": LATE_READ,
               "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
        for answers in ([None], ["y\n", None]):
            code, text = self.ask(*answers, env=env)
            self.assertEqual((code, text.count("asking: ")), (32, len(answers)), text)
            self.assertEqual(digest(self.img), before)

    def test_fsck_lines_that_are_no_answers(self):
        """Of any length, with an answer at the end of 63 bytes, or of nothing."""
        self.hurt()
        lines = ["x" * 63 + "y\n", "y" * 500 + "\n", "\n", "\x00\n", "yy\n"]
        before = digest(self.img)
        code, text = self.ask(*lines, "n\n", "n\n")
        self.assertEqual((code, text.count("asking: ")), (4, len(lines) + 2), text)
        self.assertEqual(digest(self.img), before)
        # The end of input behind the beginning of a line, which is no answer either.
        code, text = self.ask("y\x04\x04")
        self.assertEqual((code, text.count("asking: ")), (4, 1), text)
        self.assertEqual(digest(self.img), before)

    def test_fsck_new_tree_refused(self):
        """No to a new tree: not a byte is written, all else is where it was, and a later yes saves it."""
        with lzma.open(GOLDEN) as packed:
            image = packed.read()
        self.file(len(image), image)
        doc = json.loads(run(FSCK, "--json", "-f", self.img).stdout)  # replays its journal
        self.assertTrue(doc["clean"])
        nodes = json.loads(run(DUMP, "--json", self.img, "tree").stdout)
        lost = max((n for n in nodes if not n["level"]), key=lambda n: n["nitems"])
        for pblk in (lost["node"], lost["twin"]):
            self.scratch(pblk * 4096, bytes(4096))
        before = digest(self.img)
        code, text = self.ask("n\n")
        self.assertEqual((code, text.count("asking: ")), (4, 1), text)
        self.assertIn("build a new tree from what is left of the old one", text)
        self.assertRegex(text, r"problems? found, 0 mended, \d+ left")
        self.assertEqual(digest(self.img), before)
        left = json.loads(run(DUMP, "--json", self.img, "tree").stdout)
        self.assertEqual([n for n in left if "damaged" not in n], [n for n in nodes if n["node"] != lost["node"]])
        # A bitmap of what is in use can wait for the tree, whatever is said of it; a superblock slot need not.
        with open(self.img, "rb") as f:
            f.seek(3 * 4096)
            bitmap = f.read(4096)
        places = (3, len(image) // 4096 - 5)
        for pblk in places:
            self.scratch(pblk * 4096, bytes(4096))
        hurt = digest(self.img)
        code, text = self.ask("n\n", "y\n")
        self.assertEqual((code, text.count("asking: ")), (4, 2), text)
        self.assertEqual(digest(self.img), hurt)
        for pblk in places:
            self.scratch(pblk * 4096, bitmap)
        self.scratch(4096)
        code, text = self.ask("y\n", "n\n")
        self.assertEqual((code, text.count("asking: ")), (5, 2), text)
        self.assertEqual(digest(self.img), before)
        code, text = self.ask("y\n")
        self.assertEqual((code, text.count("asking: ")), (1, 1), text)
        saved = json.loads(run(FSCK, "-n", "--json", "--data", self.img).stdout)
        self.assertTrue(saved["clean"])
        self.assertGreater(saved["counts"]["files"], doc["counts"]["files"] - lost["nitems"])

    def test_fsck_asks_nothing(self):
        self.hurt()
        before = digest(self.img)
        for options in (["-n"], ["--json"]):
            code, text = self.ask(options=options)
            self.assertEqual((code, text.count("asking: ")), (4, 0), text)
        r = run(FSCK, self.img)
        self.assertEqual(r.returncode, 4)
        self.assertEqual(digest(self.img), before)
        code, text = self.ask(options=["-y"])
        self.assertEqual((code, text.count("asking: ")), (1, 0), text)

    def test_fsck_bad_copy(self):
        """Of each kind of block either copy: found, named, mended by -p; never any harm."""
        self.make()
        for kind, places in self.copies().items():
            for bad, good in (places, places[::-1]):
                self.scratch(bad * 4096 + 8)
                r = run(FSCK, "-n", "--json", self.img)
                doc = json.loads(r.stdout)
                code = "NV0902" if kind == "header" else "NV0901"
                self.assertEqual([p["code"] for p in doc["problems"]], [code], kind)
                self.assertIn(f"block {bad}", doc["problems"][0]["message"])
                self.assertIn(f"block {good}", doc["problems"][0]["message"])
                # A power cut leaves a torn header, too: that is no error.
                self.assertEqual(r.returncode, 0 if kind == "header" else 4, kind)
                self.assertIn("corrupt", run(DUMP, self.img, "block", bad).stdout)
                self.assertEqual(run(FSCK, "-p", "-f", self.img).returncode, 0 if kind == "header" else 1, kind)
                self.assertIn("intact", run(DUMP, self.img, "block", bad).stdout)
                self.assertEqual(run(FSCK, "-n", "-f", self.img).returncode, 0)
            for place in places:
                self.scratch(place * 4096 + 8)
            if kind != "header":
                self.assertEqual(run(FSCK, "-n", self.img).returncode, 4, kind)
            self.make("-f")

    def test_fsck_all_slots_damaged(self):
        self.make()
        for slot in json.loads(run(DUMP, "--json", self.img).stdout):
            self.scratch(slot["pblk"] * 4096 + 100)
        self.assertEqual(run(FSCK, self.img).returncode, 4)
        self.refuse(1, [self.img], DUMP, self.img, "root")

    def test_fsck_json(self):
        self.make("-L", "mine", "--metadata=single")
        doc = json.loads(run(FSCK, "--json", self.img).stdout)
        self.assertTrue(doc["clean"])
        self.assertEqual((doc["label"], doc["exit_status"], doc["counts"]["directories"]), ("mine", 0, 1))
        self.scratch(3 * 4096 + 2000)
        r = run(FSCK, "--json", self.img)
        doc = json.loads(r.stdout)
        self.assertFalse(doc["clean"])
        self.assertEqual((r.returncode, doc["exit_status"]), (4, 4))
        self.assertIn("NV0606", [p["code"] for p in doc["problems"]])
        self.assertEqual(doc["problems_found"], len(doc["problems"]))
        doc = json.loads(run(FSCK, "--json", self.img + ".absent").stdout)
        self.assertEqual(doc["exit_status"], 8)

    def test_fsck_progress_descriptor(self):
        self.make(size="100G")
        r = subprocess.run([FSCK, "-C2", self.img], capture_output=True, text=True, timeout=LONG, check=False)
        self.assertEqual(r.returncode, 0)
        for line in r.stderr.splitlines():
            self.assertRegex(line, r"^\d+ \d+ \d+ " + self.img + "$")

    # ---- dump.nvefs ----

    def test_dump_commands(self):
        self.make()
        for command in ("super", "root", "groups", "tree", "journal", "inode /", "map 1", "block 2"):
            words = command.split()
            r = run(DUMP, self.img, *words)
            if command != "map 1":
                self.assertEqual((r.returncode, r.stderr), (0, ""), command)
                self.assertNotEqual(r.stdout, "")
            doc = json.loads(run(DUMP, "--json", self.img, *words).stdout)
            self.assertIsInstance(doc, list)
        self.assertEqual(json.loads(run(DUMP, "--json", self.img, "inode", "1").stdout),
                         json.loads(run(DUMP, "--json", self.img, "inode", "/").stdout))

    def test_dump_bad(self):
        self.make()
        self.refuse(1, ["/absent", "no such file"], DUMP, self.img, "inode", "/absent")
        self.refuse(1, ["77"], DUMP, self.img, "inode", "77")
        self.refuse(1, ["inode number"], DUMP, self.img, "inode", "seven")
        self.refuse(2, ["--help"], DUMP, self.img, "nonsense")
        self.refuse(2, ["argument"], DUMP, self.img, "inode")
        self.refuse(2, ["argument"], DUMP, self.img, "root", "1")

    def test_dump_damaged(self):
        self.make("--metadata=single")
        self.scratch(16 * 4096 + 100)
        r = run(DUMP, self.img, "journal")
        self.assertEqual(r.returncode, 0)
        self.assertIn("damaged", r.stdout)
        self.scratch(2 * 4096 + 100)
        self.refuse(1, ["root"], DUMP, self.img, "tree")
        self.assertIn("corrupt", run(DUMP, self.img, "block", "2").stdout)

    # ---- the cost of second copies ----

    def test_meta_copies(self):
        """A commit writes as much as without second copies, but for some bitmaps; the checkpoint writes more."""
        r = run(META_COPIES, "--rounds", "1", "--ops", "200", "--target", "ram:128M,vwc=on")
        self.assertEqual((r.returncode, r.stderr), (0, ""))
        lines = [json.loads(line) for line in r.stdout.splitlines()]
        cells = {cell: {x["metadata"]: x for x in lines if x["cell"] == cell} for cell in {x["cell"] for x in lines}}
        self.assertEqual(len(cells), 5)
        for cell, x in cells.items():
            self.assertGreater(x["dup"]["write_blocks_per_op"], x["single"]["write_blocks_per_op"], cell)
            self.assertLess(x["dup"]["flushes_per_op"], x["single"]["flushes_per_op"] + 0.1, cell)
        x = cells["overwrite-4k-fsync"]
        self.assertLess(x["dup"]["write_blocks_per_op"], 1.2 * x["single"]["write_blocks_per_op"])

    # ---- nvefs-bench ----

    def test_bench_usage(self):
        for args in ([], ["nonsense"], ["matrix"], ["matrix", "--routes", "sata", self.img],
                     ["matrix", "--dedup", "maybe", self.img], ["matrix", "--cells", "read-rand-5k", self.img],
                     ["matrix", "--rounds", "0", self.img], ["matrix", "--runtime", "never", self.img],
                     ["matrix", "--size", "1", self.img], ["matrix", "--jobs", "-1", self.img]):
            r = run(BENCH, *args)
            self.assertEqual(r.returncode, 2, args)
            self.assertTrue(r.stderr.splitlines()[-1].startswith("nvefs-bench: "), r.stderr)

    def test_bench_absent_target(self):
        if not shutil.which("fio"):
            self.skipTest("fio is not installed")
        self.refuse(1, ["no such file"], BENCH, "matrix", "--quick", self.img)


if __name__ == "__main__":
    run_tests()
