"""A report in a headless Chromium, where there is one: what its parser makes of the page, and that
nothing of it is refused."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

TUTTI = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin", "tutti")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DEADLINE = 300


class Browser(unittest.TestCase):
    @unittest.skipUnless(BROWSER, "there is no chromium: the page is not looked at in a browser")
    def test_the_page_is_shown(self):
        with tempfile.TemporaryDirectory(prefix="report_browser_") as folder:
            with open(os.path.join(folder, "metrics.jsonl"), "w", encoding="ascii") as file:
                for step in range(100):
                    file.write(json.dumps({"step": step, "time": 0, "name": "<b>loss</b>",
                                           "value": 1 / (step + 1)}) + "\n")
            subprocess.run([TUTTI, "report", folder], check=True, timeout=DEADLINE,
                           stdout=subprocess.DEVNULL)
            run = subprocess.run(
                [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
                 f"--user-data-dir={folder}/browser", "--dump-dom",
                 f"file://{folder}/report.html"], capture_output=True, text=True, timeout=DEADLINE,
                check=True)
        self.assertIn("<polyline class=\"curve\"", run.stdout)
        self.assertIn("&lt;b&gt;loss&lt;/b&gt;", run.stdout)
        self.assertNotIn("Refused to", run.stderr)
        self.assertNotIn("CONSOLE", run.stderr)


if __name__ == "__main__":
    unittest.main()
