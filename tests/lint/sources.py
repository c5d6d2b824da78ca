# SPDX-License-Identifier: MIT
"""What the lint tests share: the files of the project, and C without comments and strings."""
import os
import re
import subprocess

TOP = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
C_NOISE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def files():
    """Paths below the top, of all files that git tracks or would; without git, of all there are."""
    git = subprocess.run(["git", "-C", TOP, "ls-files", "-co", "--exclude-standard"],
                         capture_output=True, text=True, check=False)
    if git.returncode == 0 and git.stdout:
        names = git.stdout.splitlines()
    else:
        names = []
        for base, dirs, found in os.walk(TOP):
            dirs[:] = [d for d in dirs if not d.startswith("build") and d != ".git"]
            names += [os.path.relpath(os.path.join(base, f), TOP) for f in found]
    return sorted(n for n in names if os.path.isfile(os.path.join(TOP, n)))


def read(name):
    with open(os.path.join(TOP, name), encoding="utf-8", errors="replace") as f:
        return f.read()


def code(text):
    """The text with comments, strings and characters blanked, line numbers kept."""
    return C_NOISE.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
