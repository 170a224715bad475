"""The command lines of the guide that need nothing but Tutti are run as they stand there."""
import os
import re
import socket
import unittest

from guide_lines import FULL, QUICK, SOURCE, Place, claimed, lines, sums

# So that a training run is over at once; the flags of the guide come first.
SMALL = (" --layers 1 --width 32 --heads 4 --context 16 --batch 8 --threads 1")
PARALLELISM = os.path.join(SOURCE, "docs", "guide", "parallelism.md")


class Lines(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.place = self.enterContext(Place())

    def check(self, end, *texts):
        code, out, err = end
        self.assertEqual(code, 0, out + err)
        for text in texts:
            self.assertIn(text, out)

    def one(self, pattern):
        found = claimed(pattern)
        self.assertEqual(len(found), 1, found)
        return found[0]

    def test_every_line_is_run_by_one_test(self):
        self.assertGreater(len(lines()), 25)
        for chapter, line in lines():
            owners = [pattern for pattern in QUICK + FULL if re.match(pattern, line)]
            self.assertEqual(len(owners), 1, f"{chapter}: {line}: {owners}")
        for pattern in QUICK + FULL:
            self.assertTrue(claimed(pattern), pattern)

    def test_one_rank_and_four(self):
        self.check(self.place.run(self.one(QUICK[0])), *sums(1))
        for line in claimed(QUICK[1]):
            self.check(self.place.run(line), *sums(4))

    def test_reductions(self):
        """The chapter shows what the ranks print, in their order."""
        end = self.place.run(self.one(QUICK[9]))
        with open(os.path.join(SOURCE, "docs", "guide", "collectives.md"), encoding="utf-8") as f:
            shown = re.findall(r"^    (rank \d: numbers .*)$", f.read(), re.M)
        self.assertEqual(len(shown), 4)
        self.check(end, *shown)

    def test_training(self):
        self.place.write("TEXT", "to be or not to be\n" * 100)
        for line in claimed(QUICK[2]):
            line = line.replace("--steps 10000", "--steps 3").replace("--save-every 500",
                                                                      "--save-every 2")
            line = line.replace("--micro-batches 64", "--micro-batches 8")  # SMALL has 8 sequences
            self.check(self.place.run(line + SMALL))
        self.assertTrue(os.path.isdir(self.place.path("DIR")))
        self.assertTrue(os.path.exists(self.place.path("step.json")))

    def test_three_hosts(self):
        """Here the loopback of one; hosts_full_test.py has hosts that are apart."""
        self.check(self.place.run(self.one(QUICK[3])))
        self.place.write("bin/scp", 'mkdir -p hosts; cp -p "$2" "hosts/${3%:}"\n', 0o755)
        self.check(self.place.run(self.one(QUICK[4])))
        for host in ("host1", "host2"):
            self.assertEqual(os.stat(self.place.path("hosts", host)).st_mode & 0o777, 0o600)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            here = f"127.0.0.1:{probe.getsockname()[1]}"
        launchers = [self.place.start(line.replace("192.0.2.10:29400", here))
                     for line in claimed(QUICK[5])]
        self.assertEqual(len(launchers), 3)
        ends = [(*launcher.communicate(timeout=60), launcher.returncode) for launcher in launchers]
        self.assertEqual([code for _, _, code in ends], [0, 0, 0], ends)
        text = "".join(out for out, _, _ in ends)
        for line in sums(8):
            self.assertIn(line, text)

    def test_hosts_from_one_of_them(self):
        """ssh is a script that does here what it is told."""
        self.place.write("bin/ssh", 'for command; do :; done; exec sh -c "$command"\n', 0o755)
        self.place.write("hosts", "node1 slots=4\nnode2:4 # as above\n")
        found = claimed(QUICK[14])
        self.assertEqual(len(found), 3)
        for line in found:
            self.check(self.place.run(line.replace("./train", "--master-addr 127.0.0.1 ./train")),
                       *sums(8))

    def test_a_hang(self):
        """The lines are one session: the verdict reads what the job has dumped."""
        script = "; ".join([self.one(QUICK[6]), self.one(QUICK[7]), self.one(QUICK[8])])
        _, out, err = self.place.run(script)
        self.assertEqual(out.splitlines()[-1], "1", out + err)
        self.assertIn("group world: rank 3 never entered all_reduce #4 f32[1024]", out)
        self.assertIn("rank 3 never entered it: it waits in barrier #2 of group world[2,3]", err)
        self.assertTrue(os.listdir(self.place.path("dumps")))

    def test_checkpoints(self):
        """What they say is what stands in the guide, but for times."""
        def mask(text):
            return re.sub(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d", "WHEN", text)

        chapter = os.path.join(SOURCE, "docs", "guide", "checkpoints.md")
        with open(chapter, encoding="utf-8") as file:
            guide = mask(file.read())
        save, step = "save_layout checkpoints rows 2 ", "checkpoints/step-000000000"
        script = (f"{save} 100; {save} 200; "
                  f"{save} 300 set embedding 71 -1.5 set embedding 21769 3; "
                  "mkdir checkpoints/.half-000000000400; "
                  f"rm {step}200/rank-00001-0.digests; "
                  f"mkdir gpt2; cp {SOURCE}/tests/golden/gpt2_hf.safetensors "
                  "gpt2/model.safetensors")
        self.assertEqual(self.place.run(script)[0], 0)
        for line in claimed(QUICK[10]):
            is_damaged = " verify " in line or line.endswith(" --keep 1")
            if is_damaged:
                damaged = self.place.path(f"{step}300/rank-00000-0.safetensors")
                with open(damaged, "r+b") as file:
                    file.seek(20000)
                    file.write(b"x")
            code, out, err = self.place.run(line.replace("--heads 12", "--heads 4"))
            self.assertEqual(code, 1 if " verify " in line or " diff " in line else 0, err)
            self.assertIn(mask(f"$ {line}\n{out}"), guide)
            if is_damaged:
                self.place.run(f"rm -r {step}300; {save} 300 set embedding 71 -1.5 "
                               "set embedding 21769 3")

    def test_plans(self):
        """What they say is what stands in the guide, which shows the files that they read, too."""
        blocks = []
        for chapter in ("pipelines.md", "sharded.md"):
            with open(os.path.join(SOURCE, "docs", "guide", chapter), encoding="utf-8") as file:
                blocks += re.findall(r"^```\n(\$ .*?)^```$", file.read(), re.M | re.S)
        shown = dict(re.match(r"\$ (.*?)\n(.*)", part, re.S).groups() for block in blocks
                     for part in re.split(r"^(?=\$ )", block, flags=re.M) if part)
        self.assertEqual(sorted(shown), sorted(claimed(QUICK[11]) + claimed(QUICK[12])))
        for line in claimed(QUICK[12]):
            self.place.write(line.split()[1], shown[line])
        for line in claimed(QUICK[11]):
            _, out, err = self.place.run(line)
            self.assertEqual(err + out, shown[line])

    def test_pictures(self):
        """They are what the tools draw, and the chapter shows each of them."""
        pictures = os.path.join(SOURCE, "docs", "guide", "pictures")
        with open(PARALLELISM, encoding="utf-8") as file:
            shown = re.findall(r"^!\[.*\]\(pictures/(.*)\)$", file.read(), re.M)
        drawn = [line.split()[-1] for line in claimed(QUICK[13])]
        self.assertEqual(drawn, shown)
        self.assertEqual(sorted(drawn), sorted(name for name in os.listdir(pictures)
                                               if name.endswith(".svg")))
        for line, name in zip(claimed(QUICK[13]), drawn):
            self.check(self.place.run(line))
            with open(self.place.path(name), encoding="utf-8") as ours, \
                    open(os.path.join(pictures, name), encoding="utf-8") as kept:
                self.assertEqual(ours.read(), kept.read(), line)

    def test_looking(self):
        for name in ("bible.txt", "text.txt"):
            self.place.write(name, "to be or not to be\n" * 100)
        first = "TUTTI_PROFILE=profile tutti run -n 2 gpt --data text.txt --steps 1"
        self.check(self.place.run(first + SMALL))
        for line in claimed(QUICK[15]):
            line = re.sub(r"--steps \d+", "--steps 2", line)
            self.check(self.place.run(line + (SMALL if " gpt " in line else "")))
        for name in ("step.json", "job.json", "run/report.html"):
            self.assertTrue(os.path.exists(self.place.path(name)), name)

    def test_bubbles(self):
        """The chapter's shares are those of the simulation."""
        with open(PARALLELISM, encoding="utf-8") as file:
            rows = re.findall(r"^\| (`.*?) \| \(p - 1\).* \| ([\d.]+) % \| ([\d.]+) % \|$",
                              file.read(), re.M)
        self.assertEqual(len(rows), 4)
        for names, *shares in rows:
            for schedule in re.findall(r"`(.*?)`", names):
                for (ranks, micro_batches), share in zip(((4, 8), (8, 32)), shares):
                    _, out, err = self.place.run(
                        f"tutti explain pipeline --schedule {schedule} --ranks {ranks} "
                        f"--micro-batches {micro_batches}")
                    self.assertIn(f"bubble {share} %\n", out, schedule + err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
