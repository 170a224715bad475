"""Draws of tests (draws.py): how many, which, in what order, and by what seed; what is said."""
import contextlib
import io
import os
import runpy
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
LOADER = unittest.TestLoader()


def suite_of_ten():
    tests = {f"test_{digit}": lambda self: None for digit in range(10)}
    case = type("Many", (unittest.TestCase,), tests)
    return unittest.TestSuite([LOADER.loadTestsFromTestCase(case)])


def draw(**environment):
    """(what is drawn of letters twice, the numbers of the tests that are drawn, what is said)"""
    own = {name: text for name, text in os.environ.items() if not name.startswith("TUTTI_")}
    with unittest.mock.patch.dict(os.environ, {**own, **environment}, clear=True):
        draws = runpy.run_path(os.path.join(HERE, "draws.py"))
        assert "TUTTI_TEST_SHARE" not in os.environ
    with contextlib.redirect_stdout(io.StringIO()) as said:
        tests = list(draws["load_tests"](LOADER, suite_of_ten(), None))
    return ([draws["part"]("abcdefg", name) for name in ("letters", "others")],
            [int(test.id()[-1]) for test in tests], said.getvalue())


class Draws(unittest.TestCase):
    def test_without_a_share_all_cases_run(self):
        self.assertEqual(draw(), ([list("abcdefg")] * 2, list(range(10)), ""))

    def test_a_share_is_rounded_up_and_in_order(self):
        for share, letters, count in (("3", 3, 4), ("4", 2, 3), ("100", 1, 1)):
            parts, tests, _ = draw(TUTTI_TEST_SHARE=share)
            for part in parts:
                self.assertEqual((len(part), part), (letters, sorted(set(part))))
            self.assertEqual((len(tests), tests), (count, sorted(set(tests))))

    def test_the_seed_is_said_and_names_the_draw(self):
        drawn = [draw(TUTTI_TEST_SHARE="2", TUTTI_SEED=str(seed)) for seed in range(20)]
        self.assertEqual(drawn[4], draw(TUTTI_TEST_SHARE="2", TUTTI_SEED="4"))
        self.assertEqual(drawn[4][2], "TUTTI_SEED=4: one case of 2\n")
        self.assertGreater(len({str(tests) for _, tests, _ in drawn}), 10)
        self.assertEqual({number for _, tests, _ in drawn for number in tests}, set(range(10)))
        self.assertTrue(any(parts[0] != parts[1] for parts, _, _ in drawn))

    def test_without_a_seed_draws_differ(self):
        self.assertGreater(len({str(draw(TUTTI_TEST_SHARE="3")[1]) for _ in range(8)}), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
