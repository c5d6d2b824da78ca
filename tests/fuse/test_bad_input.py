#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each kind of bad input: one clear line, the right exit code, nothing mounted, nothing changed."""
import errno
import hashlib
import os

from harness import NVEFS, POKE, Case, main, run

USAGE, FAIL = 1, 32


def digest(path):
    """Of the size and of all that is not a hole, with its place."""
    h = hashlib.sha256()
    with open(path, "rb") as f:
        end, at = os.fstat(f.fileno()).st_size, 0
        h.update(str(end).encode())
        while at < end:
            try:
                at = os.lseek(f.fileno(), at, os.SEEK_DATA)
            except OSError as e:
                if e.errno != errno.ENXIO:
                    raise
                break
            stop = os.lseek(f.fileno(), at, os.SEEK_HOLE)
            while at < stop:
                data = os.pread(f.fileno(), min(1 << 20, stop - at), at)
                # Zeros may as well be a hole.
                for k in range(0, len(data), 4096):
                    if any(data[k:k + 4096]):
                        h.update(str(at + k).encode() + data[k:k + 4096])
                at += len(data)
    return h.hexdigest()


class BadInput(Case):
    def refuse(self, code, words, *args, target=None):
        """The daemon says no: its exit code, one line with these words, the target as it was."""
        target = target or self.img
        path = target.split(",")[0]
        before = digest(path) if os.path.isfile(path) else None
        r = run(NVEFS, target, self.mnt, *args, check=False)
        self.assertEqual(r.returncode, code, r.stderr)
        lines = r.stderr.splitlines()
        self.assertEqual(len(lines), 1, r.stderr)
        self.assertTrue(lines[0].startswith("nvefs: "), lines)
        for word in words:
            self.assertIn(word.lower(), lines[0].lower())
        self.assertFalse(self.is_mounted())
        if before:
            self.assertEqual(digest(path), before, "the target was changed")

    def change(self, offset, data):
        """Bytes in all three superblocks, checksums made right again by mkfs's own rule is not wanted."""
        size = os.path.getsize(self.img)
        with open(self.img, "r+b") as f:
            for block in (0, 4096, size - 4096):
                f.seek(block + offset)
                f.write(data)

    def test_absent(self):
        self.refuse(FAIL, [self.img, "no such file"])

    def test_directory_as_target(self):
        self.refuse(FAIL, [self.dir], target=self.dir)

    def test_character_device_as_target(self):
        self.refuse(FAIL, ["/dev/null"], target="/dev/null")

    def test_empty_and_small(self):
        for size in (0, 1, 4096, 1 << 20):
            with open(self.img, "wb") as f:
                f.truncate(size)
            self.refuse(FAIL, [self.img])

    def test_foreign(self):
        with open(self.img, "wb") as f:
            f.write(b"\x53\xef" * 512)
            f.truncate(128 << 20)
        self.refuse(FAIL, [self.img, "no nvefs"])

    def test_random_bytes(self):
        with open(self.img, "wb") as f:
            f.write(os.urandom(4 << 20))
            f.truncate(128 << 20)
        self.refuse(FAIL, [self.img])

    def test_all_superblocks_damaged(self):
        self.mkfs("64M")
        self.change(100, b"\xff" * 64)
        self.refuse(FAIL, [self.img])

    def test_one_superblock_damaged(self):
        self.mkfs("64M")
        with open(self.img, "r+b") as f:
            f.seek(0)
            f.write(os.urandom(4096))
        self.mount()

    def test_cut_short(self):
        self.mkfs("128M")
        os.truncate(self.img, 96 << 20)
        self.refuse(FAIL, [self.img])

    def test_damaged_root(self):
        self.mkfs("64M")
        with open(self.img, "r+b") as f:
            # Both copies: one is enough to mount.
            for place in (2 * 4096, (64 << 20) - 2 * 4096):
                f.seek(place)
                f.write(os.urandom(4096))
        self.refuse(FAIL, [self.img])

    def test_read_only_target(self):
        self.mkfs("64M")
        run("mount", "--bind", self.img, self.img)
        run("mount", "-o", "remount,bind,ro", self.img)
        self.refuse(FAIL, ["read-only"])
        self.mount("ro")
        self.umount()

    def test_unknown_option(self):
        self.mkfs("64M")
        self.refuse(USAGE, ["nosuchoption"], "-o", "nosuchoption")
        self.refuse(USAGE, ["nosuchoption=3"], "-o", "ro,nosuchoption=3")
        self.refuse(USAGE, ["--nosuchoption"], "--nosuchoption")
        self.refuse(USAGE, ["-x"], "-x")

    def test_bad_values(self):
        self.mkfs("64M")
        for option in ("route=ide", "dedup=maybe", "dedup_mem=much", "cache=-1", "queues=0", "queues=1000000",
                       "commit=0", "commit=1x", "route=", "dedup_mem=99999999999999999999", "norecovery"):
            self.refuse(USAGE, [option.split("=")[0]], "-o", option)

    def test_unknown_target_option(self):
        self.mkfs("64M")
        self.refuse(FAIL, ["colour"], target=self.img + ",colour=red")
        self.refuse(FAIL, ["lba"], target=self.img + ",lba=777")

    def test_bad_ram(self):
        for target in ("ram:", "ram:0", "ram:x", "ram:1M"):
            self.refuse(FAIL, ["ram:"], target=target)

    def test_arguments(self):
        for args in ((), (self.img,), (self.img, self.mnt, self.mnt), ("", self.mnt), (self.img, self.mnt, "-o")):
            r = run(NVEFS, *args, check=False)
            self.assertEqual(r.returncode, USAGE, args)
            self.assertEqual(len(r.stderr.splitlines()), 1, r.stderr)
        self.assertEqual(run(NVEFS, "--version").stdout.split()[0], "nvefs")
        self.assertIn("route=", run(NVEFS, "--help").stdout)

    def test_mount_point(self):
        self.mkfs("64M")
        before = digest(self.img)
        for place in (os.path.join(self.dir, "absent"), self.img, os.path.join(self.img, "below")):
            r = run(NVEFS, self.img, place, check=False)
            self.assertEqual(r.returncode, FAIL, place)
            self.assertEqual(len(r.stderr.splitlines()), 1, r.stderr)
            self.assertIn("mount point", r.stderr)
        self.assertEqual(digest(self.img), before)

    def test_mkfs_of_a_mounted_target(self):
        self.mkfs("64M")
        self.mount()
        self.put("f", b"here")
        r = self.mkfs_refused("-f")
        self.assertIn("in use", r.stderr)
        self.assertEqual(self.get("f"), b"here")

    def mkfs_refused(self, *args):
        from harness import MKFS
        r = run(MKFS, *args, self.img, check=False)
        self.assertNotEqual(r.returncode, 0)
        return r


class Future(Case):
    """Versions and features that this program does not know."""

    def refuse(self, field, value, word):
        self.mkfs("64M", "-f")
        run(POKE, self.img, field, value)
        r = self.mount(check=False)
        self.assertEqual(r.returncode, FAIL)
        self.assertEqual(len(r.stderr.splitlines()), 1, r.stderr)
        self.assertIn(word, r.stderr)
        self.assertFalse(self.is_mounted())

    def test_future_version(self):
        self.refuse("disk_version", 99, "version")
        self.refuse("disk_version", 1 << 31, "version")

    def test_incompatible_feature(self):
        self.refuse("feature_incompat", 1 << 40, "feature")

    def test_feature_that_only_reading_survives(self):
        self.refuse("feature_ro_compat", 1 << 40, "read-only")
        self.mount("ro")
        self.assertRaises(OSError, self.put, "f", b"1")

    def test_compatible_feature(self):
        self.mkfs("64M", "-f")
        run(POKE, self.img, "feature_compat", 1 << 63)
        self.mount()
        self.put("f", b"1")


if __name__ == "__main__":
    main()
