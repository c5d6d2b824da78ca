#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Mounting and unmounting: what shows, what waits, what is refused, what is cleared."""
import os
import shutil
import signal
import stat
import subprocess
import sys
import time

from harness import CTL, MKFS, NVEFS, TIMEOUT, UMOUNT, Case, has_ended, main, mounts, next_line, run, started


class Mount(Case):
    def helper(self, *args, check=True):
        """The daemon under the name that mount(8) calls."""
        link = os.path.join(self.dir, "mount.nvefs")
        if not os.path.islink(link):
            os.symlink(os.path.abspath(NVEFS), link)
        return run(link, *args, check=check)

    def kill(self):
        pid = self.pid()
        os.kill(pid, signal.SIGKILL)
        self.wait_until("the daemon's death", lambda: not os.path.exists(f"/proc/{pid}"))

    def test_findmnt_shows_target_and_type(self):
        self.mkfs()
        self.mount()
        mine = [m for m in mounts() if m[0] == self.mnt]
        self.assertEqual([(m[1], m[2]) for m in mine], [("fuse.nvefs", self.img)])
        self.assertNotIn("nosuid", mine[0][3])
        self.assertNotIn("nodev", mine[0][3])

    def test_relative_target_and_mount_point(self):
        self.mkfs()
        run(os.path.abspath(NVEFS), "disk.img", "mnt", cwd=self.dir)
        self.assertIn((self.mnt, "fuse.nvefs", self.img), [m[:3] for m in mounts()])

    def test_target_with_commas_and_options(self):
        name = os.path.join(self.dir, "a,b,iu=64k.img")
        open(name, "wb").close()
        self.mkfs(path=name)
        self.mount(target=name)
        self.assertIn((self.mnt, name), [(m[0], m[2]) for m in mounts()])
        self.umount()
        self.mkfs()
        self.mount(target=self.img + ",queues=8")
        self.assertTrue(self.is_mounted())

    def test_ram(self):
        self.mount(target="ram:256M")
        self.put("f", b"x" * 10000)
        self.assertEqual(self.get("f"), b"x" * 10000)

    def test_umount_waits_for_the_daemon(self):
        self.mkfs()
        for _ in range(3):
            self.mount()
            pid = self.pid()
            self.put("f", os.urandom(8 << 20))
            self.umount()
            # Its last descriptor is closed; what is left of it is the kernel's.
            self.wait_until("the daemon's end", lambda: not self.serving(pid), 1)
            self.mount()
            self.umount()
        self.fsck()

    def test_umount_of_a_busy_mount(self):
        self.mkfs()
        self.mount()
        with open(self.path("f"), "w", encoding="ascii"):
            r = self.umount(check=False)
            self.assertEqual(r.returncode, 32)
            self.assertIn("in use", r.stderr)
        self.umount()

    def test_second_mount_is_refused(self):
        self.mkfs()
        self.mount()
        other = os.path.join(self.dir, "other")
        alias = os.path.join(self.dir, "alias.img")
        link = os.path.join(self.dir, "link.img")
        os.mkdir(other)
        os.link(self.img, alias)
        os.symlink(self.img, link)
        for target in (self.img, alias, link, "file:" + self.img):
            r = self.mount(target=target, mnt=other, check=False)
            self.assertEqual(r.returncode, 32, target)
            self.assertIn("in use", r.stderr)
            self.assertEqual(len(r.stderr.splitlines()), 1, r.stderr)
            self.assertFalse(self.is_mounted(other))
        self.put("f", b"still there")
        self.assertEqual(self.get("f"), b"still there")

    def test_killed_daemon(self):
        self.mkfs()
        self.mount()
        self.put("f", b"durable")
        fd = os.open(self.path("f"), os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        self.kill()
        self.assertRaises(OSError, os.listdir, self.mnt)
        self.mount()
        self.assertEqual([m[0] for m in mounts()].count(self.mnt), 1)
        self.assertEqual(self.get("f"), b"durable")
        self.kill()
        self.umount()
        self.fsck()

    def test_signals_end_it(self):
        self.mkfs()
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self.mount()
            pid = self.pid()
            self.put("f", bytes([sig]) * 100000)
            os.kill(pid, sig)
            self.wait_until(f"end by {sig.name}", lambda: not self.is_mounted() and not self.serving(pid))
            self.mount()
            self.assertEqual(self.get("f"), bytes([sig]) * 100000)
            self.umount()
        self.fsck()

    @staticmethod
    def serving(pid):
        return not has_ended(pid)

    def test_signal_with_open_unlinked_files(self):
        self.mkfs()
        self.mount()
        pid = self.pid()
        fds = []
        for i in range(64):
            fds.append(os.open(self.path(f"f{i}"), os.O_RDWR | os.O_CREAT))
            os.write(fds[-1], b"y" * 5000)
            os.unlink(self.path(f"f{i}"))
        os.kill(pid, signal.SIGTERM)
        self.wait_until("end", lambda: not self.serving(pid))
        for fd in fds:
            os.close(fd)
        self.fsck()
        self.mount()
        self.wait_until("the unlinked files' end", lambda: self.stats()["physical_bytes"] == 0)

    def test_lazy_umount_drains(self):
        self.mkfs()
        self.mount()
        pid = self.pid()
        fds = [os.open(self.path(f"f{i}"), os.O_RDWR | os.O_CREAT) for i in range(64)]
        for i in range(64):
            os.unlink(self.path(f"f{i}"))
        run("umount", "-i", "-l", self.mnt)
        self.assertFalse(self.is_mounted())
        for fd in fds:
            self.assertEqual(os.pwrite(fd, b"z" * 4096, 0), 4096)
            self.assertEqual(os.pread(fd, 4096, 0), b"z" * 4096)
        self.assertTrue(self.serving(pid))
        for fd in fds:
            os.close(fd)
        self.wait_until("end", lambda: not self.serving(pid))
        self.fsck()

    def test_bind_mount_does_not_hang_umount(self):
        self.mkfs()
        self.mount()
        other = os.path.join(self.dir, "other")
        os.mkdir(other)
        run("mount", "--bind", self.mnt, other)
        r = self.umount()
        self.assertIn(f"still mounted elsewhere: at {other}: not waiting", r.stderr)
        self.umount(other)

    def copy_elsewhere(self, program, words):
        """Unmounting, with a copy of the mount in the name space of a program that says a line and stays."""
        self.private_name_spaces()
        self.mkfs("256M", "-f")
        self.mount()
        pid = self.pid()
        with started("unshare", "-m", "--propagation", "private", sys.executable, "-c", program,
                     stdout=subprocess.PIPE) as other:
            next_line(other, other.stdout)
            r = self.umount()
            self.assertIn("not waiting", r.stderr)
            self.assertIn(words.format(mnt=self.mnt, pid=other.pid), r.stderr)
        self.wait_until("the daemon's end", lambda: not self.serving(pid))

    def test_copy_in_another_name_space_does_not_hang_umount(self):
        self.copy_elsewhere("import time; print(flush=True); time.sleep(3600)",
                            "still mounted elsewhere: at {mnt} in the mount name space of process {pid} (python")

    def test_copy_that_a_chroot_hides_does_not_hang_umount(self):
        os.mkdir(os.path.join(self.dir, "root"))
        self.copy_elsewhere(f"import os, time; os.chroot({self.dir!r} + '/root'); print(flush=True); time.sleep(3600)",
                            "by a process that does not show it")

    def rights(self, pid):
        """What the kernel says of each thread: {name: (effective, bounding, no new privileges, seccomp)}."""
        said = {}
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/status", encoding="utf-8") as f:
                status = dict(line.rstrip("\n").split(":\t", 1) for line in f)
            said[status["Name"]] = (int(status["CapEff"], 16) | int(status["CapPrm"], 16), int(status["CapBnd"], 16),
                                    status["NoNewPrivs"], status["Seccomp"])
        return said

    def test_rights_are_given_up(self):
        self.mkfs()
        self.mount()
        pid = self.pid()
        said = self.rights(pid)
        self.assertGreaterEqual(len(said), 4)  # main, commit, background, servers
        self.assertEqual(said.pop("nvefs"), (1 << 21 | 1 << 2, 0, "1", "2"))
        for name, has in said.items():
            self.assertEqual(has, (0, 0, "1", "2"), name)
        # What is left is enough for everything that a mount does.
        self.put("f", b"x" * 100000)
        run("fstrim", self.mnt)
        run(CTL, "scrub", self.mnt)
        with open("/proc/self/mountinfo", encoding="utf-8") as f:
            self.assertIn(self.mnt, f.read())
        os.kill(pid, signal.SIGTERM)
        self.wait_until("end", lambda: not self.serving(pid) and not self.is_mounted())
        self.fsck()

    def test_ordinary_user_without_a_login_session(self):
        uid = "65534"  # fusermount3 wants a user with a name
        user = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "--"]
        if run(*user, NVEFS, "--version", check=False).returncode:
            self.skipTest("the programs lie where an ordinary user may not go")
        if not os.stat(shutil.which("fusermount3")).st_mode & stat.S_ISUID:
            self.skipTest("fusermount3 is not set-user-ID here")
        if run(*user, "test", "-w", "/dev/fuse", check=False).returncode:
            self.skipTest("/dev/fuse is not open to ordinary users here")
        os.chown(self.dir, int(uid), int(uid))
        os.chown(self.mnt, int(uid), int(uid))
        place = f"/tmp/nvefs-{uid}"
        self.addCleanup(shutil.rmtree, place, ignore_errors=True)
        run(*user, MKFS, "-q", "-s", "64M", self.img)
        run(*user, NVEFS, self.img, self.mnt)
        self.assertEqual(len(os.listdir(place)), 1)
        run(*user, "sh", "-c", f"head -c 3000000 /dev/urandom > {self.mnt}/f")
        r = run(*user, UMOUNT, self.mnt)
        self.assertEqual((r.stdout, r.stderr), ("", ""))
        self.fsck()
        # A directory of another's is not trusted: the mount works, and the helper says that it does not wait.
        os.chown(place, 0, 0)
        run(*user, NVEFS, self.img, self.mnt)
        self.assertEqual(os.listdir(place), [])
        self.assertIn("cannot wait", run(*user, UMOUNT, self.mnt).stderr)

    def test_helper_understands_mount(self):
        self.mkfs()
        r = self.helper(self.img, self.mnt, "-n", "-s", "-v", "-o",
                        "rw,noatime,_netdev,nofail,x-systemd.automount,user=root,defaults,strange_word")
        self.assertIn(self.img, r.stdout)
        self.assertTrue(self.is_mounted())
        self.umount()
        self.helper(self.img, self.mnt, "-f")
        self.assertFalse(self.is_mounted())
        r = self.helper(self.img, self.mnt, "-o", "remount,ro", check=False)
        self.assertEqual(r.returncode, 1)
        self.assertIn("remount", r.stderr)
        r = self.helper(self.img, self.mnt, "-o", "strange_word", check=False)
        self.assertEqual(r.returncode, 1)
        self.assertIn("strange_word", r.stderr)

    def test_foreground(self):
        self.mkfs()
        with started(NVEFS, "-f", self.img, self.mnt, stderr=subprocess.PIPE, text=True) as p:
            self.wait_until("the mount", self.is_mounted)
            self.put("f", b"1")
            p.send_signal(signal.SIGTERM)
            said = p.communicate(timeout=TIMEOUT)[1]
        self.assertEqual(p.returncode, 0, said)
        self.assertIn("unmounted", said)

    def test_read_only(self):
        self.mkfs()
        self.mount()
        self.put("f", b"data")
        self.kill()
        before = open(self.img, "rb").read()
        self.mount("ro")
        self.assertEqual(self.get("f") if os.path.exists(self.path("f")) else b"data", b"data")
        for attempt in (lambda: self.put("g", b"1"), lambda: os.mkdir(self.path("d")), lambda: os.chmod(self.mnt, 0)):
            self.assertRaises(OSError, attempt)
        self.umount()
        self.assertEqual(open(self.img, "rb").read(), before, "a read-only mount wrote to the target")

    def test_many_mounts_in_a_row(self):
        self.mkfs("64M")
        start = time.monotonic()
        for i in range(20):
            self.mount("route=scsi" if i % 2 else "route=native", f"queues={1 + i % 4}")
            self.put(f"f{i}", b"a")
            self.umount()
        self.mount()
        self.assertEqual(len(os.listdir(self.mnt)), 20)
        # An end that is not noticed takes until somebody's time limit.
        self.assertLess(time.monotonic() - start, TIMEOUT)


