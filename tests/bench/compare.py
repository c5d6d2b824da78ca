#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
compare.py: nvefs against fuse2fs and ext4 on a loop device, in one run.

All of them lie on image files of one tmpfs. fio (libaio, direct, 2 jobs, queue
depth 32) runs the eight workloads of the published measurement on each; the
rounds go over all servers before the next one begins. The images are written
once before: memory that a virtual machine never touched is slow the first time,
which who writes out of place would pay and who writes in place would not. Prints one JSON line for
each measurement (--json FILE, or standard output with -), and a table of
medians with the ratio to each other server. Needs root, fio, e2fsprogs,
fuse2fs. Exit status 1 when nvefs native is below twice fuse2fs in any cell and
--require was given.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
CELLS = [(op, kind, kib) for op in ("read", "write") for kind, kib in
         (("rand", 4), ("rand", 64), ("seq", 64), ("seq", 128))]


def call(*args, **kw):
    r = subprocess.run([str(a) for a in args], capture_output=True, text=True, check=False, **kw)
    if r.returncode:
        raise RuntimeError(f"{' '.join(map(str, args))}: exit {r.returncode}: {(r.stderr or r.stdout).strip()}")
    return r.stdout


def wait_mounted(path, daemon):
    for _ in range(1200):
        if os.path.ismount(path):
            return
        if daemon.poll() is not None:
            raise RuntimeError(f"{daemon.args[0]}: ended with {daemon.returncode} before the mount was there")
        time.sleep(0.05)
    raise RuntimeError(f"{path}: was not mounted")


class Server:
    """One file system on one image, mounted for one round at a time."""

    def __init__(self, name, image, mnt):
        self.name, self.image, self.mnt = name, image, mnt
        self.daemon = None

    def fill(self, size):
        with open(self.image, "wb") as f:
            for _ in range(size >> 20):
                f.write(bytes(1 << 20))

    def umount(self):
        if os.path.ismount(self.mnt):
            call("umount", "-i", self.mnt)
        if self.daemon:
            self.daemon.wait(timeout=300)
            self.daemon = None


class Nvefs(Server):
    def __init__(self, name, image, mnt, build, options):
        super().__init__(name, image, mnt)
        self.build, self.options = build, options

    def make(self, size):
        self.fill(size)
        call(f"{self.build}/mkfs/mkfs.nvefs", "-q", self.image)

    def mount(self):
        self.daemon = subprocess.Popen([f"{self.build}/src/fuse/nvefs", "-f", self.image, self.mnt, "-o", self.options],
                                       stderr=subprocess.DEVNULL)
        wait_mounted(self.mnt, self.daemon)


class Ext4(Server):
    def make(self, size):
        self.fill(size)
        call("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", self.image)

    def mount(self):
        call("mount", "-o", "loop", self.image, self.mnt)


