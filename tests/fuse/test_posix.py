#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What programs on Linux expect of a file system, one thing at a time."""
import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import stat
import struct
import subprocess
import time

from harness import TIMEOUT, Case, main, run

LIBC = ctypes.CDLL(None, use_errno=True)
KEEP_SIZE, PUNCH, ZERO = 1, 2, 16
NOBODY = 65534


def as_user(fn, uid=NOBODY, gid=NOBODY):
    """Run fn in a child with another identity; its exception comes back as its errno."""
    pid = os.fork()
    if pid == 0:
        code = 255
        try:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            fn()
            code = 0
        except OSError as e:
            code = e.errno or 254
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def fallocate(fd, mode, off, length):
    if LIBC.fallocate(fd, mode, ctypes.c_long(off), ctypes.c_long(length)):
        raise OSError(ctypes.get_errno(), "fallocate")


def renameat2(a, b, flags):
    if LIBC.renameat2(-100, os.fsencode(a), -100, os.fsencode(b), flags):
        raise OSError(ctypes.get_errno(), "renameat2")


class Posix(Case):
    def setUp(self):
        super().setUp()
        self.mkfs("512M")
        self.mount()
        os.chmod(self.mnt, 0o777)

    def tearDown(self):
        if self.is_mounted():
            self.umount()
            self.fsck()
        super().tearDown()

    def fails(self, code, fn, *args):
        with self.assertRaises(OSError) as e:
            fn(*args)
        self.assertEqual(errno.errorcode[e.exception.errno], errno.errorcode[code])

    # ---- names ----

    def test_long_names(self):
        good, bad = "n" * 255, "n" * 256
        self.put(good, b"x")
        self.assertEqual(os.listdir(self.mnt), [good])
        for fn in (lambda: self.put(bad, b"x"), lambda: os.mkdir(self.path(bad)), lambda: os.stat(self.path(bad)),
                   lambda: os.symlink("a", self.path(bad)), lambda: os.link(self.path(good), self.path(bad)),
                   lambda: os.rename(self.path(good), self.path(bad)), lambda: os.unlink(self.path(bad)),
                   lambda: os.rmdir(self.path(bad)), lambda: os.mkfifo(self.path(bad))):
            self.fails(errno.ENAMETOOLONG, fn)
        self.assertEqual(os.listdir(self.mnt), [good])

    def test_kinds_of_files(self):
        os.mkfifo(self.path("fifo"), 0o640)
        os.mknod(self.path("null"), 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        os.mknod(self.path("block"), 0o600 | stat.S_IFBLK, os.makedev(259, 0x12345))
        os.symlink("x" * 4095, self.path("long"))
        self.remount()
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("fifo")).st_mode))
        self.assertEqual(os.stat(self.path("block")).st_rdev, os.makedev(259, 0x12345))
        self.assertEqual(os.readlink(self.path("long")), "x" * 4095)
        with open(self.path("null"), "wb") as f:
            f.write(b"device nodes work for root")

    def test_rename(self):
        for name in "ab":
            self.put(name, name.encode())
        self.fails(errno.EEXIST, renameat2, self.path("a"), self.path("b"), 1)
        renameat2(self.path("a"), self.path("b"), 2)
        self.assertEqual((self.get("a"), self.get("b")), (b"b", b"a"))
        self.fails(errno.EINVAL, renameat2, self.path("a"), self.path("b"), 4)
        with open(self.path("b"), "rb") as f:
            os.rename(self.path("a"), self.path("b"))
            self.assertEqual(os.fstat(f.fileno()).st_nlink, 0)
            self.assertEqual(f.read(), b"a")
        self.assertEqual(self.get("b"), b"b")
        os.makedirs(self.path("d/e"))
        self.fails(errno.EINVAL, os.rename, self.path("d"), self.path("d/e/f"))
        self.fails(errno.ENOTEMPTY, os.rmdir, self.path("d"))

    def test_links(self):
        self.put("a", b"1")
        os.link(self.path("a"), self.path("b"))
        self.assertEqual(os.stat(self.path("a")).st_nlink, 2)
        os.unlink(self.path("a"))
        self.assertEqual((os.stat(self.path("b")).st_nlink, self.get("b")), (1, b"1"))
        self.fails(errno.EPERM, os.link, self.mnt, self.path("c"))

    def test_open_unlinked(self):
        fd = os.open(self.path("f"), os.O_RDWR | os.O_CREAT)
        os.unlink(self.path("f"))
        os.mkdir(self.path("d"))
        d = os.open(self.path("d"), os.O_RDONLY)
        os.rmdir(self.path("d"))
        os.write(fd, b"x" * 100000)
        self.assertEqual(os.pread(fd, 10, 99995), b"x" * 5)
        self.assertEqual(os.fstat(fd).st_nlink, 0)
        self.assertEqual(os.listdir(d), [])
        os.close(fd)
        os.close(d)
        self.wait_until("space back", lambda: self.stats()["physical_bytes"] == 0)

    def test_big_directory(self):
        n = 5000
        for i in range(n):
            os.mknod(self.path(f"file number {i}"))
        names = set()
        with os.scandir(self.mnt) as it:
            for k, e in enumerate(it):
                names.add(e.name)
                if k % 2:
                    os.unlink(e.path)
        self.assertEqual(len(names), n)
        self.assertEqual(len(os.listdir(self.mnt)), n - n // 2)
        shutil.rmtree(self.mnt, ignore_errors=True)
        self.assertEqual(os.listdir(self.mnt), [])

    def test_file_handles(self):
        self.put("f", b"handle")
        os.makedirs(self.path("d/e"))

        class Handle(ctypes.Structure):
            _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("f", ctypes.c_ubyte * 128)]

        for name in ("f", "d/e"):
            h, mount_id = Handle(128), ctypes.c_int()
            if LIBC.name_to_handle_at(-100, os.fsencode(self.path(name)), ctypes.byref(h), ctypes.byref(mount_id), 0):
                raise OSError(ctypes.get_errno(), "name_to_handle_at")
            with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as f:
                f.write("2")
            root = os.open(self.mnt, os.O_RDONLY)
            fd = LIBC.open_by_handle_at(root, ctypes.byref(h), os.O_RDONLY)
            self.assertGreaterEqual(fd, 0, os.strerror(ctypes.get_errno()))
            self.assertEqual(os.fstat(fd).st_ino, os.stat(self.path(name)).st_ino)
            if name == "d/e":
                self.assertEqual(os.readlink(f"/proc/self/fd/{fd}"), self.path(name))
            os.close(fd)
            os.close(root)

    # ---- attributes ----

    def test_times(self):
        self.put("f", b"1")
        os.utime(self.path("f"), ns=(1234567890123456789, 2000000000987654321))
        self.remount()
        st = os.stat(self.path("f"))
        self.assertEqual((st.st_atime_ns, st.st_mtime_ns), (1234567890123456789, 2000000000987654321))
        os.utime(self.path("f"), ns=(-10**9, 0x300000000 * 10**9))
        self.remount()
        st = os.stat(self.path("f"))
        self.assertEqual((st.st_atime_ns, st.st_mtime_ns), (-10**9, 0x300000000 * 10**9))
        before = os.stat(self.mnt).st_mtime_ns
        time.sleep(0.02)
        self.put("g", b"")
        self.assertGreater(os.stat(self.mnt).st_mtime_ns, before)
        os.chmod(self.path("f"), 0o600)
        self.assertGreater(os.stat(self.path("f")).st_ctime_ns, before)

    def test_owner_umask_and_setgid_directories(self):
        os.mkdir(self.path("d"))
        os.chown(self.path("d"), 1, 2)
        os.chmod(self.path("d"), 0o2777)

        def create():
            os.umask(0o027)
            os.mkdir(self.path("d/sub"))
            os.close(os.open(self.path("d/file"), os.O_CREAT, 0o666))

        self.assertEqual(as_user(create), 0)
        st = os.stat(self.path("d/sub"))
        self.assertEqual((st.st_uid, st.st_gid, st.st_mode & 0o7777), (NOBODY, 2, 0o2750))
        st = os.stat(self.path("d/file"))
        self.assertEqual((st.st_uid, st.st_gid, st.st_mode & 0o7777), (NOBODY, 2, 0o640))

    def test_permissions_are_the_kernels(self):
        self.put("secret", b"x")
        os.chmod(self.path("secret"), 0o600)
        self.assertEqual(as_user(lambda: open(self.path("secret"), "rb")), errno.EACCES)
        self.assertEqual(as_user(lambda: os.chmod(self.path("secret"), 0o777)), errno.EPERM)
        self.assertEqual(as_user(lambda: os.chown(self.path("secret"), NOBODY, NOBODY)), errno.EPERM)
        os.mkdir(self.path("tmp"))
        os.chmod(self.path("tmp"), 0o1777)
        self.put("tmp/theirs", b"")
        self.assertEqual(as_user(lambda: os.unlink(self.path("tmp/theirs"))), errno.EPERM)

    def mode(self, name="f"):
        return os.stat(self.path(name)).st_mode & 0o7777

    def test_setuid_is_cleared(self):
        def write():
            with open(self.path("f"), "r+b") as f:
                f.write(b"changed")

        def shorten():
            os.truncate(self.path("f"), 1)

        for change in (write, shorten, lambda: open(self.path("f"), "wb").close()):
            self.put("f", b"program")
            os.chown(self.path("f"), 0, 0)
            os.chmod(self.path("f"), 0o6777)
            self.assertEqual(as_user(change), 0)
            self.assertEqual(self.mode(), 0o777)
        os.chmod(self.path("f"), 0o6777)
        os.chown(self.path("f"), NOBODY, NOBODY)
        self.assertEqual(self.mode(), 0o777)
        os.chmod(self.path("f"), 0o6777)
        write()
        self.assertEqual(self.mode(), 0o6777, "root keeps them")

    def test_setuid_is_cleared_for_exec_at_once(self):
        shutil.copy("/usr/bin/id", self.path("id"))
        with open(self.path("id"), "rb") as f:
            head = f.read(1)
        os.chown(self.path("id"), 0, 0)
        os.chmod(self.path("id"), 0o4777)

        def write_and_run():
            with open(self.path("id"), "r+b") as f:
                f.write(head)
            out = subprocess.run([self.path("id")], capture_output=True, text=True, check=False,
                                 timeout=TIMEOUT).stdout
            os._exit(1 if "euid=0" in out else 0)

        self.assertEqual(as_user(write_and_run), 0)

    def test_extended_attributes(self):
        self.put("f", b"")
        f = self.path("f")
        os.setxattr(f, "user.a", b"1" * 1000)
        os.setxattr(f, "trusted.b", b"")
        os.setxattr(f, "user.big", b"v" * 65536)
        self.fails(errno.EEXIST, os.setxattr, f, "user.a", b"2", os.XATTR_CREATE)
        self.fails(errno.ENODATA, os.setxattr, f, "user.c", b"2", os.XATTR_REPLACE)
        self.fails(errno.ENODATA, os.getxattr, f, "user.c")
        self.fails(errno.ENODATA, os.removexattr, f, "user.c")
        self.remount()
        self.assertEqual(sorted(os.listxattr(f)), ["trusted.b", "user.a", "user.big"])
        self.assertEqual(os.getxattr(f, "user.big"), b"v" * 65536)
        os.removexattr(f, "user.big")
        self.assertEqual(sorted(os.listxattr(f)), ["trusted.b", "user.a"])

    def test_acl(self):
        if not shutil.which("setfacl"):
            self.skipTest("setfacl is not installed")
        self.put("f", b"x")
        os.chmod(self.path("f"), 0o600)
        run("setfacl", "-m", f"u:{NOBODY}:r", self.path("f"))
        self.assertEqual(self.mode(), 0o640)
        self.assertEqual(as_user(lambda: open(self.path("f"), "rb")), 0)
        self.assertEqual(as_user(lambda: open(self.path("f"), "ab")), errno.EACCES)
        os.chmod(self.path("f"), 0o600)
        self.assertEqual(as_user(lambda: open(self.path("f"), "rb")), errno.EACCES)
        os.mkdir(self.path("d"))
        run("setfacl", "-d", "-m", f"u:{NOBODY}:rwx,g::rx,o::-", self.path("d"))
        os.umask(0o022)
        self.put("d/f", b"")
        os.mkdir(self.path("d/e"))
        self.remount()
        out = run("getfacl", "-n", "-p", self.path("d/f"), self.path("d/e")).stdout
        self.assertIn(f"user:{NOBODY}:rwx", out)
        self.assertIn(f"default:user:{NOBODY}:rwx", out)
        self.assertEqual(self.mode("d/f"), 0o640)
        run("setfacl", "-b", self.path("f"))
        self.assertEqual(os.listxattr(self.path("f")), [])

    def test_acl_and_setgid(self):
        """An access ACL set by an owner who is not in the file's group takes the setgid bit away, and by no one else."""
        def acl(group):  # user::rwx user:NOBODY:r-x group::group mask::rwx other::---; or without the named user
            entries = [(1, 7, -1), (4, group, -1), (0x20, 0, -1)]
            if group == 5:
                entries[1:1] = [(2, 5, NOBODY)]
                entries[3:3] = [(0x10, 7, -1)]
            return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *e) for e in entries)

        def set_as(group, groups, name="system.posix_acl_access"):
            os.chown(path, NOBODY, 4000)
            os.chmod(path, 0o2770)
            pid = os.fork()
            if not pid:
                try:
                    os.setgroups(groups)
                    os.setresgid(3000, 3000, 3000)
                    os.setresuid(NOBODY, NOBODY, NOBODY)
                    os.setxattr(path, name, acl(group))
                    os._exit(0)
                except OSError as e:
                    os._exit(e.errno)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
            return os.stat(path).st_mode & 0o7777

        self.put("f", b"x")
        os.mkdir(self.path("d"))
        for path in self.path("f"), self.path("d"):
            for group in 5, 6:  # one that is kept, one that only sets the mode
                self.assertEqual(set_as(group, []), 0o770 if group == 5 else 0o760)
                self.assertEqual(set_as(group, [4000]), 0o2770 if group == 5 else 0o2760)
        self.assertEqual(set_as(5, [], "system.posix_acl_default"), 0o2770)
        os.setxattr(path, "system.posix_acl_access", acl(5))  # privileged
        self.assertEqual(os.stat(path).st_mode & 0o7777, 0o2770)
        set_as(5, [])
        self.remount()
        self.assertEqual(os.stat(path).st_mode & 0o7777, 0o770)
        self.assertEqual(os.getxattr(path, "system.posix_acl_access"), acl(5))

    # ---- data ----

    def test_sparse_and_huge(self):
        fd = os.open(self.path("f"), os.O_RDWR | os.O_CREAT)
        os.pwrite(fd, b"end", 16 << 40)
        self.assertEqual(os.fstat(fd).st_size, (16 << 40) + 3)
        self.assertLess(os.fstat(fd).st_blocks, 64)
        self.assertEqual(os.pread(fd, 10, (16 << 40) - 5), b"\0" * 5 + b"end")
        os.ftruncate(fd, 999999999999999)
        self.assertEqual(os.fstat(fd).st_size, 999999999999999)
        os.ftruncate(fd, 0)
        self.assertEqual(os.fstat(fd).st_size, 0)
        os.close(fd)

    def test_truncate_up_after_down_shows_zeros(self):
        self.put("f", b"a" * 10000)
        os.truncate(self.path("f"), 4100)
        os.truncate(self.path("f"), 9000)
        self.assertEqual(self.get("f"), b"a" * 4100 + b"\0" * 4900)
        self.remount()
        self.assertEqual(self.get("f"), b"a" * 4100 + b"\0" * 4900)

    def test_fallocate(self):
        fd = os.open(self.path("f"), os.O_RDWR | os.O_CREAT)
        fallocate(fd, 0, 0, 1 << 20)
        self.assertEqual(os.fstat(fd).st_size, 1 << 20)
        self.assertGreaterEqual(os.fstat(fd).st_blocks, 2048)
        fallocate(fd, KEEP_SIZE, 1 << 20, 1 << 20)
        self.assertEqual(os.fstat(fd).st_size, 1 << 20)
        os.pwrite(fd, b"x" * 65536, 0)
        fallocate(fd, PUNCH | KEEP_SIZE, 4096, 8192)
        fallocate(fd, ZERO, 20001, 1)
        fallocate(fd, PUNCH | KEEP_SIZE, 30000, 5000)
        want = bytearray(b"x" * 65536)
        want[4096:4096 + 8192] = bytes(8192)
        want[20001:20002] = bytes(1)
        want[30000:35000] = bytes(5000)
        self.assertEqual(os.pread(fd, 65536, 0), bytes(want))
        self.fails(errno.EOPNOTSUPP, fallocate, fd, 8, 0, 4096)
        self.fails(errno.EOPNOTSUPP, fallocate, fd, 32, 0, 4096)
        os.close(fd)
        self.remount()
        self.assertEqual(self.get("f")[:65536], bytes(want))

    def test_seek_hole_and_data(self):
        fd = os.open(self.path("f"), os.O_RDWR | os.O_CREAT)
        os.pwrite(fd, b"d" * 4096, 1 << 20)
        os.ftruncate(fd, 2 << 20)
        self.assertEqual(os.lseek(fd, 0, os.SEEK_DATA), 1 << 20)
        self.assertEqual(os.lseek(fd, 1 << 20, os.SEEK_HOLE), (1 << 20) + 4096)
        self.assertEqual(os.lseek(fd, 0, os.SEEK_HOLE), 0)
        self.fails(errno.ENXIO, os.lseek, fd, (1 << 20) + 4096, os.SEEK_DATA)
        self.fails(errno.ENXIO, os.lseek, fd, 2 << 20, os.SEEK_HOLE)
        os.close(fd)

    def test_copy_file_range_shares(self):
        data = os.urandom(4 << 20)
        self.put("a", data)
        a = os.open(self.path("a"), os.O_RDONLY)
        b = os.open(self.path("b"), os.O_RDWR | os.O_CREAT)
        os.fsync(a)
        before = self.stats()["physical_bytes"]
        done = 0
        while done < len(data):
            n = os.copy_file_range(a, b, len(data) - done, done, done)
            self.assertGreater(n, 0)
            done += n
        os.fsync(b)
        self.assertEqual(self.get("b"), data)
        st = self.stats()
        self.assertLess(st["physical_bytes"] - before, 65536)
        self.assertGreaterEqual(st["shared_bytes"], 4 << 20)
        os.pwrite(b, b"!", 12345)
        self.assertEqual(self.get("a"), data)
        self.assertEqual(self.get("b"), data[:12345] + b"!" + data[12346:])
        os.close(a)
        os.close(b)

    def test_shared_mapping(self):
        self.put("f", b"a" * 20000)
        with open(self.path("f"), "r+b") as f, mmap.mmap(f.fileno(), 20000) as m:
            m[5000:5005] = b"hello"
            m.flush()
            self.assertEqual(os.pread(f.fileno(), 5, 5000), b"hello")
            os.pwrite(f.fileno(), b"world", 6000)
            self.assertEqual(m[6000:6005], b"world")
            m[7000] = ord("z")
        self.remount()
        self.assertEqual(self.get("f")[7000:7001], b"z")

    def test_direct_and_sync(self):
        fd = os.open(self.path("f"), os.O_RDWR | os.O_CREAT | os.O_DIRECT)
        buf = mmap.mmap(-1, 1 << 20)
        buf.write(os.urandom(1 << 20))
        self.assertEqual(os.pwritev(fd, [buf], 0), 1 << 20)
        back = mmap.mmap(-1, 1 << 20)
        self.assertEqual(os.preadv(fd, [back], 0), 1 << 20)
        self.assertEqual(back[:], buf[:])
        os.close(fd)
        before = self.stats()["device"]["flushes"] + self.stats()["journal"]["commits"]
        self.put("g", b"x", os.O_WRONLY | os.O_CREAT | os.O_DSYNC)
        self.assertGreater(self.stats()["device"]["flushes"] + self.stats()["journal"]["commits"], before)

    def test_append_by_two(self):
        self.put("f", b"")
        fds = [os.open(self.path("f"), os.O_WRONLY | os.O_APPEND) for _ in range(2)]
        for i in range(200):
            os.write(fds[i % 2], b"%05d\n" % i)
        self.assertEqual(self.get("f"), b"".join(b"%05d\n" % i for i in range(200)))
        for fd in fds:
            os.close(fd)

    def test_tmpfile(self):
        os.umask(0o027)
        fd = os.open(self.mnt, os.O_TMPFILE | os.O_RDWR, 0o666)
        os.write(fd, b"nameless")
        st = os.fstat(fd)
        self.assertEqual((st.st_nlink, st.st_size, st.st_mode), (0, 8, stat.S_IFREG | 0o640))
        self.assertEqual(os.listdir(self.mnt), [])
        self.assertEqual(os.pread(fd, 100, 0), b"nameless")
        self.assertEqual(LIBC.linkat(-100, f"/proc/self/fd/{fd}".encode(), -100, os.fsencode(self.path("named")), 0x400),
                         0, os.strerror(ctypes.get_errno()))
        os.close(fd)
        self.assertEqual(self.get("named"), b"nameless")
        self.assertEqual(as_user(lambda: os.close(os.open(self.mnt, os.O_TMPFILE | os.O_RDWR, 0o600))), 0)
        for _ in range(10):
            os.close(os.open(self.mnt, os.O_TMPFILE | os.O_RDWR, 0o600))
        self.wait_until("nameless files' end", lambda: self.stats()["inodes"] == 2)

    def test_birth_time(self):
        before = time.time() - 1
        self.put("f", b"")
        os.utime(self.path("f"), (1, 1))
        self.remount()
        out = run("stat", "-c", "%.W %.Y", self.path("f")).stdout.split()
        self.assertGreater(float(out[0]), before)
        self.assertLess(float(out[0]), time.time() + 1)
        self.assertEqual(float(out[1]), 1)

    def test_locks(self):
        self.put("f", b"")
        with open(self.path("f"), "r+b") as f:
            fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)

            def lock():
                with open(self.path("f"), "r+b") as g:
                    fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB)

            self.assertIn(as_user(lock, 0, 0), (errno.EAGAIN, errno.EACCES))

    def test_unknown_ioctl(self):
        self.put("f", b"")
        with open(self.path("f"), "rb") as f:
            self.fails(errno.ENOTTY, fcntl.ioctl, f, 0x80086601, struct.pack("l", 0))
            self.fails(errno.ENOTTY, fcntl.ioctl, f, 0x5401, bytes(64))


if __name__ == "__main__":
    main()