# In a mount name space of its own, where /dev/fuse is open to ordinary users, and later /etc/mtab is missing. One line for each
# umount: its exit code, and what it said. fusermount3 wants a user with a name.
ORDINARY = r"""
mount --make-rprivate / || exit 77
mknod -m 666 "$1/fuse" c 10 229 && mount --bind "$1/fuse" /dev/fuse || exit 77
mkdir "$1/etc"
chown 65534:65534 "$1" "$1/mnt" "$1/disk.img"
as() { setpriv --reuid 65534 --regid 65534 --clear-groups -- "$@"; }
up() { as "$2" "$1/disk.img" "$1/mnt" || exit 1; }
down() { said=$(as timeout 30 "$3" "$1/mnt" 2>&1); echo "$? $said" | tr '\n' ' '; echo; }
as test -r "$1/disk.img" || exit 77
up "$@"
as sh -c 'head -c 3000000 /dev/urandom >"$1"' sh "$1/mnt/f"
down "$@"
up "$@"
unshare -m --propagation private sleep 60 &
while [ "$(readlink /proc/$!/ns/mnt)" = "$(readlink /proc/$$/ns/mnt)" ]; do sleep 0.1; done
down "$@"
kill $!
wait $! 2>/dev/null
while as test -e /tmp/nvefs-65534/*:*; do sleep 0.1; done
up "$@"
mount -t tmpfs tmpfs "$1/etc"
cp -a /etc/passwd /etc/group /etc/ld.so.cache "$1/etc/"
mount --bind "$1/etc" /etc
down "$@"
umount /etc
down "$@"
"""


