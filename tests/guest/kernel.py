#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The kernel of the guest: Debian's own package, downloaded and unpacked, never installed.

    kernel.py fetch     make it ready, unless it is
    kernel.py where     print its directory

It lies in $NVEFS_GUEST_KERNEL, or in ~/.cache/nvefs/guest-kernel: the package's modules, the
kernel as an ELF file (which QEMU starts at once, where a compressed image would be inflated by
an emulated processor for some seconds), and its configuration.
"""
import glob
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zlib

CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
DIR = os.environ.get("NVEFS_GUEST_KERNEL") or os.path.join(CACHE, "nvefs", "guest-kernel")
META = "linux-image-amd64"  # names the current one; superseded ones leave the mirror
# What no test loads is most of the package.
UNWANTED = ("sound", "drivers/gpu", "drivers/media", "drivers/net/wireless", "drivers/net/ethernet",
            "drivers/infiniband", "drivers/staging", "drivers/iio", "drivers/input", "drivers/usb", "drivers/isdn",
            "drivers/hid", "drivers/leds", "drivers/hwmon", "drivers/platform", "drivers/power", "drivers/comedi")


def version(directory=DIR):
    """Release of the kernel that is there, or None."""
    found = sorted(os.path.basename(p) for p in glob.glob(os.path.join(directory, "lib/modules/*")))
    return found[0] if found and os.path.exists(os.path.join(directory, "ready")) else None


def inflated(image):
    """The ELF file inside a bzImage, or None when it is packed in a way not known here."""
    def unzstd(data):
        r = subprocess.run(["zstd", "-dcq"], input=data, capture_output=True, check=False)
        return r.stdout

    ways = ((b"\xfd7zXZ\x00", lambda d: lzma.LZMADecompressor().decompress(d)),
            (b"\x1f\x8b\x08", lambda d: zlib.decompressobj(31).decompress(d)),
            (b"\x28\xb5\x2f\xfd", unzstd))
    for magic, unpack in ways:
        for m in re.finditer(re.escape(magic), image):
            try:
                data = unpack(image[m.start():])
            except (lzma.LZMAError, zlib.error, OSError):
                continue
            if data[:4] == b"\x7fELF":
                return data
    return None


def package_name():
    r = subprocess.run(["apt-cache", "depends", META], capture_output=True, text=True, check=False)
    m = re.search(r"Depends: (linux-image-\S+)", r.stdout)
    return m and m[1]


def download(directory):
    """Fetch the package; its lists may be too old to name what the mirror still has."""
    for _ in range(2):
        package = package_name()
        if package and not subprocess.run(["apt-get", "-qq", "download", package], cwd=directory,
                                          stderr=subprocess.DEVNULL, check=False).returncode:
            return package
        if os.geteuid() == 0:
            subprocess.run(["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "update"], check=False,
                           stderr=subprocess.DEVNULL)
    raise OSError("cannot be downloaded; the guest tests want Debian's kernel")


def unpack(package, directory):
    excluded = [f"--exclude=./lib/modules/*/kernel/{d}" for d in UNWANTED]
    excluded += [f"--exclude=./usr/lib/modules/*/kernel/{d}" for d in UNWANTED]
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as tar:
        subprocess.run(["tar", "-xf", "-", "-C", directory, *excluded, "--exclude=./usr/share"],
                       stdin=tar.stdout, check=True)
    if not os.path.isdir(os.path.join(directory, "lib/modules")):  # merged /usr
        shutil.move(os.path.join(directory, "usr/lib"), os.path.join(directory, "lib"))


def fetch():
    if version():
        return
    os.makedirs(os.path.dirname(DIR), exist_ok=True)
    work = tempfile.mkdtemp(dir=os.path.dirname(DIR))
    package = META
    try:
        package = download(work)
        new = os.path.join(work, "new")
        os.mkdir(new)
        unpack(glob.glob(os.path.join(work, "*.deb"))[0], new)
        release = os.listdir(os.path.join(new, "lib/modules"))[0]
        subprocess.run(["/sbin/depmod", "-b", new, release], check=True)
        with open(glob.glob(os.path.join(new, "boot/vmlinuz-*"))[0], "rb") as f:
            image = f.read()
        with open(os.path.join(new, "vmlinux"), "wb") as f:
            f.write(inflated(image) or image)
        with open(os.path.join(new, "ready"), "w", encoding="utf-8") as f:
            f.write(package + "\n")
        shutil.rmtree(DIR, ignore_errors=True)
        os.rename(new, DIR)
    except (subprocess.CalledProcessError, OSError, IndexError) as e:
        sys.exit(f"kernel.py: {package}: {e}")
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["fetch"]:
        fetch()
    elif sys.argv[1:] == ["where"]:
        print(DIR)
    else:
        sys.exit(__doc__)
