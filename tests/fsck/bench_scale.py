#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
How long fsck.nvefs takes on a device that answers late, and on one that does not.

    bench_scale.py [--before FSCK] [--rounds N] [--files N] [--gib N] [--latency TIME] [--folder FOLDER]

A file system with many files is checked, and one with written data with --data; both in a plain file, and in the
same file with each command completed after the latency. With --before, the fsck.nvefs of another build takes
turns with this build's, in the same run, and both must say the same. A JSON line for each run, then one for each
cell with the medians. NVEFS_BUILD is the build.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

BUILD = os.environ["NVEFS_BUILD"]
FSCK = os.path.join(BUILD, "fsck/fsck.nvefs")
MKIMAGE = os.path.join(BUILD, "tests/fsck/scale_image")


def measured(args):
    """Exit status, what it printed, seconds, seconds of processor, peak MiB."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(args, stdout=out)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - start
        out.seek(0)
        doc = json.loads(out.read())
    return child.returncode, doc, seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def make(folder, kind, amount):
    image = os.path.join(folder, kind)
    subprocess.run([MKIMAGE, image, kind, str(amount)], check=True, stdout=subprocess.DEVNULL)
    if kind == "written":  # its bitmaps are to be set
        code, doc, *_ = measured([FSCK, "--json", "-y", image])
        if code != 1:
            sys.exit(f"{image}: exit {code}: {doc.get('problems', doc)[:3]}")
    return image


def cell(name, programs, args, target, rounds):
    figures = {which: [] for which in programs}
    said = {}
    for nr in range(rounds):
        for which, program in programs.items():
            code, doc, seconds, cpu, peak = measured([program, "--json", "-n", *args, target])
            doc.pop("target", None)
            if code or said.setdefault("doc", doc) != doc:
                sys.exit(f"{target}: {program}: exit {code}, or not what was said before: {doc.get('problems', doc)[:3]}")
            figures[which].append((seconds, cpu, peak))
            print(json.dumps({"cell": name, "round": nr, "fsck": which, "seconds": round(seconds, 3),
                              "cpu_seconds": round(cpu, 3), "peak_mib": round(peak)}), flush=True)
    result = {"cell": name, "rounds": rounds}
    for which, runs in figures.items():
        for i, what in enumerate(("seconds", "cpu_seconds", "peak_mib")):
            result[f"{which}_{what}"] = round(statistics.median(run[i] for run in runs), 2)
    if "before" in figures:
        result["times_faster"] = round(statistics.median(b[0] / a[0] for b, a in zip(figures["before"],
                                                                                      figures["now"])), 2)
    print(json.dumps(result), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", metavar="FSCK")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=1000000)
    parser.add_argument("--gib", type=int, default=2)
    parser.add_argument("--latency", default="100us")
    parser.add_argument("--folder")
    args = parser.parse_args()
    programs = {"before": args.before, "now": FSCK} if args.before else {"now": FSCK}
    folder = tempfile.mkdtemp(prefix="nvefs-bench-", dir=args.folder)
    try:
        for kind, amount, options in (("files", args.files, []), ("written", args.gib, ["--data"])):
            image = make(folder, kind, amount)
            for suffix in ("", f",latency={args.latency}"):
                cell(kind + suffix, programs, options, image + suffix, args.rounds)
            os.unlink(image)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


main()
