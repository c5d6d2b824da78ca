# SPDX-License-Identifier: MIT
"""The guest's first file system: busybox, the modules that reach the shared root, and init.sh."""
import lzma
import os
import stat
import subprocess

BUSYBOX = "/bin/busybox"
INIT = os.path.join(os.path.dirname(os.path.realpath(__file__)), "init.sh")
APPLETS = ("sh", "mount", "umount", "mkdir", "insmod", "switch_root", "cat", "echo", "ls", "ln", "sleep", "reboot",
           "cp", "chroot", "setsid", "sync", "sed", "tr", "ifconfig")
# In this order; what they depend on goes before them. The last line may be absent.
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_console",
           "nvme", "virtio_scsi", "sd_mod", "sg", "fuse")


def load_order(modules_dir):
    """Paths of MODULES and what they need, in load order. Built-in ones are left out."""
    deps = {}
    with open(os.path.join(modules_dir, "modules.dep"), encoding="utf-8") as f:
        for line in f:
            path, needs = line.rstrip("\n").split(":", 1)
            deps[path] = needs.split()
    by_name = {os.path.basename(p).split(".")[0].replace("-", "_"): p for p in deps}
    soft = ["crct10dif_pclmul", "crct10dif_generic", "crc64_rocksoft"]  # looked up by name when used
    order = []

    def add(path):
        for need in reversed(deps[path]):
            if need not in order:
                add(need)
        if path not in order:
            order.append(path)

    for name in MODULES:
        if name == "nvme":
            for extra in soft:
                if extra in by_name:
                    add(by_name[extra])
        if name in by_name:
            add(by_name[name])
    return order


class Cpio:
    """An archive in the "newc" form that the kernel unpacks."""

    def __init__(self):
        self.parts = []
        self.ino = 0

    def add(self, name, mode, data=b"", rdev=(0, 0)):
        self.ino += 1
        name = name.encode() + b"\0"
        fields = (self.ino, mode, 0, 0, 1, 0, len(data), 0, 0, rdev[0], rdev[1], len(name), 0)
        head = b"070701" + b"".join(b"%08X" % v for v in fields) + name
        self.parts += [head, b"\0" * (-len(head) % 4), data, b"\0" * (-len(data) % 4)]

    def finish(self):
        self.ino = -1
        self.add("TRAILER!!!", 0)
        return b"".join(self.parts)


def module_data(path):
    with open(path, "rb") as f:
        data = f.read()
    if path.endswith(".xz"):
        return lzma.decompress(data)
    if path.endswith(".zst"):
        return subprocess.run(["zstd", "-dcq"], input=data, stdout=subprocess.PIPE, check=True).stdout
    return data


def build(kernel_dir, release, out):
    """Write the archive for this kernel to `out`."""
    modules_dir = os.path.join(kernel_dir, "lib/modules", release)
    c = Cpio()
    for d in ("bin", "dev", "proc", "sys", "lower", "ctl", "over", "root", "modules"):
        c.add(d, stat.S_IFDIR | 0o755)
    c.add("dev/console", stat.S_IFCHR | 0o600, rdev=(5, 1))
    c.add("dev/null", stat.S_IFCHR | 0o666, rdev=(1, 3))
    c.add("dev/kmsg", stat.S_IFCHR | 0o666, rdev=(1, 11))
    with open(BUSYBOX, "rb") as f:
        c.add("bin/busybox", stat.S_IFREG | 0o755, f.read())
    for applet in APPLETS:
        c.add("bin/" + applet, stat.S_IFLNK | 0o777, b"busybox")
    with open(INIT, "rb") as f:
        c.add("init", stat.S_IFREG | 0o755, f.read())
    names = []
    for path in load_order(modules_dir):
        name = os.path.basename(path).split(".ko")[0] + ".ko"
        names.append(name)
        c.add("modules/" + name, stat.S_IFREG | 0o644, module_data(os.path.join(modules_dir, path)))
    c.add("modules/order", stat.S_IFREG | 0o644, "".join(n + "\n" for n in names).encode())
    with open(out, "wb") as f:
        f.write(c.finish())