class OrdinaryUser(Case):
    def test_umount(self):
        """Without a login session; with a copy in the name space of another user's process; without /etc/mtab."""
        self.private_name_spaces()
        if not os.stat(shutil.which("fusermount3")).st_mode & stat.S_ISUID:
            self.skipTest("fusermount3 is not set-user-ID here")
        self.addCleanup(shutil.rmtree, "/tmp/nvefs-65534", ignore_errors=True)
        self.mkfs("64M")
        r = run("unshare", "-m", "bash", "-c", ORDINARY, "bash", self.dir, os.path.abspath(NVEFS), os.path.abspath(UMOUNT),
                check=False)
        if r.returncode == 77:
            self.skipTest("no device node, or programs and files lie where an ordinary user may not go: " + r.stderr)
        lines = r.stdout.splitlines()
        self.assertEqual(len(lines), 4, r.stdout + r.stderr)
        self.assertEqual(lines[0], "0  ")
        self.assertRegex(lines[1], rf"^0 umount.nvefs: {self.mnt}: still mounted elsewhere: at {self.mnt} in the mount name "
                         r"space of process \d+ \(sleep\): not waiting $")
        self.assertRegex(lines[2], "^32 .*fusermount3 wants /etc/mtab")
        self.assertEqual(lines[3], "0  ")
        self.fsck()


