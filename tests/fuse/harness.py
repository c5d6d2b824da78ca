# SPDX-License-Identifier: MIT
"""What the tests of the mounted file system share: programs, images, mounts, and their end."""
import atexit
import contextlib
import faulthandler
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

# Seconds for whatever has to happen: who needs longer hangs. Far above what an idle machine needs.
TIMEOUT = float(os.environ.get("NVEFS_TEST_TIMEOUT", "180"))

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


@contextlib.contextmanager
def started(*args, **kw):
    """A program that runs beside the test, and not for longer than it: whatever fails, nobody waits for it without end."""
    with subprocess.Popen([str(a) for a in args], **kw) as p:
        try:
            yield p
        finally:
            if p.poll() is None:
                os.killpg(p.pid, signal.SIGKILL) if kw.get("start_new_session") else p.kill()


def next_line(p, stream):
    """The next line of a program that was started; when none comes it is ended, and the test fails."""
    timer = threading.Timer(TIMEOUT, p.kill)
    timer.start()
    try:
        line = stream.readline()
    finally:
        timer.cancel()
    if not line:
        raise AssertionError(f"{p.args}: no further line within {TIMEOUT} s, or it ended: exit {p.poll()}")
    return line


def has_ended(pid):
    """Also when nobody has asked for its exit status yet; not while another of its threads holds its files."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            state = f.read().rsplit(")", 1)[1].split()[0]
        return state == "Z" and len(os.listdir(f"/proc/{pid}/task")) == 1
    except OSError:
        return True


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
        janitor.told(self.dir)
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

    def wait_until(self, what, condition, seconds=TIMEOUT):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                self.fail(f"{what}: not within {seconds} s")
            time.sleep(0.01)


def clean(directory):
    """Take away all mounts below a directory, wait for their daemons, then remove it."""
    for m in reversed(mounts()):
        if m[0].startswith(directory + "/"):
            try:
                done = not subprocess.run([UMOUNT, m[0]], capture_output=True, timeout=TIMEOUT, check=False).returncode
            except subprocess.TimeoutExpired:
                print(f"umount.nvefs {m[0]}: not within {TIMEOUT} s", file=sys.stderr)
                done = False
            if not done:
                subprocess.run(["umount", "-i", "-l", m[0]], capture_output=True, timeout=TIMEOUT, check=False)
    shutil.rmtree(directory, ignore_errors=True)


def users(directory):
    """Processes whose command lines name a directory or something in it."""
    name, out = re.compile(re.escape(directory.encode()) + rb"[/\0]"), []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if name.search(f.read()):
                    out.append(int(pid))
        except OSError:
            pass
    return out


class Janitor:
    """
    Takes away what a test program leaves that is ended in the middle, as meson does after a time limit: mounts,
    daemons and other programs that name the test's directory. A process of its own, which sees the other end of its pipe
    closed whatever the end was.
    """

    def __init__(self):
        self.pipe = None

    def start(self):
        end, self.pipe = os.pipe()
        pid = os.fork()
        if pid:
            os.close(end)
            return
        status = 1
        try:
            os.close(self.pipe)
            os.setsid()
            # Not ours: whoever reads what the test says waits for the last one that could write.
            null = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(null, fd)
            with os.fdopen(end, encoding="utf-8") as f:
                directories = f.read().split("\n")
            for directory in filter(os.path.isdir, directories):
                self.take_away(directory)
            status = 0
        finally:
            os._exit(status)

    def told(self, directory):
        if self.pipe is not None:
            os.write(self.pipe, (directory + "\n").encode())

    @staticmethod
    def take_away(directory):
        end = time.monotonic() + 5  # in which a daemon writes what it has; and a program may just be mounting
        while True:
            late = time.monotonic() > end
            for pid in users(directory) if late else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            below = [m[0] for m in reversed(mounts()) if m[0].startswith(directory + "/")]
            for mnt in below:
                subprocess.run(["umount", "-i", "-l", mnt], timeout=TIMEOUT, check=False)
            if not below and not users(directory) or time.monotonic() > end + TIMEOUT:
                break
            time.sleep(0.1)
        shutil.rmtree(directory, ignore_errors=True)


janitor = Janitor()


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
    """Run the tests of the program's own file, and exit. Ended by a time limit: it says where it stood."""
    faulthandler.register(signal.SIGTERM, file=sys.stdout, chain=True)
    # A shell lets its background jobs ignore it, and so would the programs under test.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    janitor.start()
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
