#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Unpack a golden image and let golden_image check it.

image.py PROGRAM IMAGE.xz        check; reading must leave every byte as it is
image.py --refuse PROGRAM IMAGE.xz  it is of an older disk version: refused, and left as it is
image.py --make PROGRAM IMAGE.xz    make it (once per disk version; "single" in its name: with that option)
"""
import hashlib
import lzma
import os
import subprocess
import sys
import tempfile

CHUNK = 1 << 20
LIMIT = 150  # seconds for one program


def unpack(packed, path):
    with lzma.open(packed) as src, open(path, "wb") as dst:
        while chunk := src.read(CHUNK):
            if chunk.strip(b"\0"):
                dst.write(chunk)
            else:
                dst.seek(len(chunk), os.SEEK_CUR)
        dst.truncate()


def digest(path):
    sha = hashlib.sha256()
    with open(path, "rb") as f:
        while chunk := f.read(CHUNK):
            sha.update(chunk)
    return sha.hexdigest()


def check(program, packed, path):
    unpack(packed, path)
    before = digest(path)
    subprocess.run([program, "ro", path], check=True, timeout=LIMIT)
    if digest(path) != before:
        raise SystemExit(f"{packed}: mounting it read-only has changed it")
    subprocess.run([program, "rw", path], check=True, timeout=LIMIT)


def refuse(program, packed, path):
    unpack(packed, path)
    before = digest(path)
    subprocess.run([program, "refuse", path], check=True, timeout=LIMIT)
    if digest(path) != before:
        raise SystemExit(f"{packed}: refusing it has changed it")


def make(program, packed, path):
    command = "make-single" if "single" in os.path.basename(packed) else "make"
    subprocess.run([program, command, path], check=True, timeout=LIMIT)
    with open(path, "rb") as f, lzma.open(packed, "wb", preset=9 | lzma.PRESET_EXTREME) as out:
        while chunk := f.read(CHUNK):
            out.write(chunk)
    check(program, packed, path)


def main():
    args = [a for a in sys.argv[1:] if not a.startswith("--")]
    run = make if "--make" in sys.argv else refuse if "--refuse" in sys.argv else check
    with tempfile.TemporaryDirectory() as tmp:
        run(args[0], args[1], os.path.join(tmp, "golden.img"))


main()