# In a mount name space of its own, with the helpers where mount(8) and umount(8) look for them.
HELPERS = r"""
set -e
mount --make-rprivate /
mkdir "$1/over"
mount -t tmpfs tmpfs "$1/over"
mkdir "$1/over/u" "$1/over/w"
mount -t overlay overlay -o "lowerdir=/usr/sbin,upperdir=$1/over/u,workdir=$1/over/w" /usr/sbin || exit 77
ln -s "$2" /usr/sbin/mount.nvefs
ln -s "$3" /usr/sbin/umount.fuse.nvefs
mount -v -t nvefs -o noatime,x-foo.bar=1 "$1/disk.img" "$1/mnt"
findmnt -n -o SOURCE,FSTYPE,OPTIONS "$1/mnt"
dd if=/dev/urandom of="$1/mnt/big" bs=1M count=30 2>/dev/null
umount "$1/mnt"
# The target is free at once: the helper has waited.
echo "$1/disk.img $1/mnt nvefs ro,user,noauto,nofail,_netdev 0 2" >"$1/fstab"
mount -T "$1/fstab" "$1/mnt"
findmnt -n -o OPTIONS "$1/mnt"
cmp -n 1048576 "$1/mnt/big" "$1/mnt/big"
umount "$1/mnt"
mount -t nvefs -o bogus "$1/disk.img" "$1/mnt" || echo "exit $?"
mount -t nvefs "$1/absent.img" "$1/mnt" || echo "exit $?"
"""


class Helpers(Case):
    def test_mount_and_umount_find_their_helpers(self):
        self.private_name_spaces()
        self.mkfs()
        r = run("unshare", "-m", "sh", "-c", HELPERS, "sh", self.dir, os.path.abspath(NVEFS), os.path.abspath(UMOUNT),
                check=False)
        if r.returncode == 77:
            self.skipTest("no overlay file system to put the helpers into /usr/sbin for a moment")
        self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
        for words in (self.img + " fuse.nvefs rw,noatime", "ro,nosuid,nodev,noexec", "exit 1", "exit 32"):
            self.assertIn(words, " ".join(r.stdout.split()))
        self.fsck()


if __name__ == "__main__":
    main()
