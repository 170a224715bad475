"""3 ranks with 2 calls and a failure: more states of src/comm/exec/flags.pml than memory holds.
Each kind of call is searched for a time; a state that was seen is three bits of 2 GiB. What that
leaves out is unknown: an error that is found counts, none is no proof."""
import unittest

import flags_full_test

MINUTES = 20
COMPILE = ['gcc', '-w', '-DSAFETY', '-DBITSTATE', '-DVECTORSZ=1024', '-o', 'pan', 'pan.c']
RUN = ['./pan', '-m1000000', '-w34', '-k3', f'-Q{MINUTES}']


class FlagsLong(unittest.TestCase):
    def test_no_error_is_found_in_time(self):
        for kind in ('SMALL', 'DIRECT', 'STAGED'):
            world = ['RANKS=3', 'CALLS=2', f'KIND={kind}']
            states, error = flags_full_test.explore(world, COMPILE, RUN, 120 * MINUTES)
            print(f'{" ".join(world)}: {states} states in at most {MINUTES} minutes', flush=True)
            with self.subTest(world=world):
                self.assertEqual(error, '')


if __name__ == '__main__':
    unittest.main(verbosity=2)
