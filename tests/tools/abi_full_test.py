"""tools/abi: the library is what programs were linked with; what is no change, and what is one."""
import os
import platform
import shutil
import subprocess
import tempfile
import unittest

SOURCE = os.environ["TUTTI_SOURCE_DIR"]
LIBRARY = os.path.join(os.environ["TUTTI_BINARY_DIR"], "lib", "libtutti.so")
ABI = os.path.join(SOURCE, "tools", "abi")
HEADER = """
typedef struct box { int width; double height; } box_t;
typedef struct secret secret_t;
int box_measure(const box_t *box, secret_t *secret);
"""
CODE = """
#include "box.h"
struct secret { int number; };
int box_measure(const box_t *box, secret_t *secret) { return box->width + secret->number; }
"""


@unittest.skipUnless(shutil.which("abidw"), "abidw is not installed (abigail-tools)")
class Abi(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.library, self.baseline = self.path("libbox.so"), self.path("box.abi.xz")

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_abi(self, what, *args):
        done = subprocess.run([ABI, what, *args], text=True, capture_output=True, timeout=300,
                              env=os.environ | {"TUTTI_ABI_HEADERS": self.path("include")})
        return done.returncode, done.stdout + done.stderr

    def build(self, header=HEADER, code=CODE, soname="libbox.so.0"):
        os.makedirs(self.path("include"), exist_ok=True)
        for name, text in (("include/box.h", header), ("box.c", code)):
            with open(self.path(name), "w") as file:
                file.write(text)
        subprocess.run([os.environ.get("CC", "cc"), "-g", "-shared", "-fPIC", "-I",
                        self.path("include"), self.path("box.c"), "-Wl,-soname," + soname, "-o",
                        self.library], check=True)

    def expect(self, code, *texts):
        got, said = self.run_abi("check", self.library, self.baseline)
        self.assertEqual(got, code, said)
        for text in texts:
            self.assertIn(text, said)

    def test_what_is_a_change(self):
        self.build()
        self.assertEqual(self.run_abi("renew", self.library, self.baseline)[0], 0)
        self.expect(0)
        self.build(HEADER + "int box_more(void);\n", CODE + "int box_more(void) { return 1; }\n")
        self.expect(0)
        self.build(code=CODE.replace("int number;", "long before; int number;"))
        self.expect(0)  # nobody outside sees it
        self.build(HEADER.replace("int width;", "int depth, width;"))
        self.expect(1, "box", "depth", "tools/abi renew")
        self.build(HEADER.replace("box_measure", "box_weigh"),
                   CODE.replace("box_measure", "box_weigh"))
        self.expect(1, "box_measure")
        self.build(HEADER.replace("int box_m", "long box_m"), CODE.replace("int box_m",
                                                                           "long box_m"))
        self.expect(1, "return type changed")
        self.build(soname="libbox.so.1")
        self.expect(1, "SONAME changed")

    def test_what_is_wrong_is_said(self):
        self.assertEqual(self.run_abi("compare", LIBRARY)[0], 2)
        code, said = self.run_abi("check", self.path("none.so"))
        self.assertEqual(code, 2)
        self.assertIn("none.so: no such library", said)

    @unittest.skipUnless(platform.machine() == "x86_64", "the baseline is of x86-64")
    def test_the_library_is_what_it_was(self):
        done = subprocess.run([ABI, "check", LIBRARY], text=True, capture_output=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
