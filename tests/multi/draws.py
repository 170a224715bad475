"""A seeded part of a long matrix. TUTTI_TEST_SHARE=3 runs one case of three, rounded up; TUTTI_SEED
names the draw; without a share all cases run. cmake/tests.cmake gives shares to quick tests, whose
variants labelled full have none (tutti_test_drawn). src/core/base/draw_testing.h is the same in C.

A module with `from draws import load_tests` draws among its test methods; `part` draws inside one,
whose module calls `announce`.
"""
import os
import random
import time
import unittest

SHARE = int(os.environ.pop("TUTTI_TEST_SHARE", "1"))  # which the library does not know
SEED = int(os.environ.get("TUTTI_SEED", time.time_ns() % 2**32))


def part(cases, name):
    """One of SHARE of a list's cases, at least one, in their order; `name` is the list's."""
    cases = list(cases)
    count = -(-len(cases) // SHARE)
    chosen = random.Random(f"{SEED} {name}").sample(range(len(cases)), count)
    return [cases[i] for i in sorted(chosen)]


def announce():
    """Of a draw, its seed and share."""
    if SHARE > 1:
        print(f"TUTTI_SEED={SEED}: one case of {SHARE}", flush=True)


def tests_of(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from tests_of(test)
        else:
            yield test


def load_tests(loader, suite, pattern):
    """What unittest runs of a module (its load_tests protocol)."""
    announce()
    return loader.suiteClass(part(tests_of(suite), "tests"))
