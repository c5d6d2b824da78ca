#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reading a file one of whose blocks is damaged: all up to it, then EIO, and never an early end of the file."""
import errno
import json
import mmap
import os

from harness import BUILD, ROUTES, Case, main, run

BLOCK = 4096
BAD = 7


class Damage(Case):
    def damaged(self, route):
        """A file of 40 blocks on a fresh mount, block BAD of which is not what was written."""
        data = os.urandom(40 * BLOCK)
        self.mkfs("96M", "-f")
        self.mount()
        self.put("file", data)
        self.umount()
        items = json.loads(run(os.path.join(BUILD, "src/ctl/dump.nvefs"), "--json", self.img, "inode", "/file").stdout)
        pblk = next(i["extents"][0]["pblk"] for i in items if i["kind"] == "map") + BAD
        with open(self.img, "r+b") as f:
            f.seek(pblk * BLOCK)
            f.write(os.urandom(BLOCK))
        self.mount(f"route={route}")
        return data

    def read_to_the_end(self, flags):
        """(what was read, the error that ended it)"""
        fd = os.open(self.path("file"), os.O_RDONLY | flags)
        got = b""
        try:
            while True:
                piece = os.pread(fd, BLOCK, len(got))
                if not piece:
                    return got, None
                got += piece
        except OSError as e:
            return got, e.errno
        finally:
            os.close(fd)

    def test_buffered(self):
        for route in ROUTES:
            with self.subTest(route):
                data = self.damaged(route)
                with open(self.path("file"), "rb") as f:  # read ahead in large requests
                    self.assertRaises(OSError, f.read)
                got, error = self.read_to_the_end(0)
                self.assertEqual((len(got), error), (BAD * BLOCK, errno.EIO))
                self.assertEqual(got, data[:len(got)])
                self.assertEqual(os.stat(self.path("file")).st_size, len(data))
                with open(self.path("file"), "rb", buffering=0) as f:
                    self.assertEqual(os.pread(f.fileno(), 40 * BLOCK, (BAD + 1) * BLOCK), data[(BAD + 1) * BLOCK:])
                self.umount()

    def test_direct(self):
        data = self.damaged("native")
        fd = os.open(self.path("file"), os.O_RDONLY | os.O_DIRECT)
        memory = mmap.mmap(-1, 40 * BLOCK)
        self.assertEqual(os.preadv(fd, [memory], 0), BAD * BLOCK)
        self.assertEqual(memory[:BAD * BLOCK], data[:BAD * BLOCK])
        with self.assertRaises(OSError):
            os.preadv(fd, [memory], BAD * BLOCK)
        os.close(fd)


if __name__ == "__main__":
    main()
