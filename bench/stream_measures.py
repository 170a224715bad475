"""What `bench/run stream` does: a DDP step whose sums are stored around the cache, over the same
step with plain stores. Below 1, streaming wins.

Results are stored around a cache that cannot hold a call (coll_steps.c), as large as the kernel
says it is. Here the kernel says something else, in a mount namespace of its own, which only root
can make: the same program streams every bucket (a cache of 16 KiB), none (1 TiB), or those that
are large for a cache of 2 MiB. Pairs take turns and swap who is first; the median of their ratios
is printed with its 95 % interval (order statistics).
"""
import json
import math
import os
import statistics
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.path.join(ROOT, 'build', 'bin')
CACHE = '/sys/devices/system/cpu/cpu0/cache'
MODEL = ['--layers', '6', '--width', '384', '--heads', '6', '--context', '256', '--batch', '4']
NEVER_KIB = 1 << 30


def step_ms(cache_kib, bucket_mb, ranks=2):
    script = ('mount -t tmpfs none %s && mkdir %s/index3 && echo %dK > %s/index3/size && '
              'exec "$@"' % (CACHE, CACHE, cache_kib, CACHE))
    done = subprocess.run(
        ['unshare', '-m', 'sh', '-c', script, 'sh', os.path.join(BIN, 'tutti'), 'run', '-n',
         str(ranks), os.path.join(BIN, 'gpt'), '--bench', '--threads', '1', '--steps', '8',
         '--bucket-mb', bucket_mb, *MODEL], text=True, capture_output=True, timeout=600, check=True)
    lines = [line[line.index('{"'):] for line in done.stdout.splitlines() if '{"' in line]
    return json.loads(lines[-1])['step_ms']


def interval(values):
    """The ranks between which the median lies with 95 %."""
    values = sorted(values)
    reach = 0.98 * math.sqrt(len(values))
    low = max(0, math.floor(len(values) / 2 - reach))
    high = min(len(values) - 1, math.ceil(len(values) / 2 + reach) - 1)
    return values[low], values[high]


def compare(cache_kib, bucket_mb, pairs):
    ratios = []
    for i in range(pairs):
        order = [cache_kib, NEVER_KIB] if i % 2 == 0 else [NEVER_KIB, cache_kib]
        took = {kib: step_ms(kib, bucket_mb) for kib in order}
        ratios.append(took[cache_kib] / took[NEVER_KIB])
    return ratios


def main(pairs):
    if os.geteuid() != 0:
        print('# mount namespaces want root')
        return 1
    rows = []
    print('%-52s %8s  %s' % ('DDP step, 2 ranks, over the same without streaming', 'median',
                             '95 % of the median'), flush=True)
    for bucket_mb, what, kib in (('4', 'every bucket', 16), ('25', 'every bucket', 16),
                                 ('4', 'a cache of 2 MiB', 2048), ('25', 'a cache of 2 MiB', 2048),
                                 ('25', 'none on both sides', NEVER_KIB + 1)):
        ratios = compare(kib, bucket_mb, pairs)
        low, high = interval(ratios)
        print('%-52s %8.3f  %.3f to %.3f' % (
            'buckets of %s MiB, %s' % (bucket_mb, what), statistics.median(ratios), low, high),
            flush=True)
        rows.append({'bucket_mb': bucket_mb, 'cache_kib': kib, 'ratios': ratios})
    os.makedirs(os.path.join(ROOT, 'build', 'bench'), exist_ok=True)
    with open(os.path.join(ROOT, 'build', 'bench', 'stream.json'), 'w', encoding='utf-8') as file:
        json.dump(rows, file, indent=1)
    return 0
