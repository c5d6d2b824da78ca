# SPDX-License-Identifier: MIT
"""Cases on drives: a target in place of an image file, on whatever route."""
import hashlib
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "fuse"))
from harness import CTL, FSCK, MKFS, Case, run  # noqa: E402

TOP = os.path.realpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", ".."))


class Way:
    """A target and the route that a mount of it takes."""

    def __init__(self, name, target, route="native", device=None):
        self.name, self.target, self.route = name, target, route
        self.device = device or target.split(",")[0]  # ways to one device have this in common


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
