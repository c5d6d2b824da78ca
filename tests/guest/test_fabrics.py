#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""NVMe over Fabrics: the guest's own target, over TCP on its loopback, in front of its emulated namespaces."""
import errno
import glob
import os
import shutil
import subprocess
import time

from guest import Disk, Machine, Nvme, main, node
from drives import SLOW, TOP, DriveCase, Way, sample, tree_digest
from harness import CTL, FSCK, MKFS, run

MACHINE = Machine(nvme=[Nvme(Disk("96M"), Disk("96M", lba=4096))], modprobe=["configfs", "nvmet-tcp", "nvme-tcp"],
                  limit=600)

CONFIG = "/sys/kernel/config/nvmet"
NQN = "nqn.2026-01.test.nvefs"
BEHIND = {1: "/dev/test/nvme0-1", 2: "/dev/test/nvme0-2"}
LOSS_SECONDS = 10  # how long the host tries to reach a target that is away
TREE = os.path.join(TOP, "src", "nvme")


def put(path, text):
    with open(os.path.join(CONFIG, path), "w", encoding="utf-8") as f:
        f.write(text)


class Target:
    """The kernel's NVMe target with its namespaces, on 127.0.0.1."""

    subsystem = f"subsystems/{NQN}"
    link = f"{CONFIG}/ports/1/{subsystem}"

    @classmethod
    def start(cls):
        if not os.path.exists(CONFIG):
            run("mount", "-t", "configfs", "configfs", "/sys/kernel/config")
        os.mkdir(f"{CONFIG}/{cls.subsystem}")
        put(cls.subsystem + "/attr_allow_any_host", "1")
        for number, device in BEHIND.items():
            os.mkdir(f"{CONFIG}/{cls.subsystem}/namespaces/{number}")
            put(f"{cls.subsystem}/namespaces/{number}/device_path", node(device))
            cls.enable(number, True)
        os.mkdir(f"{CONFIG}/ports/1")
        for name, value in {"adrfam": "ipv4", "trtype": "tcp", "traddr": "127.0.0.1", "trsvcid": "4420"}.items():
            put(f"ports/1/addr_{name}", value)
        cls.listen(True)

    @classmethod
    def enable(cls, number, on):
        put(f"{cls.subsystem}/namespaces/{number}/enable", "1" if on else "0")

    @classmethod
    def listen(cls, on):
        if on:
            os.symlink(f"{CONFIG}/{cls.subsystem}", cls.link)
        else:
            os.unlink(cls.link)


def connect():
    run("nvme", "connect", "-t", "tcp", "-a", "127.0.0.1", "-s", "4420", "-n", NQN, "-l", LOSS_SECONDS, "-c", 1)


def attribute(path):
    """What sysfs says, or None while the thing is coming or going."""
    try:
        with open(path, encoding="utf-8") as f:
            return f.read().strip()
    except OSError:
        return None


def connected():
    return any(attribute(name) == NQN for name in glob.glob("/sys/class/nvme/nvme*/subsysnqn"))


def remote(size):
    """The ng node of the connected namespace with this LBA size, or None. Its number may change when it comes back."""
    for subsystem in glob.glob("/sys/class/nvme-subsystem/*"):
        if attribute(subsystem + "/subsysnqn") != NQN:
            continue
        for head in glob.glob(subsystem + "/nvme*n*"):
            generic = "/dev/ng" + os.path.basename(head)[4:]
            if attribute(head + "/queue/logical_block_size") == str(size) and os.path.exists(generic):
                return generic
    return None


def threads_of(pid):
    """Where each thread is in the kernel."""
    return "\n".join(f"{attribute(task + '/comm')}: {attribute(task + '/wchan')}" for task in glob.glob(f"/proc/{pid}/task/*"))


