#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The whole machine killed at random moments while it writes, and booted again.

By three ways at once files are written and synced in the guest; what fsync acknowledged goes into records on the host.
The host kills QEMU as it is. The next guest mounts the same disks, compares them with the records, and works on; the last
one only compares. Nothing that QEMU took is lost by its end: what the drive's cache may lose is test_power.py's.

NVEFS_TEST_KILLS: how many; NVEFS_TEST_SEED chooses moments and data.
"""
import hashlib
import json
import os
import random
import sys
import tempfile
import threading
import time

import guest
from guest import KILLED, Disk, Machine, Nvme
from drives import DriveCase, Way
from harness import CTL, FSCK, NVEFS, UMOUNT, run, run_tests, why_not

KILLS = int(os.environ.get("NVEFS_TEST_KILLS", "2"))
BOOT = int(os.environ.get("NVEFS_TEST_BOOT", "0"))  # the number of this guest
STATE = os.environ.get("NVEFS_TEST_STATE_DIR", "")
WAYS = [Way("ng by io_uring", "/dev/test/ng0-1", disk="nvme0-1"),
        Way("NVMe by the scsi route", "/dev/test/nvme0-2", route="scsi", disk="nvme0-2"),
        Way("sg by SG_IO", "/dev/test/sg0,sg_io=sg", disk="scsi0")]
NAMES = 40


def record_path(way):
    return os.path.join(STATE, way.disk + ".acks")


def acknowledged(way):
    """{name: digest}, of a file of unknown content None; of names not there nothing was ever written."""
    said = {}
    with open(record_path(way), encoding="utf-8") as f:
        for line in f:
            if line.endswith("\n"):  # the last one may be cut off
                name, digest = json.loads(line)
                said[name] = digest
    return said


class Worker(threading.Thread):
    """Writes files anew and overwrites parts of them until the guest is gone."""

    def __init__(self, way, mnt, seed):
        super().__init__(daemon=True)
        self.way, self.mnt, self.rnd = way, mnt, random.Random(seed)
        self.error = None
        self.record = open(record_path(way), "a", encoding="utf-8")  # pylint: disable=consider-using-with

    def note(self, name, digest):
        self.record.write(json.dumps([name, digest]) + "\n")
        self.record.flush()

    def one_file(self):
        name = f"d{self.rnd.randrange(4)}/f{self.rnd.randrange(NAMES)}"
        path = os.path.join(self.mnt, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self.note(name, None)
        renamed = self.rnd.random() < 0.5
        flags = os.O_RDWR | os.O_CREAT | (os.O_TRUNC if renamed else 0)
        fd = os.open(path + ".new" if renamed else path, flags, 0o644)
        os.pwrite(fd, self.rnd.randbytes(self.rnd.randrange(1, 100000)), self.rnd.randrange(20000))
        os.fsync(fd)
        data = os.pread(fd, 1 << 20, 0)
        os.close(fd)
        if renamed:
            os.rename(path + ".new", path)
        fd = os.open(os.path.dirname(path), os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        self.note(name, hashlib.sha256(data).hexdigest())

    def run(self):
        try:
            while True:
                self.one_file()
        except OSError as e:
            self.error = f"{self.way.name}: {e}"


class Killed(DriveCase):
    def at(self, way):
        return os.path.join(self.dir, way.disk)

    def make_all(self):
        for way in WAYS:
            self.make(way)
            with open(record_path(way), "w", encoding="utf-8"):
                pass

    def compare(self, way):
        """It mounts without fsck, fsck finds nothing, and every acknowledged file is as it was."""
        said = acknowledged(way)
        run(NVEFS, way.target, self.at(way), "-o", f"route={way.route}")
        found = 0
        for name, digest in said.items():
            if digest is None:
                continue
            with open(os.path.join(self.at(way), name), "rb") as f:
                self.assertEqual(hashlib.sha256(f.read()).hexdigest(), digest, f"{way.name}: {name}")
            found += 1
        run(CTL, "scrub", self.at(way))
        run(UMOUNT, self.at(way))
        r = run(FSCK, "-n", "-f", way.target, check=False)
        self.assertEqual(r.returncode, 0, f"{way.name}: {r.stdout}{r.stderr}")
        print(f"{way.name}: boot {BOOT}, {found} acknowledged files are as they were", flush=True)

    def work(self):
        """Does not return, but for an error."""
        workers = [Worker(way, self.at(way), f"{os.environ['NVEFS_TEST_SEED']} {BOOT} {way.disk}") for way in WAYS]
        for way in WAYS:
            run(NVEFS, way.target, self.at(way), "-o", f"route={way.route},commit=1,dedup=on")
        for w in workers:
            w.start()
        while not any(w.error for w in workers):
            time.sleep(0.1)
        self.fail("; ".join(w.error for w in workers if w.error))

    def test_kills(self):
        for way in WAYS:
            os.mkdir(self.at(way))
        if BOOT == 0:
            self.make_all()
        else:
            for way in WAYS:
                self.compare(way)
        if BOOT < KILLS:
            self.work()


class Moment:
    """When the host kills: some time after the guest began to work by all ways."""

    def __init__(self, seconds):
        self.seconds, self.end = seconds, None
        self.before = {way: self.length(way) for way in WAYS}

    @staticmethod
    def length(way):
        try:
            return os.path.getsize(record_path(way))
        except OSError:
            return 0

    def __call__(self):
        if self.end is None and all(self.length(way) > self.before[way] + 500 for way in WAYS):
            self.end = time.monotonic() + self.seconds
        return self.end is not None and time.monotonic() >= self.end


def kill_and_boot():
    global STATE  # pylint: disable=global-statement
    rnd = random.Random(int(guest.choose_seed()))
    with tempfile.TemporaryDirectory(prefix="nvefs-kills-") as STATE:
        machine = Machine(nvme=[Nvme(Disk("96M"), Disk("96M", lba=4096))], scsi=[Disk("96M")], state=STATE,
                          share=[STATE], limit=300)
        os.environ["NVEFS_TEST_STATE_DIR"] = STATE
        for number in range(KILLS + 1):
            os.environ["NVEFS_TEST_BOOT"] = str(number)
            code = guest.boot_self(machine, Moment(rnd.uniform(0.1, 3)) if number < KILLS else None)
            if number < KILLS and code == KILLED:
                print(f"killed {number + 1} times", flush=True)
                continue
            if code or number < KILLS:
                print(f"FAIL: Killed.test_kills: boot {number} ended with {code}")
                return code or 1
    return 0


if __name__ == "__main__":
    if guest.inside():
        run_tests()
    else:
        guest.skip_without()
        reason = why_not()
        if reason:
            print(f"SKIP: {reason}")
            sys.exit(77)
        sys.exit(kill_and_boot())
