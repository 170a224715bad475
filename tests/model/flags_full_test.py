"""The model of the flag protocol, src/comm/exec/flags.pml, explored by spin: all of it without an
error, and each variant in which one rule is taken away with one."""
import concurrent.futures
import os
import re
import shutil
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.environ.get('TUTTI_SOURCE_DIR', os.path.dirname(os.path.dirname(HERE)))
MODEL = os.path.join(SOURCE, 'src', 'comm', 'exec', 'flags.pml')
# Not one of -DBITSTATE, -DHC: every state is kept as it is.
COMPILE = ['gcc', '-w', '-DSAFETY', '-DCOLLAPSE', '-DVECTORSZ=1024', '-o', 'pan', 'pan.c']
SECONDS = 600
JOBS = max(2, len(os.sched_getaffinity(0)))

# What is explored whole.
WORLDS = [['RANKS=3', 'CALLS=1', 'KIND=SMALL'], ['RANKS=3', 'CALLS=1', 'KIND=DIRECT'],
          ['RANKS=3', 'CALLS=1', 'KIND=STAGED'], ['RANKS=2', 'CALLS=2'], ['RANKS=2', 'CALLS=1'],
          ['RANKS=3', 'CALLS=2', 'KIND=SMALL', 'FAULTY=0'],
          ['RANKS=3', 'CALLS=2', 'KIND=DIRECT', 'FAULTY=0'],
          ['RANKS=3', 'CALLS=2', 'KIND=STAGED', 'FAULTY=0']]

# A rule that is taken away, and what spin must find then.
LOST, LENT, FREED = 'invalid end state', 'is_lent', 'is_freed'
WRONG, LATE = 'is_out_right', 'is_late'
BREAKS = {
    'BREAK_ENTER': LENT,        # E2: no look between the others' flags and their memory
    'BREAK_ENTER_LATE': LENT,   # E1 after E2
    'BREAK_LEAVE': WRONG,       # L2
    'BREAK_QUIESCE': LENT,      # F2, F3: a failed call returns at once
    'BREAK_REPLACE': LENT,      # F3
    'BREAK_CUT': FREED,         # a rank that is cut off counts as dead in F2 and Q2
    'BREAK_QUIET': FREED,       # Q2
    'BREAK_BELL': LOST,         # the bell is set after the last look
    'BREAK_WAKE': LOST,         # F1 without the doorbell
    'BREAK_DONE': WRONG,        # done before the last touch
    'BREAK_SLOT': WRONG,        # a slot is written again though others still need it
    'BREAK_SEQUENCE': WRONG,    # the slot's sequence before its payload
}


def explore(defines, compile_pan=COMPILE, run_pan=('./pan', '-m100000'), seconds=SECONDS):
    """What pan says: the states it has stored, and the first error or ''."""
    flags = ['-D' + define for define in defines]
    with tempfile.TemporaryDirectory() as folder:
        def run(command, timeout=SECONDS):
            done = subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=timeout)
            if done.returncode != 0:
                raise RuntimeError(f'{" ".join(command)}:\n{done.stdout}')
            return done.stdout
        is_broken = any(define.startswith('BREAK_') for define in defines)
        said = run(['spin', '-a', *flags, MODEL])
        if 'Error' in said:
            raise RuntimeError(said)
        run([*compile_pan, '-O0' if is_broken else '-O2'])
        said = run(run_pan, seconds)
    counts = re.search(r'depth reached (\d+), errors: (\d+)\s+([\d.e+]+) states, stored', said)
    if counts is None or 'out of memory' in said or 'depth too small' in said:
        raise RuntimeError(said)
    error = re.search(r'^pan:1: (.*)$', said, re.MULTILINE)
    if (error is None) != (counts[2] == '0'):
        raise RuntimeError(said)
    return int(float(counts[3])), error[1] if error is not None else ''


class Flags(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if shutil.which('spin') is None or shutil.which('gcc') is None:
            raise RuntimeError('the model needs spin and gcc: tools/packages check-all')

    def explore_all(self, worlds):
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            return list(pool.map(explore, worlds))

    def test_the_protocol_holds(self):
        for world, (states, error) in zip(WORLDS, self.explore_all(WORLDS)):
            print(f'{" ".join(world)}: {states} states', flush=True)
            with self.subTest(world=world):
                self.assertEqual(error, '')

    def test_each_rule_is_needed(self):
        worlds = [['RANKS=2', 'CALLS=2', name] for name in BREAKS]
        for (name, wanted), (states, error) in zip(BREAKS.items(), self.explore_all(worlds)):
            print(f'{name}: {states} states, {error}', flush=True)
            with self.subTest(rule=name):
                self.assertIn(wanted, error)


if __name__ == '__main__':
    unittest.main(verbosity=2)
