#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""kill -9 of the daemon at random moments under writes, fsyncs and file creation.

Each time: the image is clean without any repair, it mounts, every fsync'ed file is there whole, and what
df says is what the check counts. NVEFS_TEST_KILLS rounds (default 6), NVEFS_TEST_SEED.
"""
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time

from harness import FSCK, TIMEOUT, Case, main, run

ROUNDS = int(os.environ.get("NVEFS_TEST_KILLS", "6"))
SEED = int(os.environ.get("NVEFS_TEST_SEED", "1"))
COMBINATIONS = [("native", "off"), ("native", "on"), ("scsi", "off"), ("scsi", "on")]

# Writes files for ever; a line on stdout for each that is durable: name and SHA-256.
WRITER = r"""
import hashlib, os, random, sys
where, tag, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
rnd, n = random.Random(seed), 0
pool = [bytes([rnd.randrange(256)]) * 4096 for _ in range(8)]
os.makedirs(os.path.join(where, tag), exist_ok=True)
while True:
    name = os.path.join(tag, "f%d" % n)
    path = os.path.join(where, name)
    data = b"".join(rnd.choice(pool) for _ in range(rnd.randrange(1, 40)))
    data += os.urandom(rnd.randrange(0, 6000))
    with open(path + ".tmp", "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    os.rename(path + ".tmp", path)
    d = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(d)
    os.close(d)
    print(name, hashlib.sha256(data).hexdigest(), flush=True)
    if n % 5 == 4:
        os.unlink(os.path.join(where, tag, "f%d" % (n - 2)))
        print("-" + os.path.join(tag, "f%d" % (n - 2)), flush=True)
    n += 1
"""


class Kill(Case):
    def writers(self, round_no):
        out = []
        for i in range(2):
            out.append(subprocess.Popen([sys.executable, "-c", WRITER, self.mnt, f"r{round_no}w{i}",
                                         str(SEED + round_no * 10 + i)], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True))
        return out

    def durable(self, text):
        """Name -> hash of what must be there; a file being unlinked at the end may be either."""
        files, maybe = {}, set()
        for line in text.splitlines():
            if line.startswith("-"):
                files.pop(line[1:], None)
                maybe.add(line[1:])
            elif line.count(" ") == 1 and len(line.split()[1]) == 64:
                name, digest = line.split()
                files[name] = digest
        return files

    def counted(self):
        r = run(FSCK, "-n", "-f", "--json", self.img, timeout=300)
        return json.loads(r.stdout)

    def test_kill(self):
        rnd = random.Random(SEED)
        must = {}
        self.mkfs("512M")
        for n in range(ROUNDS):
            route, dedup = COMBINATIONS[n % 4]
            with self.subTest(round=n, seed=SEED, route=route, dedup=dedup):
                self.mount(f"route={route}", f"dedup={dedup}", "commit=1")
                daemon = self.pid()
                procs = self.writers(n)
                time.sleep(rnd.uniform(0.3, 2.0))
                os.kill(daemon, signal.SIGKILL)
                for p in procs:
                    text = p.communicate(timeout=TIMEOUT)[0]
                    done = self.durable(text)
                    # The last unlinks may or may not have happened: only what was never unlinked is sure.
                    must.update(done)
                self.wait_until("the daemon ends", lambda: not os.path.exists(f"/proc/{daemon}"))
                report = self.counted()
                self.assertTrue(report["clean"], report)
                self.mount(f"route={route}", f"dedup={dedup}")
                for name, digest in must.items():
                    try:
                        data = self.get(name)
                    except FileNotFoundError:
                        # its unlink had begun when the daemon died
                        stem = int(name.rsplit("f", 1)[1])
                        self.assertEqual(stem % 5, 2, f"{name} is gone")
                        continue
                    self.assertEqual(hashlib.sha256(data).hexdigest(), digest, name)
                must = {k: v for k, v in must.items() if os.path.exists(self.path(k))}
                os.sync()
                self.umount()
                free = self.counted()["counts"]["free_blocks"]
                self.mount("ro")
                df = os.statvfs(self.mnt)
                self.assertEqual(df.f_bfree, free, "df is not what the check counts")
                self.umount()


if __name__ == "__main__":
    main()
