#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A full file system, and a full host below the image."""
import errno
import os

from harness import Case, main, run


class Full(Case):
    def fill(self, chunk=1 << 20):
        """Write unique data until there is no space. What was written, by file."""
        written = {}
        for i in range(100000):
            name = f"fill{i}"
            data = os.urandom(4096) * (chunk // 4096)
            data = b"".join(os.urandom(16) + data[k + 16:k + 4096] for k in range(0, chunk, 4096))
            try:
                fd = os.open(self.path(name), os.O_WRONLY | os.O_CREAT)
            except OSError as e:
                self.assertEqual(e.errno, errno.ENOSPC)
                return written
            try:
                n = 0
                while n < len(data):
                    n += os.write(fd, data[n:])
                os.fsync(fd)
                written[name] = data
            except OSError as e:
                self.assertEqual(e.errno, errno.ENOSPC)
                return written
            finally:
                os.close(fd)
        self.fail("it never became full")

    def df(self):
        s = os.statvfs(self.mnt)
        return s.f_bavail * s.f_bsize

    def full(self, dedup):
        self.mkfs("96M")
        self.mount(f"dedup={dedup}")
        free = self.df()
        written = self.fill()
        self.assertGreater(len(written) << 20, free * 0.9, "ENOSPC came with space left")
        self.assertLess(self.df(), 4 << 20)
        for name, data in written.items():
            self.assertEqual(self.get(name), data)
        # A full file system can still be made smaller, synced, renamed in, and unmounted.
        names = sorted(written)
        os.truncate(self.path(names[0]), 5000)
        os.rename(self.path(names[1]), self.path("renamed"))
        for name in names[2:len(names) // 2]:
            os.unlink(self.path(name))
        run("sync", "-f", self.mnt)
        self.wait_until("space after unlink", lambda: self.df() > (len(names) // 2 - 4) << 20)
        self.put("again", b"x" * (8 << 20))
        self.remount()
        self.assertEqual(self.get("again"), b"x" * (8 << 20))
        self.assertEqual(self.get("renamed"), written[names[1]])
        self.assertEqual(self.get(names[0]), written[names[0]][:5000])
        self.umount()
        self.fsck()

    def test_full_dedup_off(self):
        self.full("off")

    def test_full_dedup_on(self):
        self.full("on")

    def test_filled_again_and_again(self):
        self.mkfs("64M")
        self.mount()
        counts = []
        for _ in range(3):
            counts.append(len(self.fill(256 << 10)))
            for name in os.listdir(self.mnt):
                os.unlink(self.path(name))
            self.wait_until("all space back", lambda: self.stats()["physical_bytes"] == 0)
        self.assertGreater(min(counts), max(counts) * 0.9, counts)
        self.umount()
        self.fsck()

    def test_full_host(self):
        """The image is sparse, and the file system that it lies on fills up: ENOSPC or EIO, no damage."""
        host = os.path.join(self.dir, "host")
        os.mkdir(host)
        run("mount", "-t", "tmpfs", "-o", "size=48M", "tmpfs", host)
        self.img = os.path.join(host, "disk.img")
        try:
            self.mkfs("256M")
            self.mount()
            kept = {}
            for i in range(100):
                data = os.urandom(1 << 20)
                try:
                    self.put(f"f{i}", data)
                    fd = os.open(self.path(f"f{i}"), os.O_RDONLY)
                    os.fsync(fd)
                    os.close(fd)
                    kept[f"f{i}"] = data
                except OSError as e:
                    self.assertIn(e.errno, (errno.ENOSPC, errno.EIO, errno.EROFS))
                    break
            self.assertGreater(len(kept), 10)
            for name, data in kept.items():
                self.assertEqual(self.get(name), data)
            self.umount(check=False)
            run("mount", "-o", "remount,size=400M", host)
            self.mount()
            for name, data in kept.items():
                self.assertEqual(self.get(name), data)
            self.umount()
            self.fsck()
        finally:
            if self.is_mounted():
                self.umount(check=False)
            run("umount", host, check=False)


if __name__ == "__main__":
    main()
