# SPDX-License-Identifier: MIT
"""A virtual machine with the kernel's own NVMe and SCSI drivers, in which a test program runs itself.

A test program calls main(machine). On the host that boots the machine (QEMU, without KVM) and runs the same
program in it; in the guest it runs the tests. The guest's root is the host's, read-only, with changes kept in
memory; so everything that was built or installed here is there, under the same paths.
"""
import ctypes
import fcntl
import glob
import hashlib
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "fuse"))

import initramfs  # noqa: E402
import kernel  # noqa: E402

QEMU = os.environ.get("NVEFS_QEMU", "qemu-system-x86_64")
KERNEL_LINE = ("console=ttyS0 quiet panic=-1 rdinit=/init tsc=reliable no_timer_check mitigations=off nokaslr "
               "raid=noautodetect random.trust_cpu=on")
QMP_PORT = "/dev/virtio-ports/qmp"


def inside():
    return os.environ.get("NVEFS_GUEST") == "1"


def why_not():
    """Why no guest can run here, or None."""
    if os.uname().machine != "x86_64":
        return "the guest is an x86-64 machine; this is none"
    if not shutil.which(QEMU):
        return f"{QEMU} is not installed (package qemu-system-x86)"
    if not os.path.exists(initramfs.BUSYBOX):
        return f"{initramfs.BUSYBOX} is not there (package busybox-static)"
    if not kernel.version():
        return f"no kernel in {kernel.DIR}: tests/guest/kernel.py fetch"
    return None


class Disk:
    """One namespace or SCSI disk: its image and what QEMU is to do with it."""

    def __init__(self, size="256M", lba=512, log=False, file=None, **device):
        self.size, self.lba, self.log, self.file, self.device = size, lba, log, file, device


class Nvme:
    """A controller. mdts is an exponent over 4096 bytes; queues are I/O queue pairs."""

    def __init__(self, *namespaces, mdts=7, queues=8, subsystem=False):
        self.namespaces = namespaces or (Disk(),)
        self.mdts, self.queues, self.subsystem = mdts, queues, subsystem


class Machine:
    """What the guest has. `share` is visible in it for writing; images are kept in `state` when given.

    A module that makes SCSI disks itself (scsi_debug) says how many in `more_scsi`. With `icount` the guest's
    clocks count instructions, one each nanosecond: then its processor times are instruction counts, whatever else the
    host does.
    """

    def __init__(self, nvme=(), scsi=(), cpus=2, memory=1024, modprobe=(), append="", share=(), state=None,
                 limit=300, machine="q35", more_scsi=0, icount=False):
        self.nvme, self.scsi, self.cpus, self.memory, self.modprobe = nvme, scsi, cpus, memory, modprobe
        self.append, self.share, self.state, self.limit, self.machine = append, share, state, limit, machine
        self.more_scsi, self.icount = more_scsi, icount


