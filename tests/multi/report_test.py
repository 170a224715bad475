"""`tutti report`: the page has what the files tell, as text: no file can put a tag, a script or an
address into it."""
import html.parser
import json
import os
import re
import subprocess
import tempfile
import unittest

BIN = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin")
TUTTI, GPT = os.path.join(BIN, "tutti"), os.path.join(BIN, "gpt")
DEADLINE = 110
HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>'\"&<!--"
TAGS = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "table", "tr", "td", "p", "b",
        "div", "figure", "figcaption", "svg", "rect", "text", "polyline", "pre"}
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "viewbox", "role", "x",
              "y", "width", "height", "points", "text-anchor"}


class Page(html.parser.HTMLParser):
    """All texts; tags that are not closed in order, or not among ours, are errors."""

    def __init__(self, test, text):
        super().__init__()
        self.test, self.open, self.texts, self.tags = test, [], [], []
        self.feed(text)
        self.close()
        test.assertEqual(self.open, [])

    def handle_starttag(self, tag, attrs):
        self.test.assertIn(tag, TAGS)
        self.test.assertLessEqual({name for name, _ in attrs}, ATTRIBUTES)
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        self.test.assertEqual(self.open.pop(), tag)

    def handle_data(self, data):
        self.texts.append(data)

    def handle_comment(self, data):
        self.test.fail(f"a comment: {data}")

    def count(self, tag, name=""):
        return sum(tag == one and name in (attrs.get("class") or "") for one, attrs in self.tags)


class Reports(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="report_"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_program(self, *command):
        return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE,
                              check=False)

    def report(self):
        run = self.run_program(TUTTI, "report", self.folder)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stdout, self.path("report.html") + "\n")
        with open(self.path("report.html"), encoding="utf-8") as file:
            text = file.read()
        self.assertNotRegex(text, r"(?i)https?:|//|url\(|@import|javascript:")
        return Page(self, text)

    def write_numbers(self, *lines):
        with open(self.path("metrics.jsonl"), "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))

    def test_a_training_of_two_ranks(self):
        with open(self.path("text"), "w", encoding="ascii") as file:
            file.write("In the beginning God created the heaven and the earth. " * 40)
        run = self.run_program(
            TUTTI, "profile", "-o", self.folder, "--", TUTTI, "run", "-n", "2", GPT, "--data",
            self.path("text"), "--layers", "1", "--width", "16", "--heads", "2", "--context", "16",
            "--batch", "1", "--threads", "1", "--steps", "3", "--metrics", self.folder)
        self.assertEqual(run.returncode, 0, run.stderr)
        page = self.report()
        everything = " ".join(page.texts)
        for text in ("loss/train", "digest", "--steps 3", "linear backward", "all_reduce",
                     "at the peak", "0 main", "1 main"):
            self.assertIn(text, everything)
        self.assertEqual(page.count("polyline", "curve"), 3)
        self.assertEqual(page.count("polyline", "memory"), 2)
        self.assertGreater(page.count("rect", "c2"), 0, "backward in the timeline")

    def test_what_files_say_is_text(self):
        self.write_numbers(
            json.dumps({"step": 1, "time": 1.0, "name": HOSTILE, "value": 2.5}),
            json.dumps({"step": 1, "time": 1.0, "name": "note " + HOSTILE, "text": HOSTILE}))
        with open(self.path("profile"), "w", encoding="ascii") as file:
            hostile = json.dumps(HOSTILE)
            file.write("tutti profile 1\n"
                       '{"rank":0,"world_size":1,"threads":1,"peak_mflops":1000,"begin_ns":0,'
                       f'"end_ns":1000,"wall_ns":0,"host":{hostile},"boot":"b",'
                       f'"program":{hostile}}}\n'
                       f'{{"peak_bytes":9,"alive":[[{hostile},1,9]]}}\n'
                       f'{{"modules":[{hostile}]}}\n'
                       f'{{"lane":{hostile},"rank":0,"lost":0,"events":1,"calls":0,'
                       f'"rows":[["forward",{hostile},1,1,9,9,9,0,0,8]]}}\n'
                       "e 0 0 900 9\n")
        page = self.report()
        everything = "".join(page.texts)
        self.assertGreaterEqual(everything.count("<script>alert(1)</script>"), 4)
        self.assertEqual(page.count("script") + page.count("img"), 0)

    def test_points_lie_where_the_values_are(self):
        self.write_numbers(
            *(json.dumps({"step": step, "time": 0, "name": "a", "value": value})
              for step, value in ((0, 0.0), (50, None), (100, 10.0))),
            json.dumps({"step": 7, "time": 0, "name": "flat", "value": 4}))
        page = self.report()
        curves = [attrs["points"].split() for tag, attrs in page.tags if tag == "polyline"]
        # 600 x 180 from (70, 10): the first in the lower left, the last in the upper right.
        self.assertEqual(curves, [["70,190.0", "669,10.0"], ["370,100.0"]])
        self.assertIn("(1 values are no numbers)", page.texts)

    def test_values_at_the_end_of_their_range(self):
        for values in ((-1.7e308, 1.7e308), (1.7e308, 1.7e308), (5e-324, 5e-324), (0, 5e-324)):
            self.write_numbers(*(json.dumps({"step": step, "time": 0, "name": "a", "value": value})
                                 for step, value in enumerate(values)))
            points = next(attrs["points"] for tag, attrs in self.report().tags if tag == "polyline")
            for point in points.split():
                with self.subTest(values, point=point):
                    self.assertTrue(10 <= float(point.split(",")[1]) <= 190)

    def test_what_is_no_file_is_left_out(self):
        self.write_numbers('{"step":1,"time":0,"name":"a","value":1}')
        os.mkfifo(self.path("pipe"))
        os.mkfifo(self.path("pipe.jsonl"))
        self.assertEqual(self.report().count("polyline", "curve"), 1)

    def test_many_steps_keep_their_spikes(self):
        values = [0.0] * 50000
        values[31234] = 1.0
        self.write_numbers(*(f'{{"step":{step},"time":0,"name":"a","value":{value}}}'
                             for step, value in enumerate(values)))
        page = self.report()
        points = next(attrs["points"] for tag, attrs in page.tags if tag == "polyline")
        self.assertEqual(len(re.findall(r",10\.0 ", points)), 1)
        self.assertLess(len(points.split()), 1300)

    def test_lines_that_are_none(self):
        self.write_numbers('{"step":1,"time":0,"name":"a","value":1}', "{", "[]", "7", "")
        self.assertIn("4 lines of numbers could not be read.", self.report().texts)

    def test_nothing_to_report(self):
        for folder, text in ((self.folder, "neither numbers"), ("/no/folder", "No such file")):
            run = self.run_program(TUTTI, "report", folder)
            self.assertEqual(run.returncode, 2)
            self.assertIn("tutti report: report " + folder, run.stderr)
            self.assertIn(text, run.stderr)
        self.assertEqual(self.run_program(TUTTI, "report").returncode, 2)


if __name__ == "__main__":
    unittest.main()
