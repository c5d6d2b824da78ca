#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Time and memory of fsck.nvefs: a million files, and 100 GiB of mapped data.

    test_scale.py [FILES [GIB]]

Each file system is checked, mended (its bitmaps, then its tree without a root node) and checked again. Seconds
and peak memory are printed; memory must stay below 64 bytes for each item of the tree, two bits for each
block, and what does not depend on the size: the cache, the journal's log, as much for what waits to
go home from it, the program.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

BUILD = os.environ["NVEFS_BUILD"]
FSCK = os.path.join(BUILD, "fsck/fsck.nvefs")
MKIMAGE = os.path.join(BUILD, "tests/fsck/scale_image")
DUMP = os.path.join(BUILD, "src/ctl/dump.nvefs")
FIXED_BYTES = (64 + 64 + 64 + 32) << 20


def measured(args):
    """Exit status, standard output, seconds, peak bytes."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(args, stdout=out)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        return child.returncode, out.read(), time.monotonic() - start, usage.ru_maxrss * 1024


def step(image, what, items, options, status):
    code, out, seconds, peak = measured([FSCK, "--json", *options, image])
    doc = json.loads(out)
    bound = 64 * items + os.path.getsize(image) // 4096 // 4 + FIXED_BYTES
    print(f"  {what}: {seconds:.1f} s, peak {peak / 2**20:.0f} MiB of at most {bound / 2**20:.0f} MiB", flush=True)
    if code != status:
        sys.exit(f"{what}: exit {code}, not {status}: {doc.get('problems', doc)[:3]}")
    if peak > bound:
        sys.exit(f"{what}: {peak} bytes, more than {bound}")
    return doc


def zero_root_node(image):
    root = json.loads(subprocess.run([DUMP, "--json", image, "root"], check=True, capture_output=True).stdout)[0]
    with open(image, "r+b") as f:
        f.seek(root["tree_pblk"] * 4096)
        f.write(bytes(4096))


def run(folder, kind, amount, unit):
    image = os.path.join(folder, kind)
    items = int(subprocess.run([MKIMAGE, image, kind, str(amount)], check=True, capture_output=True).stdout)
    print(f"{amount} {unit}: {items} items", flush=True)
    if kind == "data":
        step(image, "bitmaps mended", items, ["-y"], 1)
    files = step(image, "checked", items, ["-n"], 0)["counts"]["files"]
    zero_root_node(image)
    step(image, "tree built anew", items, ["-y"], 1)
    if step(image, "checked again", items, ["-n"], 0)["counts"]["files"] != files:
        sys.exit("files are missing")
    os.unlink(image)


def main():
    files = int(sys.argv[1]) if len(sys.argv) > 1 else 1000000
    gib = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    folder = tempfile.mkdtemp(prefix="nvefs-scale-")
    try:
        run(folder, "files", files, "files")
        run(folder, "data", gib, "GiB of data")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


main()