class Qemu:
    """The command line, built up."""

    def __init__(self, machine, work):
        self.machine, self.work = machine, work
        self.state = machine.state or os.path.join(work, "state")
        self.args = []
        os.makedirs(self.state, exist_ok=True)

    def add(self, *args):
        self.args += args

    def share(self, tag, path, read_only):
        self.add("-fsdev", f"local,id={tag},path={path},security_model=none,multidevs=remap" +
                 (",readonly=on" if read_only else ""),
                 "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}")

    def image(self, name, disk):
        """The block nodes below a disk; the uppermost is called `name`."""
        path = disk.file or os.path.join(self.state, name + ".raw")
        if not os.path.exists(path):
            subprocess.run(["truncate", "-s", disk.size, path], check=True)
        raw = name + "-raw" if disk.log else name
        self.add("-blockdev", f"driver=file,node-name={name}-file,filename={path},discard=unmap",
                 "-blockdev", f"driver=raw,node-name={raw},file={name}-file,discard=unmap")
        if disk.log:
            log = os.path.join(self.state, name + ".log")
            with open(log, "wb"):
                pass
            self.add("-blockdev", f"driver=file,node-name={name}-log,filename={log}",
                     "-blockdev", f"driver=blklogwrites,node-name={name},file={raw},log={name}-log,"
                     f"log-sector-size={disk.lba},log-super-update-interval=1,discard=unmap")

    def device(self, kind, disk, **options):
        options = {**options, **disk.device, "logical_block_size": disk.lba, "physical_block_size": disk.lba}
        self.add("-device", ",".join([kind] + [f"{k}={v}" for k, v in options.items()]))

    def disks(self):
        for c, controller in enumerate(self.machine.nvme):
            of = f"id=nvme{c},serial=NVEFS{c},max_ioqpairs={controller.queues},mdts={controller.mdts}"
            if controller.subsystem:
                self.add("-device", f"nvme-subsys,id=subsys{c},nqn=nvefs{c}")
                of += f",subsys=subsys{c}"
            self.add("-device", "nvme," + of)
            for n, disk in enumerate(controller.namespaces, 1):
                self.image(f"nvme{c}-{n}", disk)
                self.device("nvme-ns", disk, id=f"nvme{c}-{n}-dev", bus=f"nvme{c}", drive=f"nvme{c}-{n}", nsid=n,
                            shared="on" if controller.subsystem else "off")
        if self.machine.scsi:
            self.add("-device", f"virtio-scsi-pci,id=scsi,num_queues={self.machine.cpus}")
        for k, disk in enumerate(self.machine.scsi):
            self.image(f"scsi{k}", disk)
            self.device("scsi-hd", disk, id=f"scsi{k}-dev", bus="scsi.0", drive=f"scsi{k}", serial=f"NVEFSS{k}",
                        rerror="report", werror="report", dpofua="on", **{"scsi-id": k})

    def ports(self, out_fd):
        """What the guest says goes to `out_fd`; its QMP port leads to QEMU's monitor."""
        self.add("-device", "virtio-serial-pci", "-add-fd", f"fd={out_fd},set=1",
                 "-chardev", "file,id=out,append=on,path=/dev/fdset/1", "-device",
                 "virtserialport,chardev=out,name=out",
                 "-chardev", f"socket,id=mon,path={self.work}/qmp,server=on,wait=off", "-mon",
                 "chardev=mon,mode=control",
                 "-chardev", f"socket,id=qmp,path={self.work}/qmp", "-device", "virtserialport,chardev=qmp,name=qmp")

    def build(self, ctl, archive, out_fd):
        m = self.machine
        self.add(QEMU, "-M", m.machine, "-accel", "tcg,thread=" + ("single" if m.icount else "multi"),
                 "-cpu", "max", "-smp", str(m.cpus),
                 "-m", str(m.memory), "-nodefaults", "-no-user-config", "-display", "none", "-nic", "none",
                 "-no-reboot", "-rtc", "base=utc", "-serial", f"file:{self.state}/console",
                 "-kernel", os.path.join(kernel.DIR, "vmlinux"), "-initrd", archive,
                 "-append", f"{KERNEL_LINE} {m.append}")
        if m.icount:
            self.add("-icount", "shift=0")
        self.share("root", "/", True)
        self.share("ctl", ctl, False)
        for i, path in enumerate(m.share):
            self.share(f"share{i}", path, False)
        self.disks()
        self.ports(out_fd)
        return self.args


def archive_path(release):
    """The initramfs for this kernel and this init.sh, made when it is not there yet."""
    digest = hashlib.sha256()
    for name in (initramfs.INIT, initramfs.__file__):
        with open(name, "rb") as f:
            digest.update(f.read())
    path = os.path.join(kernel.DIR, f"initramfs-{digest.hexdigest()[:16]}")
    if not os.path.exists(path):
        for old in glob.glob(os.path.join(kernel.DIR, "initramfs-*")):
            os.unlink(old)
        initramfs.build(kernel.DIR, release, f"{path}.{os.getpid()}")
        os.rename(f"{path}.{os.getpid()}", path)
    return path


def write(directory, name, text):
    with open(os.path.join(directory, name), "w", encoding="utf-8") as f:
        f.write(text)


def write_control(ctl, machine, command, release, env):
    """What init.sh reads."""
    exports = "".join(f"export {k}={shlex.quote(v)}\n" for k, v in env.items())
    write(ctl, "cmd", f"{exports}cd {shlex.quote(os.getcwd())} 2>/dev/null || cd /\nexec {shlex.join(command)}\n")
    write(ctl, "modules", os.path.join(kernel.DIR, "lib/modules", release) + "\n")
    write(ctl, "shares", "".join(f"share{i} {os.path.realpath(p)}\n" for i, p in enumerate(machine.share)))
    write(ctl, "modprobe", "".join(m + "\n" for m in machine.modprobe))
    write(ctl, "disks", f"{sum(len(c.namespaces) for c in machine.nvme)} "
          f"{len(machine.scsi) + machine.more_scsi}\n")