class Fabrics(DriveCase):
    @classmethod
    def setUpClass(cls):
        Target.start()
        connect()

    def setUp(self):
        super().setUp()
        self.set_up_target()

    def set_up_target(self):
        """Whatever the last test left."""
        if self.is_mounted():
            self.umount(check=False)
        for number in BEHIND:
            Target.enable(number, True)
        if not os.path.exists(Target.link):
            Target.listen(True)
        if not connected():
            connect()
        self.wait_until("both namespaces are there", lambda: remote(512) and remote(4096), seconds=60)

    def test_told(self):
        """The queues are those of the path: the node of a namespace with several has none."""
        self.assertIn("hardware queues 2,", run(MKFS, "-n", "-f", remote(512)).stdout)

    def ways(self):
        """(how it is reached over the fabric, how what is behind the target is reached)."""
        ng, ng4k = remote(512), remote(4096)
        local = Way("the drive itself", "/dev/test/ng0-1"), Way("the drive itself", "/dev/test/ng0-2")
        return sample([(Way("fabric by io_uring", ng), local[0])],
                      [(Way("fabric by ioctl", ng.replace("ng", "nvme") + ",passthrough=ioctl"), local[0]),
                       (Way("fabric by the scsi route", ng, route="scsi"), local[0]),
                       (Way("fabric, LBA 4096", ng4k), local[1])])

    def test_work(self):
        """As on a drive; and what was written is read on the drive behind the target."""
        want = tree_digest(TREE)
        for way, local in self.ways():
            with self.subTest(way.name):
                self.make(way)
                self.mount_way(way)
                shutil.copytree(TREE, self.path("tree"), symlinks=True)
                self.fio(jobs=2)
                run(CTL, "trim", self.mnt)
                run(CTL, "scrub", self.mnt)
                st = self.stats()
                self.assertEqual((st["device"]["errors"], st["errors"]["checksum"]), (0, 0))
                self.umount()
                self.check(way)
                self.mount_way(local, "ro")
                self.assertEqual(tree_digest(self.path("tree")), want)
                self.umount()
                self.check(local)

    def prepare(self, way):
        self.make(way)
        self.mount_way(way, "commit=300")
        self.daemon = self.pid()
        self.data = os.urandom(200000)
        self.put("old", self.data)
        run("sync", self.path("old"))

    def load(self, seconds):
        return subprocess.Popen(
            ["fio", "--name=load", f"--directory={self.mnt}", "--rw=randrw", "--bs=16k", "--size=2M", "--fsync=8",
             "--ioengine=psync", "--verify=crc32c", "--verify_fatal=1", "--time_based", f"--runtime={seconds}"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.dir)

    def ended(self, fio):
        """What it said. Far later than any bound of ours: a hang."""
        try:
            return fio.communicate(timeout=150)[0]
        except subprocess.TimeoutExpired:
            fio.kill()
            self.fail(f"fio hangs; the daemon's threads wait in:\n{threads_of(self.daemon)}")

    def sync(self, name):
        fd = os.open(self.path(name), os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def back_again(self, back):
        """After the target was gone: read-only, unmounted without a wait; when it is back, all that was durable is there."""
        with self.assertRaises(OSError) as caught:
            os.mkdir(self.path("name"))
            self.sync("name")
        self.assertIn(caught.exception.errno, (errno.EIO, errno.EROFS))
        self.assertTrue(self.stats()["read_only"])
        begun = time.monotonic()
        self.umount(check=False)
        self.assertLess(time.monotonic() - begun, 60)
        self.assertFalse(self.is_mounted())
        back()
        self.wait_until("the namespace is back", lambda: remote(512), seconds=60)
        way = Way("fabric", remote(512))
        self.mount_way(way)
        self.assertEqual(self.get("old"), self.data)
        self.put("new", b"n" * 5000)
        self.umount()
        r = run(FSCK, "-n", "-f", way.target, check=False)
        self.assertEqual(r.returncode, 0, r.stdout + r.stderr)

    def gone(self, away, back):
        """The target goes while fio works: errors and no hang."""
        self.prepare(Way("fabric", remote(512)))
        fio = self.load(300)
        time.sleep(2)
        away()
        said = self.ended(fio)
        self.assertNotEqual(fio.returncode, 0, said)
        self.back_again(back)

    def namespace_gone(self):
        self.gone(lambda: Target.enable(1, False), lambda: Target.enable(1, True))

    def gone_unnoticed(self):
        """No path is left when a large write comes: one error soon, and not first one for each half of a half."""
        self.prepare(Way("fabric", remote(512)))
        Target.enable(1, False)
        self.wait_until("the namespace is gone", lambda: not remote(512), seconds=60)
        refused = self.stats()["device"]["refused_for_size"]
        with self.assertRaises(OSError) as caught:
            self.put("late", b"l" * (4 << 20))
            self.sync("late")
        self.assertIn(caught.exception.errno, (errno.EIO, errno.EROFS))
        self.assertEqual(self.stats()["device"]["refused_for_size"], refused)
        self.back_again(lambda: Target.enable(1, True))

    def connection_lost(self):
        """For longer than the host tries: the controller is taken away."""
        def back():
            Target.listen(True)
            connect()
        self.gone(lambda: Target.listen(False), back)

    def test_gone(self):
        for case in sample((), (self.namespace_gone, self.gone_unnoticed, self.connection_lost)):
            with self.subTest(case.__name__):
                self.set_up_target()
                case()

    def test_connection_back_in_time(self):
        """The host reaches the target again: commands have waited or are tried again, and nobody notices."""
        way = Way("fabric", remote(512))
        self.prepare(way)
        fio = self.load(8 if SLOW else 5)
        for _ in range(2 if SLOW else 1):
            time.sleep(2)
            Target.listen(False)
            time.sleep(1)
            Target.listen(True)
        said = self.ended(fio)
        self.assertEqual(fio.returncode, 0, said)
        st = self.stats()
        self.assertFalse(st["read_only"])
        self.umount()
        self.check(way)


if __name__ == "__main__":
    main(MACHINE)