class Fuse2fs(Ext4):
    def mount(self):
        self.daemon = subprocess.Popen(["fuse2fs", "-f", self.image, self.mnt, "-o", "rw,fakeroot,allow_other"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_mounted(self.mnt, self.daemon)


def fio(mnt, size, jobs, depth, *extra):
    out = call("fio", "--name=compare", f"--directory={mnt}", "--filename_format=job.$jobnum", "--output-format=json",
               "--ioengine=libaio", "--direct=1", f"--numjobs={jobs}", f"--iodepth={depth}", f"--size={size}",
               "--group_reporting", "--fallocate=none", "--randrepeat=0", *extra)
    return json.loads(out[out.index("{"):])["jobs"][0]


def measure(server, cell, args):
    op, kind, kib = cell
    job = fio(server.mnt, args.size, args.jobs, args.depth, f"--rw={'rand' if kind == 'rand' else ''}{op}", f"--bs={kib}k",
              "--time_based", f"--runtime={int(args.runtime * 1000)}ms", "--norandommap")
    side = job[op]
    return {"server": server.name, "cell": f"{op}-{kind}-{kib}k", "iops": side["iops"], "bytes_per_s": side["bw_bytes"],
            "latency_mean_ns": side["lat_ns"]["mean"], "fio_user_percent": job["usr_cpu"],
            "fio_system_percent": job["sys_cpu"]}


def facts(args):
    version = call(f"{args.build}/src/fuse/nvefs", "--version").splitlines()[0]
    fuse2fs = subprocess.run(["fuse2fs", "-V"], capture_output=True, text=True, check=False)
    found = re.search(r"fuse2fs [\d.]+", fuse2fs.stderr + fuse2fs.stdout)
    return {"facts": True, "kernel": os.uname().release, "processors": os.cpu_count(), "nvefs": version,
            "fuse2fs": found.group() if found else "unknown", "fio": call("fio", "--version").strip(),
            "transport": "/dev/fuse", "jobs": args.jobs, "depth": args.depth, "size": args.size,
            "runtime_s": args.runtime, "rounds": args.rounds, "load": os.getloadavg()[0]}


def servers(args, work):
    def place(name):
        mnt = os.path.join(work, name)
        os.mkdir(mnt)
        return os.path.join(work, name + ".img"), mnt

    every = {
        "native": lambda n: Nvefs(n, *place(n), args.build, "route=native,dedup=off"),
        "scsi": lambda n: Nvefs(n, *place(n), args.build, "route=scsi,dedup=off"),
        "native-dedup": lambda n: Nvefs(n, *place(n), args.build, "route=native,dedup=on"),
        "scsi-dedup": lambda n: Nvefs(n, *place(n), args.build, "route=scsi,dedup=on"),
        "fuse2fs": lambda n: Fuse2fs(n, *place(n)),
        "ext4": lambda n: Ext4(n, *place(n)),
    }
    return [every[n](n) for n in args.servers.split(",")]


def table(results, names):
    """Medians of IOPS, and what `native` makes of each other server. Returns the smallest ratio to fuse2fs."""
    worst = None
    print("IOPS, medians; x: how many times that of the server named " + names[0] + " is")
    print(f"{'workload':<16}" + "".join(f"{n:>14}" for n in names) +
          "".join(f"{'x ' + n:>16}" for n in names[1:]))
    for op, kind, kib in CELLS:
        cell = f"{op}-{kind}-{kib}k"
        medians = {}
        for n in names:
            got = [r["iops"] for r in results if r["server"] == n and r["cell"] == cell]
            if got:
                medians[n] = statistics.median(got)
        if not medians:
            continue
        row = f"{cell:<16}" + "".join(f"{medians.get(n, 0):>14.0f}" for n in names)
        for n in names[1:]:
            ratio = medians.get(names[0], 0) / medians[n] if medians.get(n) else 0
            row += f"{ratio:>16.2f}"
            if n == "fuse2fs":
                worst = ratio if worst is None else min(worst, ratio)
        print(row)
    return worst


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=os.path.join(TOP, "build"))
    p.add_argument("--tmpfs", default="/dev/shm", help="directory on a tmpfs for the images")
    p.add_argument("--servers", default="native,scsi,native-dedup,fuse2fs,ext4", help="the first one is compared")
    p.add_argument("--cells", help="comma separated, as read-rand-4k")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--runtime", type=float, default=3, help="seconds for each cell")
    p.add_argument("--size", default="512M", help="of each job's file")
    p.add_argument("--image", default="2G", help="size of each image")
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--depth", type=int, default=32)
    p.add_argument("--json", help="file for the JSON lines; - for standard output")
    p.add_argument("--require", type=float, help="fail below this multiple of fuse2fs")
    args = p.parse_args()
    if os.geteuid() or not all(map(shutil.which, ("fio", "fuse2fs", "mkfs.ext4"))):
        sys.exit("compare.py: needs root, fio, fuse2fs and mkfs.ext4: see examples/setup.sh test")
    bytes_of = int(args.image[:-1]) << {"M": 20, "G": 30}[args.image[-1]]
    work = tempfile.mkdtemp(prefix="nvefs-compare-", dir=args.tmpfs)
    out = sys.stdout if args.json == "-" else open(args.json or os.devnull, "w", encoding="utf-8")
    results, every = [], []

    def say(record):
        print(json.dumps(record), file=out, flush=True)

    try:
        say(facts(args))
        every = servers(args, work)
        for s in every:
            s.make(bytes_of)
        for r in range(args.rounds):
            for s in every:
                s.mount()
                if r == 0:
                    fio(s.mnt, args.size, args.jobs, 8, "--rw=write", "--bs=128k", "--end_fsync=1")
                for cell in CELLS:
                    name = f"{cell[0]}-{cell[1]}-{cell[2]}k"
                    if args.cells and name not in args.cells.split(","):
                        continue
                    results.append({"round": r, **measure(s, cell, args)})
                    say(results[-1])
                s.umount()
    finally:
        for s in every:
            s.umount()
        shutil.rmtree(work, ignore_errors=True)
    worst = table(results, [s.name for s in every])
    if args.require and worst is not None and worst < args.require:
        sys.exit(f"compare.py: {every[0].name} is {worst:.2f} of fuse2fs in its worst cell, {args.require} is required")


main()
