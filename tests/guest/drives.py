# SPDX-License-Identifier: MIT
"""Cases on drives: a target in place of an image file, on whatever route."""
import hashlib
import os
import random
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "fuse"))
from guest import Qmp  # noqa: E402
from harness import CTL, FSCK, MKFS, Case, run  # noqa: E402

TOP = os.path.realpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", ".."))
SLOW = os.environ.get("NVEFS_TEST_SLOW") == "1"  # everything, where otherwise a sample does


class Way:
    """A target and the route that a mount of it takes. `disk` is QEMU's name of what is below."""

    def __init__(self, name, target, route="native", device=None, disk=None):
        self.name, self.target, self.route, self.disk = name, target, route, disk
        self.device = device or target.split(",")[0]  # ways to one device have this in common


def sample(always, others, count=1):
    """The first ones, and some of the others: all of them in the slow set-up, else by the run's seed."""
    if SLOW:
        return list(always) + list(others)
    return list(always) + random.Random(os.environ["NVEFS_TEST_SEED"]).sample(list(others), count)


def controller_node(target):
    """/dev/nvme0 for any node of a namespace of it."""
    return "/dev/" + re.match(r"(?:ng|nvme)(\d+)n", os.path.basename(os.path.realpath(target)))[0][:-1].replace("ng", "nvme")


def tree_digest(directory):
    """One figure for names, contents and links below a directory."""
    h = hashlib.sha256()
    for base, dirs, files in os.walk(directory):
        dirs.sort()
        for name in sorted(files):
            path = os.path.join(base, name)
            h.update(os.path.relpath(path, directory).encode() + b"\0")
            if os.path.islink(path):
                h.update(os.readlink(path).encode())
            else:
                with open(path, "rb") as f:
                    h.update(hashlib.sha256(f.read()).digest())
    return h.hexdigest()


def interrupts(pattern):
    """{name: count} of the lines of /proc/interrupts whose name matches."""
    out = {}
    with open("/proc/interrupts", encoding="utf-8") as f:
        for line in f:
            words = line.split()
            if re.fullmatch(pattern, words[-1]):
                out[words[-1]] = sum(int(w) for w in words[1:] if w.isdigit())
    return out


class Injected:
    """Errors of QEMU's block layer below one disk, for as long as the block lasts."""

    count = 0

    def __init__(self, disk, iotype, errno=5):
        Injected.count += 1
        self.disk, self.node = disk, f"fault{Injected.count}"
        self.rule = {"event": "none", "iotype": iotype, "errno": errno, "once": False}

    def aim(self, target):
        qmp = Qmp()
        qmp.call("qom-set", path=f"/machine/peripheral/{self.disk}-dev", property="drive", value=target)
        qmp.close()

    def __enter__(self):
        qmp = Qmp()
        qmp.call("blockdev-add", **{"driver": "blkdebug", "node-name": self.node, "image": self.disk,
                                    "inject-error": [self.rule]})
        qmp.close()
        self.aim(self.node)

    def __exit__(self, *_):
        self.aim(self.disk)


class DriveCase(Case):
    def make(self, way, *args):
        return run(MKFS, "-q", "-f", *args, way.target)

    def mount_way(self, way, *opts):
        return self.mount(f"route={way.route}", *opts, target=way.target)

    def check(self, way):
        run(FSCK, "-n", "-f", way.target)

    def ctl(self, what):
        return run(CTL, what, self.mnt).stdout

    def fio(self, *args, jobs=1, size="2M"):
        run("fio", "--name=verify", f"--directory={self.mnt}", "--rw=randrw", "--bsrange=4k-64k", f"--size={size}",
            "--ioengine=psync", f"--numjobs={jobs}", "--verify=crc32c", "--verify_fatal=1", "--do_verify=1",
            "--output-format=terse", *args, cwd=self.dir)
