#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The layer table of src/README.md holds for each #include and in each pure folder."""
import re
import sys

import sources

ROW = re.compile(r"^\| `((?:src/)?[a-z]+)/` \| (\d+)(, pure)? \|", re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
HOMES = [  # header, who may include it
    (r"^fuse3/|^fuse(_\w+)?\.h$|^linux/fuse\.h$", r"^src/fuse/"),
    (r"^libnvme|^liburing|^scsi/|^linux/(nvme_ioctl|bsg|io_uring)\.h$", r"^src/device/"),
    (r"^xxh(ash|3)\.h$", r"^src/base/hash\.c$"),
    (r"^seccomp\.h$|^sys/capability\.h$", r"^(src/base/rights|tests/unit/test_base)\.c$"),
    (r"^blkid/", r"^mkfs/"),
    (r"^uuid/", r"^(src/(fs|fuse|bench|ctl)|fsck|mkfs)/"),
    (r"^json-c/|^json\.h$", r"^(src/(fuse|bench|ctl)|fsck|mkfs)/"),
    (r"^check\.h$", r"^tests/"),
]
IMPURE_HEADER = re.compile(
    r"^(stdlib|unistd|fcntl|pthread|threads|syslog|sys/(ioctl|mman|socket))\.h$|^base/(log|thread|buf)\.h$")
IMPURE_CALL = re.compile(
    r"\b(malloc|calloc|realloc|free|strdup|[vf]*printf|puts|fputs|fopen|open|openat|close|ioctl|mmap|pthread_\w+|"
    r"nvefs_log|nvefs_mutex_\w+|nvefs_rwlock_\w+|nvefs_buf_\w+)\s*\(")


def main():
    table = {m[1]: (int(m[2]), bool(m[3])) for m in ROW.finditer(sources.read("src/README.md"))}
    bad, checked = [], 0
    if len(table) < 10:
        bad.append(f"src/README.md: the layer table has only {len(table)} rows that can be read")
    for name in sources.files():
        if not name.endswith((".c", ".h")):
            continue
        text = sources.read(name)
        folder = next((f for f in table if name.startswith(f + "/")), None)
        if name.startswith(("src/", "mkfs/", "fsck/")) and not folder:
            bad.append(f"{name}: its folder is not in the layer table")
        layer, pure = table.get(folder, (99, False))
        for m in INCLUDE.finditer(text):
            checked += 1
            where = f"{name}:{text.count(chr(10), 0, m.start(2)) + 1}: includes {m[2]}"
            own = m[1] == '"'  # "scsi/..." is not <scsi/...>
            for header, home in HOMES:
                if not own and re.search(header, m[2]) and not re.search(home, name):
                    bad.append(f"{where}: only {home} may")
            if pure and IMPURE_HEADER.search(m[2]):
                bad.append(f"{where}: {folder} is pure")
            if m[1] == "<" or not folder:
                continue
            first = m[2].split("/")[0]
            target = first if first in table else "src/" + first
            if "/" in m[2] and target in table and target != folder and table[target][0] >= layer:
                bad.append(f"{where}: layer {table[target][0]} from layer {layer}")
            if "/" in m[2] and target not in table:
                bad.append(f"{where}: no such folder in the layer table")
        if pure:
            clean = sources.code(text)
            for m in IMPURE_CALL.finditer(clean):
                line = clean.count("\n", 0, m.start()) + 1
                bad.append(f"{name}:{line}: calls {m[1]}: {folder} is pure")
    print("\n".join(bad))
    print(f"{checked} includes checked, {len(bad)} wrong")
    return 1 if bad or not checked else 0


sys.exit(main())
