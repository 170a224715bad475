"""The lessons run, say what they should, and learn."""
import json
import os
import re
import statistics
import signal
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD = os.environ['TUTTI_SOURCE_DIR'], os.environ['TUTTI_BINARY_DIR']
sys.path.insert(0, os.path.join(SOURCE, 'tests', 'multi'))
import netns  # noqa: E402
from draws import load_tests  # noqa: E402, F401

BIN = os.path.join(BUILD, 'bin')
TWO_HOSTS = os.path.join(SOURCE, 'examples', '11_two_hosts.sh')
DATA = '/usr/share/datasets/fashion-mnist'
DEADLINE = 100


def run(name, *args, check=True, **environment):
    return subprocess.run([os.path.join(BIN, name), *args], text=True, capture_output=True,
                          timeout=DEADLINE, check=check, env={**os.environ, **environment})


def launch(ranks, name, *args, check=True):
    return run('tutti', 'run', '-n', str(ranks), os.path.join(BIN, name), *args, check=check)


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

    def test_04_sums_over_the_ranks(self):
        out = launch(3, '04_all_reduce').stdout
        self.assertEqual(out.count('the sum is 6 6 6 6\n'), 3)
        self.assertEqual(out.count('the average is 1 1 1 1\n'), 3)
        self.assertIn('rank 0: the sum is 1 1 1 1\n', run('04_all_reduce').stdout)

    def test_04_names_both_sides_of_a_mismatch(self):
        done = launch(3, '04_all_reduce', '--mismatch', check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r'all_reduce #\d+: rank 2 passed f32\[8\].*f32\[4\]')

    def test_05_has_the_same_bits_on_any_number_of_ranks(self):
        def digest(done):
            return re.search(r'digest (\w{32})', done.stdout)[1]
        alone = run('05_ddp')
        self.assertLess(float(re.search(r'is (\S+)', alone.stdout)[1]), 0.05)
        for ranks in (2, 3):
            self.assertEqual(digest(launch(ranks, '05_ddp')), digest(alone))

    def test_06_spawns_its_ranks(self):
        def digest(*args):
            return re.search(r'digest (\w{32})\n', run('06_spawn', *args).stdout)[1]
        alone = digest()
        self.assertEqual(alone, re.search(r'digest (\w{32})', run('05_ddp').stdout)[1])
        self.assertEqual([digest('3'), digest('2'), digest('3', 'threads')], [alone] * 3)

    def test_06_brings_back_a_failure_with_its_rank(self):
        done = run('06_spawn', '3', 'fail', check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r'^rank 1: .*-7')

    def test_07_loses_no_bit_in_a_crash(self):
        with tempfile.TemporaryDirectory() as folder:
            calm = run('07_restart', folder + '/calm').stdout
            done = run('tutti', 'run', '-n', '2', '--max-restarts', '3',
                       os.path.join(BIN, '07_restart'), folder + '/crash', 'crash')
        digest = re.search(r'digest \w{32}\n', calm)[0]
        self.assertIn(digest, done.stdout)
        self.assertIn('rank 1: killed by SIGKILL; restart 1 of 3\n', done.stderr)
        self.assertEqual(done.stdout.count('begins at step 100, restart 1\n'), 2)

    def test_08_has_the_same_bits_each_time(self):
        outs = [run('08_data_parallel', '3').stdout for _ in range(2)]
        self.assertEqual(*outs)
        self.assertLess(float(re.search(r'3 replicas: the last loss is (\S+)', outs[0])[1]), 0.01)
        done = run('08_data_parallel', '64', check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn('64 replicas: want 1 to 63', done.stderr)

    def test_09_counts_every_sample_once(self):
        alone = run('09_uneven').stdout
        self.assertIn('20 epochs: 200 steps, 7200 samples\n', alone)
        digest, = re.findall(r'digest (\w{32})', alone)
        for ranks in (2, 3, 5):
            out = launch(ranks, '09_uneven').stdout
            self.assertEqual(re.findall(r'digest (\w{32})', out), [digest])

    def test_10_averages_in_pairs_and_over_all(self):
        out = launch(4, '10_averaging').stdout
        found = re.findall(r'loss (\S+), digest (\w{32})', out)
        self.assertEqual(len(found), 4)
        self.assertEqual(len({digest for _, digest in found}), 1)
        self.assertTrue(all(float(loss) < 0.2 for loss, _ in found), out)

    def two_hosts(self, build):
        return subprocess.run([TWO_HOSTS, build], text=True, capture_output=True, timeout=DEADLINE)

    @unittest.skipIf(netns.why_not(), netns.why_not())
    def test_11_has_the_bits_of_one_host(self):
        done = self.two_hosts(BUILD)
        self.assertEqual(done.returncode, 0, done.stderr)
        digest = re.search(r'digest (\w{32})', run('05_ddp').stdout)[1]
        self.assertTrue(done.stdout.endswith('two hosts: digest %s\none host:  digest %s\n'
                                             % (digest, digest)), done.stdout)

    @unittest.skipIf(netns.why_not(), netns.why_not())
    def test_11_leaves_nothing_behind_when_it_is_stopped(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(folder + '/bin')
            os.symlink(os.path.join(BIN, 'tutti'), folder + '/bin/tutti')
            with open(folder + '/bin/05_ddp', 'w', opener=lambda *a: os.open(*a, 0o755)) as file:
                file.write('#!/bin/sh\necho up\nexec sleep 61\n')
            with subprocess.Popen([TWO_HOSTS, folder], text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE) as process:
                self.assertIn('up', process.stdout.readline())
                self.assertIn('tutti%da' % process.pid, netns.command('ip', 'netns', 'list'))
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=DEADLINE)
            self.assertEqual(process.returncode, 143)
            self.assertNotIn('tutti%d' % process.pid, netns.command('ip', 'netns', 'list'))

    def test_11_says_what_is_missing(self):
        done = self.two_hosts('/nonexistent')
        self.assertEqual(done.returncode, 1)
        self.assertIn('/nonexistent has no bin/tutti', done.stderr)

    def test_12_learns_the_same_bits_and_writes(self):
        with tempfile.NamedTemporaryFile('w') as text:
            text.write('In the beginning God created the heaven and the earth.\n' * 40)
            text.flush()
            alone = run('12_lstm', text.name, '16', TUTTI_THREADS='1').stdout
            pair = launch(2, '12_lstm', text.name, '16').stdout
        losses = [float(loss) for loss in re.findall(r'loss is (\S+)', alone)]
        self.assertGreater(losses[0], 5)
        self.assertLess(losses[-1], 2.9)
        digest, = re.findall(r'digest (\w{32})', alone)
        self.assertEqual(re.findall(r'digest (\w{32})', pair), [digest])
        self.assertEqual(len(re.search(r'digest \w{32}\n([^$]*)\n', alone)[1]), 300)

    def test_16_scans_finds_and_describes(self):
        def numbers(ranks):
            return [float((rank * 37 + i * 101) % 211 - 50) for rank in range(ranks)
                    for i in range(10 * (rank + 1))]

        for ranks in (1, 2, 4, 5):
            out = launch(ranks, '16_reductions').stdout
            found = numbers(ranks)
            self.assertEqual(
                sorted(re.findall(r'rank (\d): numbers (\d+) to (\d+)\n', out)),
                [(str(r), str(5 * r * (r + 1)), str(5 * (r + 1) * (r + 2) - 1))
                 for r in range(ranks)])
            least = min(found)
            place = found.index(least)
            owner = next(r for r in range(ranks) if place < 5 * (r + 1) * (r + 2))
            self.assertIn('the smallest is %g, of rank %d\n' % (least, owner), out)
            self.assertIn('%d numbers, mean %.6f, deviation %.6f\n' % (
                len(found), statistics.fmean(found), statistics.pstdev(found)), out)

    def test_17_has_the_bits_of_the_host_and_takes_splits(self):
        out = run('17_two_devices', '8').stdout
        lines = re.findall(r'^(host|two, splits of +\d+) .* digest (\w{32})', out, re.M)
        self.assertEqual([name.split()[-1] for name, _ in lines], ['host', '32', '8'])
        self.assertEqual(lines[0][1], lines[1][1])
        self.assertNotEqual(lines[0][1], lines[2][1])  # batch norm sees other batches

    def test_18_goes_on_in_any_layout(self):
        with tempfile.TemporaryDirectory() as folder:
            place = folder + '/table'
            for done, (ranks, layout) in enumerate([(3, 'rows'), (2, 'columns'), (1, 'whole'),
                                                    (2, 'whole')]):
                out = launch(ranks, '18_layouts', place, layout).stdout
                self.assertEqual(out.count(f'and begins at step {3 * done}\n'), ranks)
                self.assertIn(f'step {3 * done + 3}: 0 numbers are wrong\n', out)
            shown = json.loads(run('tutti', 'checkpoint', 'show', place, '--json').stdout)
        self.assertEqual(shown['step'], 12)
        self.assertEqual(shown['tensors'][0]['shape'], [6, 8])

    def test_19_has_the_same_digest_at_every_stage(self):
        outs = [launch(ranks, '19_sharded', str(stage)).stdout
                for stage, ranks in [(0, 1), (1, 2), (2, 2), (3, 2), (3, 3)]]
        digests = {re.search(r'digest (\w{32})', out)[1] for out in outs}
        self.assertEqual(len(digests), 1)
        self.assertIn('the root unit: 0 parameters', outs[3])
        whole = int(re.search(r'(\d+) bytes of parameters', outs[0])[1])
        parts = [int(part) for part in re.findall(r'(\d+) bytes of parameters', outs[4])]
        self.assertEqual(len(parts), 3)
        self.assertLess(max(parts), whole)

    def test_20_has_one_digest_for_any_ranks_and_schedule(self):
        outs = [run('20_pipeline').stdout, launch(2, '20_pipeline', 'zb-v').stdout,
                launch(3, '20_pipeline', 'gpipe').stdout]
        ends = [re.search(r'loss (\S+) digest (\w{32})\n', out) for out in outs]
        self.assertEqual(len({end[2] for end in ends}), 1)
        self.assertLess(float(ends[0][1]), 0.05)
        self.assertIn('stage 2  rank 2  6 to 8\n', outs[2])
        self.assertIn('rank 0: at most 4 micro-batches of stages at once', outs[2])

    def test_21_has_one_digest_on_any_number_of_ranks(self):
        found = set()
        for ranks, *options in [(1,), (2,), (3, 'sequence'), (4, 'sequence')]:
            out = launch(ranks, '21_tensor_parallel', *options).stdout
            self.assertEqual(out.count('parameters\n'), ranks)
            found.add(re.search(r'loss (\S+) digest (\w{32})\n', out).groups())
        self.assertEqual(len(found), 1)
        self.assertLess(float(next(iter(found))[0]), 3)

    def test_24_learns_from_pictures_alike_with_workers(self):
        with tempfile.TemporaryDirectory() as folder:
            out = run('24_pictures', folder).stdout
        found = re.findall(r'workers: the last loss is (\S+), digest (\w{32})', out)
        self.assertEqual(len(found), 2)
        self.assertEqual(*found)
        self.assertLess(float(found[0][0]), 0.1)

    def test_22_keeps_the_papers_versions_and_learns(self):
        digests, losses = set(), {}
        for schedule, versions in [('pipedream', '321'), ('vertical-sync', '333'), ('2bw', '222'),
                                   ('flush', '111')]:
            out = launch(3, '22_pipedream', schedule).stdout
            self.assertEqual(re.findall(r'stage (\d): (\d) versions', '\n'.join(sorted(
                line.split('] ', 1)[1] for line in out.splitlines()))),
                list(zip('012', versions)))
            loss, digest = re.search(r'loss (\S+) digest (\w{32})\n', out).groups()
            self.assertLess(float(loss), 0.05)
            digests.add(digest)
            losses[schedule] = float(loss)
        self.assertEqual(len(digests), 4)
        self.assertLess(losses['pipedream'], losses['flush'])  # twelve steps in place of one

    def test_13_checks_its_gradients_and_finds_the_centre(self):
        out = run('13_own_operation').stdout
        self.assertIn('(3, 4) lies at 5, 53.13 degrees\n', out)
        self.assertIn('gradients and differences agree\n', out)
        self.assertIn('polar: x and y must have one shape: f64[3] and f64[2]\n', out)
        self.assertIn('step 60  loss 0.000000  centre (0.500, -0.250)\n', out)

    def test_14_keeps_bits_in_a_file_and_half_of_them_in_bf16(self):
        out = run('14_saved_tensors').stdout
        plain = re.search(r'norm is (\S+)\n', out)[1]
        filed, written, live = re.search(r'file: +(\S+), (\d+) bytes written, (\d+) still',
                                         out).groups()
        halved, half, off = re.search(r'bf16: +(\S+), (\d+) bytes, (\S+)% off', out).groups()
        self.assertEqual((filed, live), (plain, '0'))
        self.assertNotEqual(halved, plain)
        self.assertEqual(int(written), 2 * int(half))
        self.assertLess(float(off), 1)

    def test_15_trains_and_goes_on_from_a_file(self):
        out = run('15_own_optimizer').stdout
        first, last = re.search(r'loss (\S+) at first, (\S+) after 60 steps\n', out).groups()
        self.assertLess(float(last), 0.5 * float(first))
        self.assertIn('through a file:  the same bits\n', out)
        self.assertIn('the state of optimizer lars, not of sgd\n', out)

    def test_23_shows_parts_and_times(self):
        out = run('23_looking').stdout
        self.assertRegex(out, r'\n  0: linear +f32\[32, 128\] +8320 +524 k ')
        loss = re.findall(r'step 50 of 50  loss (\S+)', out)
        self.assertLess(float(loss[0]), 0.1)
        for row in ('add noise +50 ', 'linear +100 ', 'linear backward +100 ',
                    'optimizer step +50 ', r'sequential +\d'):
            self.assertRegex(out, r'\n  ' + row)
        plain = run('tutti', 'profile', '--', os.path.join(BIN, '23_looking'), '--plain')
        self.assertNotIn('add noise', plain.stdout)
        self.assertRegex(plain.stderr, r'\n  add noise +50 ')

    def test_12_says_which_file_is_missing(self):
        done = run('12_lstm', '/nonexistent', check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn('/nonexistent', done.stderr)


if __name__ == '__main__':
    unittest.main(verbosity=2)
