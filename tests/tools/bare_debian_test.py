"""tools/bare_debian, with a mmdebstrap and an unshare that are made up: what was broken off is made
again, what is whole is not, and the script and its status come through."""
import os
import subprocess
import tempfile
import unittest

TOOL = os.path.join(os.environ["TUTTI_SOURCE_DIR"], "tools", "bare_debian")
MMDEBSTRAP = """#!/bin/sh
for folder; do :; done
case $folder in http*) folder=$4 ;; esac
echo made >>"$LOG"
mkdir -p "$folder/usr" "$folder/etc"
exit $FAILS
"""
UNSHARE = """#!/bin/sh
cat >>"$LOG"
exit 7
"""


class BareDebian(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="bare_debian_"))
        self.root, self.log = self.path("below", "bare"), self.path("log")
        os.mkdir(self.path("bin"))
        for name, text in (("mmdebstrap", MMDEBSTRAP), ("unshare", UNSHARE)):
            with open(self.path("bin", name), "w", encoding="ascii") as file:
                file.write(text)
            os.chmod(self.path("bin", name), 0o755)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def run_it(self, fails=0):
        """The status, and what has been done."""
        open(self.log, "w", encoding="ascii").close()
        environment = os.environ | {"PATH": f"{self.path('bin')}:{os.environ['PATH']}",
                                    "LOG": self.log, "FAILS": str(fails)}
        run = subprocess.run(["sh", TOOL, self.root], input="script\n", text=True, timeout=60,
                             check=False, env=environment, capture_output=True)
        with open(self.log, encoding="ascii") as file:
            return run.returncode, file.read().split()

    def test_it_is_made_once(self):
        self.assertEqual(self.run_it(), (7, ["made", "script"]))
        self.assertEqual(self.run_it(), (7, ["script"]))
        self.assertTrue(os.path.exists(os.path.join(self.root, "etc", "hosts")))

    def test_what_was_broken_off_is_made_again(self):
        self.assertEqual(self.run_it(fails=3), (3, ["made"]))
        self.assertEqual(self.run_it(), (7, ["made", "script"]))
        self.assertEqual(self.run_it(), (7, ["script"]))
        self.assertEqual(os.listdir(self.path("below")), ["bare"])


if __name__ == "__main__":
    unittest.main()
