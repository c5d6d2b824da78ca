# SPDX-License-Identifier: MIT
"""What the tests of the mounted file system share: programs, images, mounts, and their end."""
import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

TIMEOUT = float(os.environ.get("NVEFS_TEST_TIMEOUT", "60"))

ROUTES = ("native", "scsi")
SWITCH = ("off", "on")


def use_build(build):
    """Take the programs from this build directory."""
    global BUILD, NVEFS, UMOUNT, CTL, DUMP, MKFS, POKE, FSCK, TUNE
    BUILD = build
    NVEFS = os.path.join(BUILD, "src/fuse/nvefs")
    UMOUNT = os.path.join(BUILD, "src/fuse/umount.nvefs")
    CTL = os.path.join(BUILD, "src/ctl/nvefsctl")
    DUMP = os.path.join(BUILD, "src/ctl/dump.nvefs")
    MKFS = os.path.join(BUILD, "mkfs/mkfs.nvefs")
    POKE = os.path.join(BUILD, "tests/fuse/poke")
    FSCK = os.path.join(BUILD, "fsck/fsck.nvefs")
    TUNE = os.path.join(BUILD, "src/ctl/tune.nvefs")


use_build(os.environ.get("NVEFS_BUILD") or os.path.join(os.path.dirname(__file__), "..", "..", "build"))


def why_not():
    """Why these tests cannot run here, or None."""
    if os.geteuid() != 0:
        return "needs root to mount"
    if not os.path.exists("/dev/fuse"):
        return "there is no /dev/fuse"
    for program in (NVEFS, UMOUNT, CTL, MKFS):
        if not os.path.exists(program):
            return f"{program} has not been built"
    return None


def run(*args, check=True, timeout=None, **kw):
    """Run a program; on failure show what it said."""
    r = subprocess.run([str(a) for a in args], capture_output=True, text=True, errors="surrogateescape",
                       timeout=timeout or TIMEOUT, check=False, **kw)
    if check and r.returncode:
        raise AssertionError(f"{' '.join(map(str, args))}: exit {r.returncode}\n{r.stdout}{r.stderr}")
    return r


def mounts():
    """(mount point, type, source) of all mounts, oldest first; asks no file system."""
    out = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as f:
        for line in f:
            words = line.split()
            dash = words.index("-")
            out.append((words[4], words[dash + 1], words[dash + 2], words[5], words[2]))
    return out


class Case(unittest.TestCase):
    """A test with a directory of its own, in which whatever it mounts is unmounted at the end."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="nvefs-test-")
        self.mnt = os.path.join(self.dir, "mnt")
        self.img = os.path.join(self.dir, "disk.img")
        os.chmod(self.dir, 0o755)
        os.mkdir(self.mnt)
        atexit.register(clean, self.dir)

    def tearDown(self):
        clean(self.dir)

    def mkfs(self, size="256M", *args, path=None):
        return run(MKFS, "-q", "-s", size, *args, path or self.img)

    def mount(self, *opts, target=None, mnt=None, check=True):
        """Mount; what the daemon says comes back."""
        args = [NVEFS, target or self.img, mnt or self.mnt]
        if opts:
            args += ["-o", ",".join(opts)]
        return run(*args, check=check)

    def umount(self, mnt=None, check=True):
        """By the helper, which waits for the daemon."""
        return run(UMOUNT, mnt or self.mnt, check=check)

    def remount(self, *opts):
        self.umount()
        self.mount(*opts)

    def fsck(self):
        """Clean, or the test fails. Without fsck.nvefs nothing is known, which is no failure here."""
        if os.path.exists(FSCK):
            run(FSCK, "-n", "-f", self.img)

    def stats(self, mnt=None):
        return json.loads(run(CTL, "stats", "--json", mnt or self.mnt).stdout)

    def info(self, mnt=None):
        return json.loads(run(CTL, "info", "--json", mnt or self.mnt).stdout)

    def pid(self, mnt=None):
        return self.info(mnt)["daemon_pid"]

    def is_mounted(self, mnt=None):
        return any(m[0] == (mnt or self.mnt) for m in mounts())

    def path(self, *names):
        return os.path.join(self.mnt, *names)

    def put(self, name, data, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
        fd = os.open(self.path(name), flags, 0o644)
        try:
            done = 0
            while done < len(data):
                done += os.write(fd, data[done:])
        finally:
            os.close(fd)

    def get(self, name):
        with open(self.path(name), "rb") as f:
            return f.read()

    def private_name_spaces(self):
        r = run("unshare", "-m", "--propagation", "private", "true", check=False)
        if r.returncode:
            self.skipTest("no private mount name space, as in a chroot whose root is no mount point: " + r.stderr.strip())

    def wait_until(self, what, condition, seconds=20.0):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                self.fail(f"{what}: not within {seconds} s")
            time.sleep(0.01)


def clean(directory):
    """Take away all mounts below a directory, wait for their daemons, then remove it."""
    for m in reversed(mounts()):
        if m[0].startswith(directory + "/"):
            if subprocess.run([UMOUNT, m[0]], capture_output=True, timeout=TIMEOUT, check=False).returncode:
                subprocess.run(["umount", "-i", "-l", m[0]], capture_output=True, check=False)
    shutil.rmtree(directory, ignore_errors=True)


class Lines(unittest.TextTestResult):
    """One line for each test, as tests/summary.py counts them: however many of its subtests fail, it has failed once."""

    running = None
    failed = False

    def startTest(self, test):
        super().startTest(test)
        self.running = test
        self.failed = False

    def fail(self, test):
        """At once, so that a test that hangs later is seen to have failed; but not again."""
        if test is not self.running or not self.failed:  # it is not, where the set-up of a whole class fails
            self.say("FAIL", test)
        self.failed = True

    def say(self, kind, test, why=""):
        self.stream.writeln(f"{kind}: {test.id().replace('__main__.', '')}{': ' + why if why else ''}")
        self.stream.flush()

    def addSuccess(self, test):
        super().addSuccess(test)
        self.say("PASS", test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.fail(test)

    def addError(self, test, err):
        super().addError(test, err)
        self.fail(test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say("SKIP", test, reason)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.fail(test)

    def printErrorList(self, flavour, errors):
        """Not with unittest's own headings: they begin like the lines above, and would count again."""
        for test, text in errors:
            self.stream.writeln(f"--- {test.id()}\n{text}")


def run_tests():
    """Run the tests of the program's own file, and exit."""
    runner = unittest.TextTestRunner(stream=sys.stdout, resultclass=Lines, verbosity=0)
    program = unittest.main(module="__main__", exit=False, testRunner=runner)
    sys.exit(0 if program.result.wasSuccessful() else 1)


def main():
    """For `if __name__ == "__main__"`: run the file's tests; 77 when they cannot run."""
    reason = why_not()
    if reason:
        print(f"SKIP: {reason}")
        sys.exit(77)
    run_tests()
