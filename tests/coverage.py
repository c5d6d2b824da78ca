#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""coverage.py BUILD-DIR FOLDER: line coverage of FOLDER, by its subfolders, from gcov's data."""
import json
import os
import subprocess
import sys


def gcov(build):
    """Yield gcov's JSON document for each object that was compiled with coverage."""
    notes = []
    for base, _, files in os.walk(build):
        notes += [os.path.join(base, f) for f in files if f.endswith(".gcno")]
    for start in range(0, len(notes), 50):
        out = subprocess.run(["gcov", "--json-format", "--stdout"] + notes[start:start + 50],
                             check=True, capture_output=True, text=True).stdout
        for line in out.splitlines():
            yield json.loads(line)


def main():
    build, folder = sys.argv[1:3]
    top = os.path.realpath(folder)
    lines = {}  # (file, line): whether it ran
    for doc in gcov(os.path.abspath(build)):
        for unit in doc["files"]:
            path = os.path.realpath(os.path.join(doc["current_working_directory"], unit["file"]))
            if not path.startswith(top + os.sep):
                continue
            name = os.path.relpath(path, top)
            for line in unit["lines"]:
                key = (name, line["line_number"])
                lines[key] = lines.get(key, False) or line["count"] != 0
    parts = {}
    for (name, _), ran in lines.items():
        part = parts.setdefault(name.split(os.sep)[0], [0, 0])
        part[0] += ran
        part[1] += 1
    for part, (ran, total) in sorted(parts.items()):
        print(f"coverage: {folder}/{part}: {100 * ran / total:.1f} % of {total} lines")
    ran, total = (sum(column) for column in zip(*parts.values())) if parts else (0, 0)
    print(f"coverage: {folder}: {100 * ran / max(total, 1):.1f} % of {total} lines")


main()