def guest_env():
    env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
           "NVEFS_GUEST": "1", "PYTHONDONTWRITEBYTECODE": "1", "NVEFS_TEST_TIMEOUT": "240"}
    env.update({k: v for k, v in os.environ.items() if k.startswith("NVEFS_") and k != "NVEFS_TEST_DRIVE"})
    return env


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def console_tail(state):
    try:
        with open(os.path.join(state, "console"), encoding="utf-8", errors="replace") as f:
            return "".join(f.readlines()[-25:])
    except OSError:
        return ""


KILLED = 137  # the status of a guest that `until` ended


def wait(process, limit, until):
    """Its end, or the moment at which it is killed: over time (124), or as `until` says (KILLED)."""
    end = time.monotonic() + limit
    while True:
        try:
            process.wait(limit if until is None else 0.02)
            return None
        except subprocess.TimeoutExpired:
            late = time.monotonic() >= end
            if late or until and until():
                process.kill()
                process.wait()
                return 124 if late else KILLED


def boot(machine, command, until=None):
    """Run the command in a guest. Its exit status; 124 when the time is over, 125 when the guest died.

    When `until` is given it is asked often, and its first True kills the guest as it is.
    """
    release = kernel.version()
    with tempfile.TemporaryDirectory(prefix="nvefs-guest-") as work:
        ctl = os.path.join(work, "ctl")
        os.mkdir(ctl)
        write_control(ctl, machine, command, release, guest_env())
        qemu = Qemu(machine, work)
        out_fd = fcntl.fcntl(1, fcntl.F_DUPFD, 10)
        args = qemu.build(ctl, archive_path(release), out_fd)
        sys.stdout.flush()
        with open(os.path.join(work, "stderr"), "w+", encoding="utf-8", errors="replace") as err:
            with subprocess.Popen(args, stdin=subprocess.DEVNULL, stderr=err, pass_fds=(out_fd,),
                                  preexec_fn=die_with_parent) as p:
                killed = wait(p, machine.limit, until)
            err.seek(0)  # each error that a test injects is told there
            print("".join(line for line in err if "aio failed: " not in line), end="", flush=True)
        if killed:
            if killed == 124:
                print(f"guest: not through within {machine.limit} s\n{console_tail(qemu.state)}")
            return killed
        try:
            with open(os.path.join(ctl, "status"), encoding="utf-8") as f:
                return int(f.read())
        except (OSError, ValueError):
            print(f"guest: it ended without a word (QEMU: {p.returncode}); its console:\n{console_tail(qemu.state)}")
            return 125


class Qmp:
    """QEMU's monitor, from inside. Its session is agreed on once in the life of a guest."""

    agreed = False

    def __init__(self):
        self.fd = os.open(QMP_PORT, os.O_RDWR)
        self.buf = b""
        if not Qmp.agreed:
            self.call("qmp_capabilities")
            Qmp.agreed = True

    def line(self):
        while b"\n" not in self.buf:
            self.buf += os.read(self.fd, 65536)
        one, self.buf = self.buf.split(b"\n", 1)
        return json.loads(one)

    def call(self, name, **arguments):
        os.write(self.fd, (json.dumps({"execute": name, "arguments": arguments}) + "\n").encode())
        while True:
            r = self.line()
            if "error" in r:
                raise AssertionError(f"QMP {name}: {r['error']}")
            if "return" in r:
                return r["return"]

    def close(self):
        os.close(self.fd)


def node(path):
    """The name of the kernel's that a link in /dev/test stands for: /dev/ng0n1."""
    return os.path.realpath(path)


def skip_without():
    """End the test program as skipped where no guest can run."""
    reason = why_not()
    if reason:
        print(f"SKIP: {reason}")
        sys.exit(77)


def choose_seed():
    """What a run leaves out goes by its seed, which it tells."""
    seed = os.environ.setdefault("NVEFS_TEST_SEED", str(random.randrange(1 << 32)))
    print(f"NVEFS_TEST_SEED={seed}", flush=True)
    return seed


def boot_self(machine, until=None):
    """Run this program in a guest; one guest at a time, emulated processors are slow enough."""
    with open(os.path.join(kernel.DIR, "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return boot(machine, [sys.executable, os.path.realpath(sys.argv[0])] + sys.argv[1:], until)


def main(machine):
    """For a test program's end: see above."""
    import harness  # pylint: disable=import-outside-toplevel

    if inside():
        if not os.path.exists("/dev/fuse"):
            sys.exit("guest: there is no /dev/fuse")
        harness.main()
        return
    skip_without()
    choose_seed()
    sys.exit(boot_self(machine))
