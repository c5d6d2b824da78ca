#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
guest_bench.py: the device layer's ways to a drive against each other and against the block layer, on the kernel's own
drivers, in the virtual machine of tests/guest.

The machine is emulated instruction by instruction (QEMU without KVM), so its rates say nothing about real drives, and
are there to be compared with each other only, within one run. Two boots:

  rates   two processors, clocks that run with ours: commands per second
  counts  one processor whose clocks count instructions (QEMU's -icount): instructions per command, in the program and in the
          whole machine with its interrupts and kernel threads; nothing else that this machine does can change them

Each round goes over all ways before the next one begins. Counts are the difference between a long and a short run of
the same program, so that its start and end fall out. Prints a table of medians; --json FILE (- for standard output) gets
one line for each measurement. Needs root and what the guest tests need.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.realpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", ".."))
os.environ.setdefault("NVEFS_BUILD", os.path.join(TOP, "build"))
sys.path.insert(0, os.path.join(TOP, "tests", "guest"))

import guest  # noqa: E402
from guest import Disk, Machine, Nvme  # noqa: E402

RAW = os.path.join(os.environ["NVEFS_BUILD"], "tests/bench/raw_queue")
NODES = os.path.join(os.environ["NVEFS_BUILD"], "tests/bench/scsi_nodes")
NVME_NG, NVME_BLOCK, SCSI_SG, SCSI_SD = "/dev/test/ng0-1", "/dev/test/nvme0-1", "/dev/test/sg0", "/dev/test/sd0"
SHORT, LONG = 1000, 9000  # commands


def raw(target, route, depth=32):
    """The device layer by itself."""
    return lambda op, n: [RAW, "-r", route, "-o", op, "-d", str(depth), "-n", str(n), target]


def fio(target, engine, *args):
    return lambda op, n: ["fio", "--name=x", f"--filename={target}", f"--ioengine={engine}", f"--rw=rand{op}", "--bs=4k",
                          "--iodepth=32", f"--io_size={n * 4}k", "--norandommap", "--output-format=json", *args]


def command_set(*args):
    return fio(NVME_NG, "io_uring_cmd", "--cmd_type=nvme", *args)


WAYS = {
    "native: ng, io_uring": raw(NVME_NG, "native"),
    "native: block node, ioctl": raw(NVME_BLOCK + ",passthrough=ioctl", "native"),
    "scsi route over ng": raw(NVME_NG, "scsi"),
    "block layer, O_DIRECT, io_uring": fio(NVME_BLOCK, "io_uring", "--direct=1"),
    "file system, native route": fio("/mnt/native/file", "libaio", "--direct=1", "--size=32m"),
    "file system, scsi route": fio("/mnt/scsi/file", "libaio", "--direct=1", "--size=32m"),
    "SCSI disk: sd by SG_IO": raw(SCSI_SD, "scsi"),
    "SCSI disk: sg by SG_IO": raw(SCSI_SG + ",sg_io=sg", "scsi"),
    "SCSI disk: block layer, O_DIRECT, io_uring": fio(SCSI_SD, "io_uring", "--direct=1"),
}
# What could be done to the native way, by fio, which can do all of it; compared with the first.
PLAIN = {"fio: ng, io_uring": command_set()}
VARIANTS = {
    "fio: fixed buffers": command_set("--fixedbufs"),
    "fio: registered file": command_set("--registerfiles"),
    "fio: both": command_set("--fixedbufs", "--registerfiles"),
    "fio: huge pages": command_set("--iomem=mmaphuge"),
    "fio: fixed buffers, huge pages": command_set("--fixedbufs", "--iomem=mmaphuge"),
}


def scsi(target, *args, elements=32768):
    """The kernel's interface alone. sg takes its memory in pieces of `elements` bytes, whatever a command needs."""
    parameters = "/sys/module/sg/parameters"
    run = (f"echo {elements} >{parameters}/scatter_elem_sz; echo {int('-D' in args)} >{parameters}/allow_dio; "
           f'"$@"; e=$?; echo 32768 >{parameters}/scatter_elem_sz; echo 0 >{parameters}/allow_dio; exit $e')
    return lambda op, n: ["/bin/sh", "-c", run, "sh", NODES, "-o", op, "-n", str(n), "-p", "16384", *args, target]


# What could be done to SCSI: the two nodes by SG_IO, and what sg alone can.
SCSI = {
    **{f"SCSI alone: {name}, {depth} threads": scsi(*how, "-d", str(depth)) for depth in (4, 8) for name, how in {
        "sd, SG_IO": (SCSI_SD,), "sg, SG_IO": (SCSI_SG,), "sg, SG_IO, direct": (SCSI_SG, "-D"),
        "sg, SG_IO, a descriptor each": (SCSI_SG, "-f")}.items()},
    "SCSI alone: sg, SG_IO, 4 threads, pieces of 4 KiB": scsi(SCSI_SG, "-d", "4", elements=4096),
    "SCSI alone: sg, write and read, 8 at a time": scsi(SCSI_SG, "-a", "-d", "8"),
    "SCSI alone: sg, write and read, 8 at a time, direct": scsi(SCSI_SG, "-a", "-d", "8", "-D"),
    "SCSI alone: sg, write and read, 8, pieces of 4 KiB": scsi(SCSI_SG, "-a", "-d", "8", elements=4096),
    "SCSI disk: SG_IO, 8 at a time": raw(SCSI_SD, "scsi", 8),
}
# How much work polling is depends on how long the drive takes, which counting clocks do not tell.
POLLED = {
    "fio: polled": command_set("--hipri"),
    "fio: polled, fixed buffers, registered file": command_set("--hipri", "--fixedbufs", "--registerfiles"),
}
WAYS_OF = {"rates": {**WAYS, **SCSI, **PLAIN, **POLLED}, "counts": {**WAYS, **SCSI, **PLAIN, **VARIANTS}}


def done_in(said):
    """How many commands a program did, and in how many seconds."""
    record = json.loads(said[said.index("{"):])
    if "jobs" not in record:
        return record["commands"], record["seconds"]
    sides = [record["jobs"][0][side] for side in ("read", "write")]
    return sum(s["total_ios"] for s in sides), sum(s["runtime"] for s in sides) / 1000


def idle_seconds():
    with open("/proc/stat", encoding="utf-8") as f:
        words = f.readline().split()
    return (int(words[4]) + int(words[5])) / os.sysconf("SC_CLK_TCK")


def one_run(args):
    """Of a program: (commands, seconds that they took, processor seconds of all of it, of the machine meanwhile)."""
    out_read, out_write = os.pipe()
    idle, begun = idle_seconds(), time.monotonic()
    pid = os.posix_spawn(args[0] if args[0].startswith("/") else "/usr/bin/" + args[0], args, os.environ,
                         file_actions=[(os.POSIX_SPAWN_DUP2, out_write, 1)])
    os.close(out_write)
    with os.fdopen(out_read, encoding="utf-8") as f:
        said = f.read()
    _, status, usage = os.wait4(pid, 0)
    busy = (time.monotonic() - begun) * os.cpu_count() - (idle_seconds() - idle)
    if status:
        raise RuntimeError(f"{' '.join(args)}: {os.waitstatus_to_exitcode(status)}: {said}")
    return *done_in(said), usage.ru_utime + usage.ru_stime, busy


def measure(make, op):
    short, long = one_run(make(op, SHORT)), one_run(make(op, LONG))
    if (short[0], long[0]) != (SHORT, LONG):
        raise RuntimeError(f"{' '.join(make(op, LONG))}: {long[0]} commands in place of {LONG}, {short[0]} of {SHORT}")
    return {"commands_per_second": LONG / long[1], "program_ns": (long[2] - short[2]) * 1e9 / (LONG - SHORT),
            "machine_ns": (long[3] - short[3]) * 1e9 / (LONG - SHORT)}


def mount_all():
    """A file system for each route, with a file in which every block is written."""
    build = os.environ["NVEFS_BUILD"]
    for route, target in (("native", "/dev/test/ng0-2"), ("scsi", "/dev/test/ng0-3")):
        os.makedirs(f"/mnt/{route}")
        subprocess.run([f"{build}/mkfs/mkfs.nvefs", "-q", "-f", target], check=True)
        subprocess.run([f"{build}/src/fuse/nvefs", target, f"/mnt/{route}", "-o", f"route={route},dedup=off"],
                       check=True)
        subprocess.run(["dd", "if=/dev/urandom", f"of=/mnt/{route}/file", "bs=1M", "count=32", "conv=fsync", "status=none"],
                       check=True)


def in_guest():
    """Measures, to the file that the host made."""
    mount_all()
    with open("/proc/sys/vm/nr_hugepages", "w", encoding="utf-8") as f:
        f.write("16")
    kind, rounds, path = os.environ["NVEFS_BENCH_KIND"], int(os.environ["NVEFS_BENCH_ROUNDS"]), os.environ["NVEFS_BENCH_OUT"]
    ways = {name: make for name, make in WAYS_OF[kind].items() if os.environ["NVEFS_BENCH_ONLY"] in name}
    for make in ways.values():  # programs and what they use come from the host at their first start
        one_run(make("write", 100))
    with open(path, "a", encoding="utf-8") as out:
        for number in range(rounds):
            for name, make in ways.items():
                for op in ("write", "read"):  # what is read has been written
                    record = {"kind": kind, "round": number, "way": name, "op": op, **measure(make, op)}
                    out.write(json.dumps(record) + "\n")
                    out.flush()


def table(records, kind, names, column, unit):
    print(f"\n{unit}, medians")
    print(f"{'':<48}{'read':>12}{'write':>12}")
    for name in names:
        row = f"{name:<48}"
        for op in ("read", "write"):
            got = [r[column] for r in records if (r["kind"], r["way"], r["op"]) == (kind, name, op)]
            row += f"{statistics.median(got):>12.0f}" if got else f"{'':>12}"
        print(row)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--kinds", default="rates,counts", help="which boots (default: %(default)s)")
    p.add_argument("--only", default="", help="ways with this in their name")
    p.add_argument("--json", help="file for the JSON lines; - for standard output")
    args = p.parse_args()
    if not set(args.kinds.split(",")) <= set(WAYS_OF):
        p.error(f"--kinds: {args.kinds}: is not of {', '.join(WAYS_OF)}")
    guest.skip_without()
    with tempfile.TemporaryDirectory(prefix="nvefs-guest-bench-") as work:
        os.environ.update({"NVEFS_BENCH_ROUNDS": str(args.rounds), "NVEFS_BENCH_OUT": os.path.join(work, "out"),
                           "NVEFS_BENCH_ONLY": args.only})
        for kind in args.kinds.split(","):
            os.environ["NVEFS_BENCH_KIND"] = kind
            counts = kind == "counts"
            machine = Machine(nvme=[Nvme(Disk("64M"), Disk("128M"), Disk("128M"))], scsi=[Disk("64M")],
                              cpus=1 if counts else 2, icount=counts,
                              append="nvme.poll_queues=1 nvme_core.io_timeout=600", share=[work], limit=3600)
            code = guest.boot(machine, [sys.executable, os.path.realpath(__file__)])
            if code:
                sys.exit(code)
        with open(os.environ["NVEFS_BENCH_OUT"], encoding="utf-8") as f:
            records = [json.loads(line) for line in f]
    with (sys.stdout if args.json == "-" else open(args.json or os.devnull, "w", encoding="utf-8")) as out:
        for record in records:
            print(json.dumps(record), file=out)
        print("4 KiB commands at random places, 32 at a time, one thread; emulated processors (see --help)", flush=True)
        for kind, column, unit in (("rates", "commands_per_second", "commands per second"),
                                   ("counts", "program_ns", "instructions per command in the program"),
                                   ("counts", "machine_ns", "instructions per command in the whole machine")):
            if kind in args.kinds.split(","):
                table(records, kind, [n for n in WAYS_OF[kind] if args.only in n], column, unit)


if __name__ == "__main__":
    if guest.inside():
        in_guest()
    else:
        main()
