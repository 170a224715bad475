"""The lessons run, say what they should, and learn."""
import os
import re
import subprocess
import unittest

BIN = os.path.join(os.environ['TUTTI_BINARY_DIR'], 'bin')
DATA = '/usr/share/datasets/fashion-mnist'
DEADLINE = 100


def run(name, *args, check=True):
    return subprocess.run([os.path.join(BIN, name), *args], text=True, capture_output=True,
                          timeout=DEADLINE, check=check)


class Examples(unittest.TestCase):
    def test_01_shows_tensors_and_a_mistake(self):
        out = run('01_tensor').stdout
        self.assertIn('     14     32\n     32     77\n', out)
        self.assertIn('as expected: matmul:', out)

    def test_02_learns_the_sine(self):
        out = run('02_autograd').stdout
        self.assertIn('d(w * w)/dw at 3 is 6', out)
        self.assertLess(float(re.findall(r'error (\S+)', out)[-1]), 0.002)

    @unittest.skipUnless(os.path.isdir(DATA), 'dataset-fashion-mnist is not installed')
    def test_03_learns_and_does_so_alike_with_any_number_of_threads(self):
        outs = [run('03_train', '--steps', '150', '--threads', n).stdout for n in '13']
        self.assertEqual(*outs)
        self.assertGreater(float(re.search(r'accuracy (\S+) %', outs[0])[1]), 78)

    def test_03_says_which_file_is_missing(self):
        done = run('03_train', '--data', '/nonexistent', check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn('/nonexistent/train-images-idx3-ubyte.gz', done.stderr)


if __name__ == '__main__':
    unittest.main(verbosity=2)
