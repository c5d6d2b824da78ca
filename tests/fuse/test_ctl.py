#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""nvefsctl, FITRIM and the control channel."""
import json
import os
import shutil
import subprocess

from harness import BUILD, CTL, NVEFS, TIMEOUT, Case, main, run, started

NOBODY = 65534


class Ctl(Case):
    def setUp(self):
        super().setUp()
        self.mkfs("256M", "-L", "first")
        self.mount("dedup=on")

    def ctl(self, *args, check=True):
        return run(CTL, *args, check=check)

    def ctl_json(self, *args):
        return json.loads(self.ctl(*args, "--json").stdout)

    def test_stats(self):
        data = os.urandom(4 << 20)
        for name in ("a", "b"):
            self.put(name, data)
        self.ctl("sync", self.mnt)
        s = self.stats()
        self.assertEqual(s["target"], self.img)
        self.assertEqual(s["logical_bytes"], 8 << 20)
        self.assertEqual(s["physical_bytes"], 4 << 20)
        self.assertEqual(s["shared_bytes"], 4 << 20)
        self.assertAlmostEqual(s["dedup_ratio"], 2.0)
        self.assertGreaterEqual(s["dedup"]["hits"], 1024)
        self.assertGreater(s["device"]["commands"]["write"], 0)
        self.assertGreaterEqual(s["device"]["bytes"]["write"], 4 << 20)
        self.assertGreater(s["journal"]["commits"], 0)
        self.assertEqual((s["errors"]["checksum"], s["read_only"], s["stopped_by"]), (0, False, None))
        text = self.ctl("stats", self.mnt).stdout
        for word in ("dedup ratio", "2.00", "native", "flush"):
            self.assertIn(word, text)

    def test_dedup_switch(self):
        self.assertIn("on", self.ctl("dedup", self.mnt).stdout)
        self.assertIn("off", self.ctl("dedup", self.mnt, "off").stdout)
        data = os.urandom(1 << 20)
        self.put("a", data)
        self.put("b", data)
        self.assertEqual(self.stats()["shared_bytes"], 0)
        self.assertEqual(self.ctl_json("dedup", "on", self.mnt), {"dedup": True})
        self.put("c", data)
        self.put("d", data)
        self.ctl("sync", self.mnt)
        self.assertGreaterEqual(self.stats()["shared_bytes"], 1 << 20)

    def test_label_and_info(self):
        self.assertEqual(self.ctl("label", self.mnt).stdout, "first\n")
        self.ctl("label", self.mnt, "grün")
        self.assertEqual(self.ctl_json("label", self.mnt), {"label": "grün"})
        self.assertEqual(self.ctl("label", self.mnt, "x" * 64, check=False).returncode, 2)
        self.remount()
        info = self.info()
        self.assertEqual((info["label"], info["mountpoint"], info["route"]), ("grün", self.mnt, "native"))
        self.assertIn(info["uuid"], self.ctl("info", self.mnt).stdout)

    def test_info_of_the_drive(self):
        self.umount()
        for route in ("native", "scsi"):
            self.mount("route=" + route, target=self.img + ",lba=512,mdts=256k,iu=64k")
            before = self.info()["health"]
            self.put("f", os.urandom(8 << 20))
            self.ctl("sync", self.mnt)
            info = self.info()
            drive, health = info["drive"], info["health"]
            text = self.ctl("info", self.mnt).stdout
            self.umount()
            nvme = drive["nvme"]
            for key, value in {"model": "nvefs embedded controller", "nvme_version": "2.0.0", "lba_bytes": 512,
                               "size_bytes": 256 << 20, "mdts_bytes": 256 << 10, "transfer_bytes": 256 << 10,
                               "transfer_limited_by": "MDTS", "npwg_bytes": 65536, "npdg_bytes": 4096,
                               "volatile_write_cache": "on", "shared": False, "io_queues": 128,
                               "command_set": "NVM", "deallocated_reads": "zeros"}.items():
                self.assertEqual(nvme[key], value, key)
            self.assertIn("write-zeroes", nvme["optional_commands"])
            self.assertEqual("scsi" in drive, route == "scsi")
            if route == "scsi":
                self.assertEqual((drive["scsi"]["vendor"], drive["scsi"]["lba_bytes"]), ("NVMe", 512))
                self.assertIn("eui64 " + nvme["nguid"], drive["scsi"]["designators"])
                self.assertIn("designators", text)
            self.assertIsNone(info["health_error"])
            self.assertGreaterEqual(health["written_bytes"] - before["written_bytes"], 8000000)
            self.assertGreaterEqual(health["media_written_bytes"], 8 << 20)
            self.assertEqual((health["critical_warning"], health["spare_percent"]), ([], 100))
            for line in ("mdts                     262144 B (256 KiB)", "spare threshold          10 %",
                         "transfer limited by      MDTS", "media errors             0"):
                self.assertIn(line, text)
            # A file has no kernel in between, and this drive no boundaries: in the JSON they are 0.
            self.assertEqual((nvme["kernel_transfer_bytes"], nvme["nabsn_bytes"], nvme["uuid"]), (0, 0, ""))
            of_drive = text.split("\nhealth\n")[0]
            for name in ("kernel transfer", "nabsn", "uuid"):
                self.assertNotIn("\n  " + name, of_drive)
            self.assertIn("\n  npwg", of_drive)
            self.assertEqual([line for line in of_drive.splitlines() if line.endswith(" 0 B") and "used" not in line], [])

    def test_many_ask_the_drive(self):
        """None waits for another for long, and each has an answer."""
        asking = [subprocess.Popen([CTL, "info", "--json", self.mnt], stdout=subprocess.PIPE, text=True)
                  for _ in range(30)]
        answers = [json.loads(p.communicate(timeout=TIMEOUT)[0]) for p in asking]
        self.assertTrue(all(p.returncode == 0 for p in asking))
        for a in answers:
            self.assertTrue(a["health"] and a["health"]["spare_percent"] == 100 or "too many" in a["health_error"], a)

    def test_mount_warns_of_a_dying_drive(self):
        self.umount()
        with started(NVEFS, "-f", self.img + ",spare=3", self.mnt, stderr=subprocess.PIPE, text=True) as p:
            self.wait_until("the mount", self.is_mounted)
            self.umount()
            said = p.communicate(timeout=TIMEOUT)[1]
        self.assertIn("spare is below its threshold (spare 3 %, threshold 10 %", said)

    def test_write_protected(self):
        """Refused with the reason, unless the mount does not write either."""
        self.umount()
        r = self.mount(target=self.img + ",ro", check=False)
        self.assertEqual(r.returncode, 32)
        self.assertIn("read-only: mount it with ro", r.stderr)
        self.mount("ro", target=self.img + ",ro")
        self.assertTrue(self.info()["drive"]["nvme"]["write_protected"])

    def test_sync_makes_durable(self):
        self.put("f", b"x" * 100000)
        self.assertEqual(self.ctl_json("sync", self.mnt), {"durable": True})
        pid = self.pid()
        os.kill(pid, 9)
        self.wait_until("the daemon's death", lambda: not os.path.exists(f"/proc/{pid}"))
        self.mount()
        self.assertEqual(self.get("f"), b"x" * 100000)

    def test_trim(self):
        self.put("f", os.urandom(32 << 20))
        self.ctl("sync", self.mnt)
        used = os.stat(self.img).st_blocks * 512
        os.unlink(self.path("f"))
        self.wait_until("space back", lambda: self.stats()["physical_bytes"] == 0)
        self.ctl("sync", self.mnt)
        self.wait_until("the quarantine's end", lambda: self.stats()["quarantined_bytes"] == 0)
        trimmed = self.ctl_json("trim", self.mnt)["trimmed_bytes"]
        self.assertGreater(trimmed, 200 << 20)
        self.assertLess(os.stat(self.img).st_blocks * 512, used - (24 << 20))
        if shutil.which("fstrim"):
            out = run("fstrim", "-v", self.mnt).stdout
            self.assertIn("trimmed", out)
        self.assertLessEqual(self.ctl_json("trim", "--start=64M", "--length=16M", self.mnt)["trimmed_bytes"], 16 << 20)
        self.assertEqual(self.ctl("trim", "--start=1T", self.mnt, check=False).returncode, 1)
        self.umount()
        self.fsck()

    def test_scrub(self):
        r = self.ctl("scrub", self.mnt)
        self.assertIn("0 damaged", r.stdout)
        marks = {}
        os.mkdir(self.path("dir"))
        self.ctl("dedup", self.mnt, "off")
        for name in ("good", "dir/bad one", "dir/worse"):
            marks[name] = os.urandom(256)
            self.put(name, (marks[name] * 16) * 8)
        self.umount()
        self.damage(marks["dir/bad one"] * 16, 1)
        self.damage(marks["dir/worse"] * 16, 3)
        self.mount()
        r = self.ctl("scrub", self.mnt, check=False)
        self.assertEqual(r.returncode, 4, r.stdout + r.stderr)
        self.assertEqual(r.stdout.count("damaged: "), 4)
        for name, n in (("good", 0), ("dir/bad one", 1), ("dir/worse", 3)):
            self.assertEqual(r.stdout.count(name), n, r.stdout)
        r = self.ctl("scrub", "--json", self.mnt, check=False)
        self.assertEqual(r.returncode, 4)
        self.assertEqual(len(json.loads(r.stdout)["damaged"]), 4)
        self.assertRaises(OSError, self.get, "dir/worse")
        self.assertEqual(self.get("good"), marks["good"] * 128)
        self.assertGreater(self.stats()["errors"]["checksum"], 0)

    def test_bad_copies(self):
        """A bad first copy costs nothing, a bad second one is found by scrub; both are counted and written anew."""
        for i in range(2000):
            self.put(f"file {i:04}", b"x")
        self.umount()
        nodes = json.loads(self.dump("tree"))
        inner = [n for n in nodes if n["level"]]
        self.assertGreater(len(nodes), 20)
        damaged = {inner[0]["node"], nodes[-1]["node"], nodes[-2]["twin"], 3}
        self.scratch(damaged)
        self.mount()
        self.assertEqual(len(os.listdir(self.mnt)), 2000)
        self.assertEqual(self.get("file 1234"), b"x")
        r = self.ctl("scrub", self.mnt)
        self.assertIn("0 damaged", r.stdout)
        self.assertIn("bad cop", r.stdout)
        errors = self.stats()["errors"]
        self.assertEqual(errors["metadata_copies_bad"], len(damaged))
        self.assertEqual(errors["metadata_copies_healed"], len(damaged))
        self.assertEqual(errors["metadata_copies_unhealed"], 0)
        self.assertEqual(self.ctl_json("scrub", self.mnt)["bad_copies"], 0)
        self.assertIn("bad copies of metadata", self.ctl("stats", self.mnt).stdout)
        self.umount()
        self.fsck()

    def dump(self, *command):
        return run(os.path.join(BUILD, "src/ctl/dump.nvefs"), "--json", self.img, *command).stdout

    def scratch(self, blocks):
        with open(self.img, "r+b") as f:
            for block in blocks:
                f.seek(block * 4096 + 8)
                f.write(b"\xff" * 8)

    def damage(self, block, count):
        """Change `count` blocks of the image with this content."""
        with open(self.img, "r+b") as f:
            image = f.read()
            at = -1
            for _ in range(count):
                at = image.find(block, at + 1)
                while at >= 0 and at % 4096:
                    at = image.find(block, at + 1)
                self.assertGreaterEqual(at, 0, "the block is not in the image")
                f.seek(at + 77)
                f.write(b"!!")

    def test_not_a_mount_point(self):
        self.put("f", b"")
        os.mkdir(self.path("d"))
        for command in ("stats", "info", "dedup", "label", "sync", "trim", "scrub"):
            for place in ("/tmp", "/proc", self.path("f"), self.path("d")):
                r = self.ctl(command, place, check=False)
                self.assertEqual(r.returncode, 1, (command, place))
                self.assertIn("not an nvefs mount point", r.stderr)
        self.assertEqual(self.ctl("stats", self.path("absent"), check=False).returncode, 1)

    def test_usage(self):
        for args in ((), ("stats",), ("nonsense", self.mnt), ("stats", self.mnt, "more"), ("--nonsense",),
                     ("dedup", self.mnt, "maybe"), ("trim", "--start=x", self.mnt)):
            self.assertEqual(self.ctl(*args, check=False).returncode, 2, args)
        self.assertIn("scrub", self.ctl("--help").stdout)
        self.assertTrue(self.ctl("--version").stdout.startswith("nvefsctl "))

    def test_only_the_owner(self):
        def demote():
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)

        copy = os.path.join(self.dir, "nvefsctl")
        shutil.copy(CTL, copy)
        os.chmod(copy, 0o755)
        r = subprocess.run([copy, "stats", self.mnt], capture_output=True, text=True, preexec_fn=demote, check=False,
                           timeout=TIMEOUT)
        self.assertEqual(r.returncode, 1)
        self.assertIn("only root", r.stderr)


if __name__ == "__main__":
    main()
