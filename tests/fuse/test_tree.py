#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A real tree copied in, twice, compared over the other route; both routes, dedup off and on."""
import os
import random
import shutil
import stat

from harness import CTL, ROUTES, SWITCH, Case, main, run

SOURCE = next(d for d in ("/usr/include", "/usr/share/doc", "/etc") if os.path.isdir(d))
LIMIT = int(os.environ.get("NVEFS_TEST_TREE_MB", "24")) << 20


def other(route):
    return ROUTES[1 - ROUTES.index(route)]


def same(a, b):
    """The first difference between two trees, or None."""
    names = sorted(os.listdir(a))
    if names != sorted(os.listdir(b)):
        return f"{a}: other names"
    for name in names:
        x, y = os.path.join(a, name), os.path.join(b, name)
        sx, sy = os.lstat(x), os.lstat(y)
        if (sx.st_mode, sx.st_uid, sx.st_gid, sx.st_mtime_ns) != (sy.st_mode, sy.st_uid, sy.st_gid, sy.st_mtime_ns):
            return f"{y}: other attributes"
        if stat.S_ISLNK(sx.st_mode) and os.readlink(x) != os.readlink(y):
            return f"{y}: other target"
        if stat.S_ISREG(sx.st_mode):
            with open(x, "rb") as f, open(y, "rb") as g:
                if f.read() != g.read():
                    return f"{y}: other content"
        if stat.S_ISDIR(sx.st_mode):
            found = same(x, y)
            if found:
                return found
    return None


class Tree(Case):
    def original(self):
        """A copy of a part of the source, outside, that nobody else changes."""
        copy = os.path.join(self.dir, "original")
        total = 0
        for base, _, files in os.walk(SOURCE):
            to = os.path.join(copy, os.path.relpath(base, SOURCE))
            os.makedirs(to, exist_ok=True)
            for name in files:
                path = os.path.join(base, name)
                if os.path.islink(path):
                    os.symlink(os.readlink(path), os.path.join(to, name))
                elif os.path.isfile(path):
                    shutil.copy2(path, os.path.join(to, name))
                    total += os.path.getsize(path)
            if total > LIMIT:
                break
        return copy

    def copy_compare(self, route, dedup):
        original = self.original()
        copies = []
        self.mkfs("512M")
        self.mount(f"route={route}", f"dedup={dedup}")
        run(CTL, "sync", self.mnt)
        empty = self.stats()
        for name in ("one", "two"):
            run("cp", "-a", original, self.path(name), timeout=120)
            self.assertIsNone(same(original, self.path(name)))
            run(CTL, "sync", self.mnt)
            copies.append(self.stats())
        self.remount(f"route={other(route)}", "dedup=off")
        self.assertEqual(self.stats()["route"], other(route))
        for name in ("one", "two"):
            self.assertIsNone(same(original, self.path(name)))
        both = self.stats()
        if dedup == "on":
            self.assertGreater(both["dedup_ratio"], 1.9)
            self.assertLess(copies[1]["physical_bytes"], copies[0]["physical_bytes"] * 1.03)
        else:
            self.assertEqual(both["shared_bytes"], 0)
        self.umount()
        self.fsck()
        self.mount()
        run("rm", "-rf", self.path("one"), self.path("two"), timeout=120)
        self.wait_until("all space back", lambda: self.stats()["physical_bytes"] == 0)
        self.assertEqual(self.stats()["inodes"], empty["inodes"])
        run(CTL, "sync", self.mnt)
        after = self.stats()
        self.assertLessEqual(after["metadata_bytes"], empty["metadata_bytes"] + 65536)
        print("data, metadata in KiB: empty, one copy, two, after deleting both:",
              *((s["physical_bytes"] >> 10, s["metadata_bytes"] >> 10) for s in (empty, *copies, after)))
        self.umount()
        self.fsck()

    def random_file(self, route, dedup):
        """Random writes, truncates and reads against a copy in memory, across remounts."""
        seed = int(os.environ.get("NVEFS_TEST_SEED", random.randrange(1 << 30)))
        print(f"seed {seed}")
        rng = random.Random(seed)
        self.mkfs("256M")
        self.mount(f"route={route}", f"dedup={dedup}")
        model = bytearray()
        pool = [rng.randbytes(rng.choice((4096, 8192, 5000))) for _ in range(20)]
        for step in range(400):
            off = rng.choice((rng.randrange(1 << 20), rng.randrange(256) * 4096))
            what = rng.random()
            if what < 0.6:
                data = rng.choice(pool) * rng.choice((1, 1, 3))
                if len(model) < off:
                    model.extend(bytes(off - len(model)))
                model[off:off + len(data)] = data
                fd = os.open(self.path("f"), os.O_WRONLY | os.O_CREAT)
                os.pwrite(fd, data, off)
                if rng.random() < 0.1:
                    os.fsync(fd)
                os.close(fd)
            elif what < 0.7 and model:
                os.truncate(self.path("f"), off)
                model = model[:off] + bytes(max(0, off - len(model)))
            elif model:
                with open(self.path("f"), "rb") as f:
                    f.seek(off)
                    self.assertEqual(f.read(20000), bytes(model[off:off + 20000]), f"seed {seed}, step {step}")
            if step % 150 == 149:
                self.remount(f"route={other(route)}", f"dedup={dedup}")
                self.assertEqual(self.get("f"), bytes(model), f"seed {seed}, step {step}")
        self.umount()
        self.fsck()


for _route in ROUTES:
    for _dedup in SWITCH:
        def _copy(self, route=_route, dedup=_dedup):
            self.copy_compare(route, dedup)

        def _random(self, route=_route, dedup=_dedup):
            self.random_file(route, dedup)

        setattr(Tree, f"test_copy_{_route}_dedup_{_dedup}", _copy)
        setattr(Tree, f"test_random_{_route}_dedup_{_dedup}", _random)

if __name__ == "__main__":
    main()
