"""The C of the guide compiles: each block of a chapter below, by the rules of headers' examples."""
import os
import re
import unittest

import headers_test

CHAPTERS = ['building.md', 'data.md']
GUIDE = os.path.join(headers_test.SOURCE, 'docs', 'guide')


def blocks_of(text):
    return re.findall(r'^```c\n(.*?)^```$', text, re.M | re.S)


def compile_block(block):
    texts = [headers_test.read_header(name) for name in headers_test.headers()]
    known = set(re.findall(r'\btutti_\w+_t\b', '\n'.join(texts)))
    src = '-I' + os.path.join(headers_test.SOURCE, 'src')  # for those who build on the inside
    return headers_test.compile_text(headers_test.EXAMPLE + [src],
                                     headers_test.program_of('tutti.h', block, known))


class Guide(unittest.TestCase):
    maxDiff = None

    def test_blocks_compile(self):
        for name in CHAPTERS:
            with open(os.path.join(GUIDE, name), encoding='utf-8') as file:
                blocks = blocks_of(file.read())
            self.assertGreater(len(blocks), 0, name)
            for block in blocks:
                with self.subTest(name):
                    self.assertEqual(compile_block(block), '')

    def test_a_block_that_does_not_compile_is_found(self):
        blocks = blocks_of('text\n```c\ntutti_sampler_t *s = tutti_banana();\n```\n')
        self.assertEqual(len(blocks), 1)
        self.assertIn('tutti_banana', compile_block(blocks[0]))


if __name__ == '__main__':
    unittest.main(verbosity=2)
