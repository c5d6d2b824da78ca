#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Power cuts, on the record of what the kernel's drivers really sent.

In the guest a file system is worked on, on an NVMe namespace and on a SCSI disk whose writes and flushes QEMU logs; beside it
goes a record of what fsync acknowledged, and how long the log was then. On the host the log is replayed to states
that a power cut could have left, and each must mount, hold all that was acknowledged, and pass fsck.

NVEFS_TEST_STATES: states for each disk; NVEFS_TEST_SEED repeats a run.
"""
import hashlib
import json
import os
import random
import sys
import tempfile

import guest
from guest import Disk, Machine, Nvme
from drives import DriveCase, Way
from harness import FSCK, main as run_here, run, why_not as harness_why_not
from writelog import FLUSH, WriteLog, count_now

STATES = int(os.environ.get("NVEFS_TEST_STATES", "20"))
SEED = int(os.environ.get("NVEFS_TEST_SEED") or random.randrange(1 << 32))
STATE = os.environ.get("NVEFS_TEST_STATE_DIR", "")
DISKS = {"nvme0-1": Way("NVMe", "/dev/test/ng0-1"), "scsi0": Way("SCSI", "/dev/test/sg0")}
ROUNDS = 60
SIZE = 80 << 20


class Record:
    """What was acknowledged, as lines of JSON on the shared directory."""

    def __init__(self, disk):
        self.log = os.path.join(STATE, disk + ".log")
        self.file = open(os.path.join(STATE, disk + ".acks"), "w", encoding="utf-8")  # pylint: disable=R1732

    def ack(self, name, digest):
        self.file.write(json.dumps([count_now(self.log), name, digest]) + "\n")
        self.file.flush()

    def close(self):
        self.file.close()


class Work(DriveCase):
    def work(self, disk, way):
        rnd = random.Random(SEED)
        self.make(way)
        self.mount_way(way, "dedup=on", "commit=1")
        record = Record(disk)
        pool = [rnd.randbytes(4096) for _ in range(30)]
        for i in range(ROUNDS):
            name = f"d{i % 5}/f{rnd.randrange(12)}"
            os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
            data = b"".join(rnd.choice(pool) for _ in range(rnd.randrange(1, 24)))[:rnd.randrange(1, 90000)]
            record.ack(name, None)  # from here on it may be old, new, in between or gone
            new = self.path(name + ".new")
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.write(fd, data)
            os.fsync(fd)
            os.close(fd)
            os.rename(new, self.path(name))
            fd = os.open(os.path.dirname(new), os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
            record.ack(name, hashlib.sha256(data).hexdigest())
            if rnd.random() < 0.2:
                self.put(f"noise{i}", rnd.randbytes(200000))  # never synced
        record.close()
        self.umount()

    def test_work(self):
        for disk, way in DISKS.items():
            with self.subTest(disk):
                self.work(disk, way)

    def test_flush_for_every_fsync(self):
        """A commit flushes before and after its last block, and nothing else does."""
        for disk, way in DISKS.items():
            self.make(way)
            self.mount_way(way, "commit=300")
            self.put("first", b"x")
            run("sync", self.path("first"))
            fd = os.open(self.path("counted"), os.O_WRONLY | os.O_CREAT)
            path = os.path.join(STATE, disk + ".log")
            before = count_now(path)
            for i in range(20):
                os.pwrite(fd, bytes([i]) * 5000, i * 5000)
                os.fsync(fd)
            os.close(fd)
            log = WriteLog(path)
            flushes = sum(bool(e.flags & FLUSH) for e in log.entries[before:])
            log.close()
            self.umount()
            self.assertGreaterEqual(flushes, 40, way.name)
            self.assertLess(flushes, 50, way.name)


class Cuts(DriveCase):
    def acks(self, disk):
        with open(os.path.join(STATE, disk + ".acks"), encoding="utf-8") as f:
            return [json.loads(line) for line in f]

    def expect(self, acks, durable):
        """{name: digest} of what was acknowledged by then and not touched since."""
        want = {}
        for at, name, digest in acks:
            if digest is None:
                want.pop(name, None)  # touched: no matter whether that was before the cut
            elif at <= durable:
                want[name] = digest
        return want

    def verify(self, image, want, where):
        self.mount("ro", target=image)
        for name, digest in want.items():
            with open(self.path(name), "rb") as f:
                self.assertEqual(hashlib.sha256(f.read()).hexdigest(), digest, f"{where}: {name}")
        self.umount()
        self.mount(target=image)  # replays the journal for good
        self.put("after", b"y" * 10000)
        self.umount()
        r = run(FSCK, "-n", "-f", image, check=False)
        self.assertEqual(r.returncode, 0, f"{where}: {r.stdout}{r.stderr}")

    def cut_acks(self, acks, log_length):
        """The acknowledgements as they were when the log had this length."""
        return [a for a in acks if a[0] <= log_length]

    def states(self, log, rnd, first):
        cuts = sorted(rnd.randrange(first, len(log.entries) + 1) for _ in range(STATES))
        base = os.open(os.path.join(self.dir, "base"), os.O_RDWR | os.O_CREAT)
        os.ftruncate(base, SIZE)
        done = 0
        for cut in cuts:
            durable = log.last_flush(cut)
            for entry in log.entries[done:durable]:
                log.apply(base, entry)
            done = max(done, durable)
            image = os.path.join(self.dir, "cut.img")
            run("cp", "--sparse=always", os.path.join(self.dir, "base"), image)
            fd = os.open(image, os.O_RDWR)
            chosen = [e for e in log.entries[durable:cut] if rnd.random() < 0.5]
            rnd.shuffle(chosen)
            for entry in chosen:
                torn = rnd.random() < 0.2 and entry.length > log.sector
                log.apply(fd, entry, rnd.randrange(1, entry.length // log.sector) if torn else None)
            os.close(fd)
            yield cut, durable, image
        os.close(base)

    def cut_everywhere(self, disk):
        log, acks = WriteLog(os.path.join(STATE, disk + ".log")), self.acks(disk)
        self.assertGreater(len(log.entries), 200)
        rnd = random.Random(SEED)
        for cut, durable, image in self.states(log, rnd, acks[0][0]):
            want = self.expect(self.cut_acks(acks, cut), durable)
            self.verify(image, want, f"{disk}, NVEFS_TEST_SEED={SEED}, cut at {cut}, durable {durable}")
        log.close()
        return len(acks)

    def test_nvme(self):
        self.cut_everywhere("nvme0-1")

    def test_scsi(self):
        self.cut_everywhere("scsi0")


def load_tests(loader, _tests, _pattern):
    return loader.loadTestsFromTestCase(Work if guest.inside() else Cuts)


def boot_then_cut():
    global STATE  # pylint: disable=global-statement
    with tempfile.TemporaryDirectory(prefix="nvefs-power-") as STATE:
        os.environ.update({"NVEFS_TEST_STATE_DIR": STATE, "NVEFS_TEST_SEED": str(SEED)})
        machine = Machine(nvme=[Nvme(Disk(f"{SIZE}", log=True))], scsi=[Disk(f"{SIZE}", log=True)], state=STATE,
                          share=[STATE])
        code = guest.boot_self(machine)
        if code:
            sys.exit(code)
        run_here()


if __name__ == "__main__":
    if guest.inside():
        run_here()
    else:
        guest.skip_without()
        reason = harness_why_not()
        if reason:
            print(f"SKIP: {reason}")
            sys.exit(77)
        boot_then_cut()
