#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Power cuts, on the record of what the kernel's drivers really sent.

In the guest a file system is worked on by every way to a drive, on NVMe namespaces and SCSI disks whose writes and flushes QEMU
logs, with a volatile cache and without; beside each goes a record of what fsync acknowledged, and how long the log was
then. On the host the logs are replayed to states that a power cut could have left, and each must mount, hold all that was
acknowledged, and pass fsck.

NVEFS_TEST_STATES: states over all ways; NVEFS_TEST_SECONDS: no more of them after that; NVEFS_TEST_SEED repeats a run.
"""
import hashlib
import json
import os
import random
import sys
import tempfile
import time

import guest
from guest import Disk, Machine, Nvme
from drives import SLOW, DriveCase, Way, controller_node
from harness import FSCK, MKFS, main as run_here, run, why_not as harness_why_not
from writelog import FLUSH, WriteLog, count_now

STATES = int(os.environ.get("NVEFS_TEST_STATES", "45"))
SECONDS = float(os.environ.get("NVEFS_TEST_SECONDS", "150"))
SEED = int(os.environ.get("NVEFS_TEST_SEED", "0"))
STATE = os.environ.get("NVEFS_TEST_STATE_DIR", "")
ROUNDS = 60 if SLOW else 20
SIZE = 80 << 20
# Each way has a disk of its own, named as QEMU has it.
WAYS = [
    Way("ng by io_uring", "/dev/test/ng0-1", disk="nvme0-1"),
    Way("block node by ioctl", "/dev/test/nvme0-2,passthrough=ioctl", disk="nvme0-2"),
    Way("NVMe by the scsi route", "/dev/test/ng0-3", route="scsi", disk="nvme0-3"),
    Way("ng, LBA 4096", "/dev/test/ng0-4", disk="nvme0-4"),
    Way("sg by SG_IO", "/dev/test/sg0,sg_io=sg", disk="scsi0"),
    Way("sd by SG_IO", "/dev/test/sd1", disk="scsi1"),
    Way("sg, LBA 4096", "/dev/test/sg2,sg_io=sg", disk="scsi2"),
]
# Their volatile cache is off: of the SCSI disk from the start, of the NVMe controller by Set Features.
WITHOUT_CACHE = [
    Way("ng without a cache", "/dev/test/ng1-1", disk="nvme1-1"),
    Way("sg without a cache", "/dev/test/sg3,sg_io=sg", disk="scsi3"),
]


def machine():
    def disk(**more):
        return Disk(f"{SIZE}", log=True, **more)
    return Machine(nvme=[Nvme(disk(), disk(), disk(), disk(lba=4096)), Nvme(disk())],
                   scsi=[disk(), disk(), disk(lba=4096), disk(**{"write-cache": "off"})],
                   state=STATE, share=[STATE], limit=900)


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
    @classmethod
    def setUpClass(cls):
        run("nvme", "set-feature", controller_node("/dev/test/ng1-1"), "--feature-id=6", "--value=0")

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
        self.check(way)

    def test_work(self):
        for way in WAYS + WITHOUT_CACHE:
            with self.subTest(way.name):
                self.work(way.disk, way)

    def count_flushes(self, way):
        """(in the log, sent by us) for twenty fsyncs."""
        self.make(way)
        self.mount_way(way, "commit=300")
        self.put("first", b"x")
        run("sync", self.path("first"))
        fd = os.open(self.path("counted"), os.O_WRONLY | os.O_CREAT)
        path = os.path.join(STATE, way.disk + ".log")
        before, sent = count_now(path), self.stats()["device"]["flushes"]
        for i in range(20):
            os.pwrite(fd, bytes([i]) * 5000, i * 5000)
            os.fsync(fd)
        os.close(fd)
        sent = self.stats()["device"]["flushes"] - sent
        log = WriteLog(path)
        flushes = sum(bool(e.flags & FLUSH) for e in log.entries[before:])
        log.close()
        self.umount()
        return flushes, sent

    def test_flush_for_every_fsync(self):
        """A commit flushes before and after its last block, and nothing else does. Also where the cache is off: it could
        be switched on behind our back."""
        for way in WAYS + WITHOUT_CACHE:
            with self.subTest(way.name):
                flushes, sent = self.count_flushes(way)
                print(f"{way.name}: 20 fsyncs, {sent} flushes sent, {flushes} at the disk", flush=True)
                self.assertGreaterEqual(sent, 40)
                self.assertLess(sent, 50)
                self.assertGreaterEqual(flushes, sent)
                if way in WAYS:  # without a cache QEMU flushes after each write
                    self.assertLess(flushes, 50)

    def test_without_cache(self):
        """It is seen that it is off."""
        for way in WITHOUT_CACHE:
            self.assertRegex(run(MKFS, "-n", "-f", way.target).stdout, r"volatile write cache +off")


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

    def states(self, log, rnd, first, count):
        """(entries in the log, of these durable, image), in order: `count` of them."""
        cuts = sorted(rnd.randrange(first, len(log.entries) + 1) for _ in range(count))
        base = os.open(os.path.join(self.dir, "base"), os.O_RDWR | os.O_CREAT)
        os.ftruncate(base, SIZE)
        done = 0
        for cut in cuts:
            durable = log.last_durable(cut)
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

    def cut_everywhere(self, way, count, end):
        """How many states were looked at before the time was over."""
        log, acks = WriteLog(os.path.join(STATE, way.disk + ".log")), self.acks(way.disk)
        self.assertGreater(len(log.entries), 100)
        self.assertGreater(len(acks), ROUNDS)
        done = 0
        for cut, durable, image in self.states(log, random.Random(SEED), acks[0][0], count):
            if time.monotonic() > end:
                break
            want = self.expect(self.cut_acks(acks, cut), durable)
            self.verify(f"{image},lba={log.sector}", want,
                        f"{way.name}, NVEFS_TEST_SEED={SEED}, cut at {cut}, durable {durable}")
            done += 1
        log.close()
        return done

    def test_cuts(self):
        """The states are dealt out to all ways; the first ones get what does not come out even."""
        ways = WAYS + WITHOUT_CACHE
        random.Random(SEED).shuffle(ways)
        begun, done = time.monotonic(), 0
        for i, way in enumerate(ways):
            left = ways[i:]
            count = -(-(STATES - done) // len(left)) if STATES > done else 0
            end = time.monotonic() + (SECONDS - (time.monotonic() - begun)) / len(left)
            with self.subTest(way.name):
                looked = self.cut_everywhere(way, count, end)
                print(f"{way.name}: {looked} of {count} states", flush=True)
                self.assertGreater(looked, 0)
                done += looked


def load_tests(loader, _tests, _pattern):
    return loader.loadTestsFromTestCase(Work if guest.inside() else Cuts)


def boot_then_cut():
    global STATE, SEED  # pylint: disable=global-statement
    SEED = int(guest.choose_seed())
    with tempfile.TemporaryDirectory(prefix="nvefs-power-") as STATE:
        os.environ["NVEFS_TEST_STATE_DIR"] = STATE
        code = guest.boot_self(machine())
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
