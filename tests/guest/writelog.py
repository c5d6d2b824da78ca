# SPDX-License-Identifier: MIT
"""QEMU's log of what reached a disk (blklogwrites, the format of dm-log-writes), and the states it allows.

A power cut leaves everything that was written before the last flush, and of what came after it any subset, each
write in whole or in part.
"""
import os
import struct

MAGIC = 0x6A736677736872
FLUSH, FUA, DISCARD = 1, 2, 4


class Entry:
    def __init__(self, off, length, flags, data_at):
        self.off, self.length, self.flags, self.data_at = off, length, flags, data_at


class WriteLog:
    def __init__(self, path):
        self.file = open(path, "rb")  # pylint: disable=consider-using-with
        self.entries = []
        magic, _, count, self.sector = struct.unpack("<QQQI", self.file.read(28))
        if magic != MAGIC:
            raise ValueError(f"{path}: no log of writes")
        at = self.sector
        for _ in range(count):
            self.file.seek(at)
            sector, length, flags, _ = struct.unpack("<QQQQ", self.file.read(32))
            at += self.sector
            self.entries.append(Entry(sector * self.sector, length * self.sector, flags, at))
            if not flags & DISCARD:
                at += length * self.sector

    def close(self):
        self.file.close()

    def apply(self, fd, entry, sectors=None):
        """Put one write, or its first sectors, into an image."""
        length = entry.length if sectors is None else min(entry.length, sectors * self.sector)
        if not length or entry.flags & DISCARD:
            return  # a discarded block may hold anything, also what it held
        self.file.seek(entry.data_at)
        os.pwrite(fd, self.file.read(length), entry.off)

    def last_durable(self, n):
        """How many of the first n entries are durable: all up to the last flush among them."""
        while n and not self.entries[n - 1].flags & FLUSH:
            n -= 1
        return n


def count_now(path):
    """Entries in the log as of its last flush, while QEMU is writing it."""
    with open(path, "rb") as f:
        return struct.unpack("<QQQI", f.read(28))[2]
